"""A plot as SVG that is part of a page: colours are the page's, so that it is light or dark with it. Pure."""

import math
from typing import Dict, List, NamedTuple, Sequence
from xml.sax.saxutils import escape, quoteattr

from .figures import Group, Row, Spread, Who
from .picture import Axis
from .table import number

WIDTH, HEIGHT = 400, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 40
COLORS = 12  # that the page has
DODGE = 5.0  # between lanes of one size, so that none hides another
LEAST = 0.5  # of a power of ten that an axis shows
PAD = 0.06  # of an axis that is left free at both ends
STEPS = ((1.0, (1, 1.5, 2, 3, 5, 7)), (2.2, (1, 2, 5)), (math.inf, (1,)))
"""The marks within each power of ten, on axes of up to so many of them."""


class Scale(Axis):
	"""A logarithmic axis that ends where the values do, with more marks the shorter it is."""

	def __init__(self, values: Sequence[float], start: float, end: float) -> None:
		first, last = math.log10(min(values)), math.log10(max(values))
		if last - first < LEAST:
			first, last = (first + last - LEAST) / 2, (first + last + LEAST) / 2
		pad = PAD * (last - first)
		super().__init__(values, start, end)
		self.first, self.last = first - pad, last + pad

	def marks(self) -> List[float]:
		steps = next(steps for length, steps in STEPS if self.last - self.first <= length)
		powers = range(math.floor(self.first), math.ceil(self.last) + 1)
		found = [step * 10.0**power for power in powers for step in steps]
		return [mark for mark in found if self.first <= math.log10(mark) <= self.last]


class Style(NamedTuple):
	"""How a lane is drawn: a colour for each contender, hollow and dashed for all interpreters but the first."""

	color: int
	turn: int

	@property
	def classes(self) -> str:
		return "k%d i%d" % (self.color, min(self.turn, 2))


def styles_of(lanes: Sequence[Who]) -> Dict[Who, Style]:
	"""A style for each lane."""
	colors = {name: n % COLORS for n, name in enumerate(dict.fromkeys((who.contender, who.machine) for who in lanes))}
	turns = {name: n for n, name in enumerate(dict.fromkeys(who.interpreter for who in lanes if who.interpreter))}
	return {who: Style(colors[who.contender, who.machine], turns.get(who.interpreter, 0)) for who in lanes}


def plot(group: Group, measure: str, unit: str, styles: Dict[Who, Style]) -> str:
	"""The medians of a measure against the number of tasks, with bars from min to max and boxes between quartiles."""
	rows = [row for row in group.rows if is_drawn(row, measure)]
	if not rows:
		return ""
	spreads = [row.spreads[measure] for row in rows]
	xs = Scale([row.tasks for row in rows], LEFT, WIDTH - RIGHT)
	ys = Scale([value for s in spreads for value in (s.least, s.most)], HEIGHT - BOTTOM, TOP)
	name = "%s: %s in %s against tasks" % (group.title, measure, unit)
	parts = ['<svg viewBox="0 0 %d %d" role="group" aria-label=%s>' % (WIDTH, HEIGHT, quoteattr(name))]
	parts += grid(xs, ys, sorted({row.tasks for row in rows}))
	lanes = list(dict.fromkeys(row.who for row in rows))
	for turn, who in enumerate(lanes):
		aside = (turn - (len(lanes) - 1) / 2) * min(DODGE, 40 / len(lanes))
		mine = [row for row in rows if row.who == who]
		parts.append('<g class="lane %s" data-lane=%s>' % (styles[who].classes, quoteattr(who.text)))
		places = [(xs.place(row.tasks) + aside, row) for row in mine]
		line = " ".join("%.1f,%.1f" % (x, ys.place(row.spreads[measure].median)) for x, row in places)
		parts.append('<polyline points="%s"/>' % line)
		parts += [point(x, row, measure, unit, ys) for x, row in places]
		parts.append("</g>")
	return "\n".join([*parts, "</svg>"])


def is_drawn(row: Row, measure: str) -> bool:
	"""Tell whether a row has a point: half of a memory would mislead, where a daemon has the other half."""
	return measure in row.spreads and row.spreads[measure].least > 0 and not (measure == "peak" and row.is_partial)


def grid(xs: Scale, ys: Scale, sizes: Sequence[int]) -> List[str]:
	"""The lines behind everything, with their numbers: across the sizes themselves."""
	parts = []
	end = -99.0
	for size in sizes:
		x = xs.place(size)
		parts.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>' % (x, TOP, x, HEIGHT - BOTTOM))
		if x - end > 45:
			parts.append(label(x, HEIGHT - BOTTOM + 16, "middle", "{:,}".format(size)))
			end = x
	for mark in ys.marks():
		y = ys.place(mark)
		parts.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>' % (LEFT, y, WIDTH - RIGHT, y))
		parts.append(label(LEFT - 6, y + 4, "end", "%g" % mark))
	parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "middle", "tasks"))
	return ['<g class="grid">', *parts, "</g>"]


def label(x: float, y: float, anchor: str, text: str) -> str:
	"""A word."""
	return '<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>' % (x, y, anchor, escape(text))


def point(x: float, row: Row, measure: str, unit: str, ys: Scale) -> str:
	"""One lane in one size, which says its numbers when it is pointed at."""
	s = row.spreads[measure]
	least, low, mid, high, most = (ys.place(v) for v in (s.least, s.low, s.median, s.high, s.most))
	parts = ['<g class="point" tabindex="0" role="img" aria-label=%s>' % quoteattr(tip(row, s, unit, measure))]
	if s.count > 1:
		parts.append('<line class="range" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (x, least, x, most))
		parts.append('<rect x="%.1f" y="%.1f" width="5" height="%.1f"/>' % (x - 2.5, high, max(low - high, 0.5)))
	parts.append('<circle class="dot" cx="%.1f" cy="%.1f" r="3.5"/></g>' % (x, mid))
	return "".join(parts)


def tip(row: Row, s: Spread, unit: str, measure: str) -> str:
	"""What a point says."""
	lines = ["%s, %s tasks" % (row.who.text, "{:,}".format(row.tasks))]
	lines.append("median %s %s of %d run%s" % (number(s.median), unit, s.count, "s" if s.count > 1 else ""))
	if s.count > 1:
		lines.append("min %s, max %s" % (number(s.least), number(s.most)))
		lines.append("quartiles %s and %s" % (number(s.low), number(s.high)))
	if measure == "wall" and row.paired is not None:
		lines.append("paired ratio %.2f%s" % (row.paired, ", %s" % row.verdict if row.verdict else ""))
	return "\n".join(lines)
