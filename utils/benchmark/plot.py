"""
Curves as SVG, both axes logarithmic. Pure.

A plot in a page has the page's colors, light or dark. A picture is a file of its own.
"""

import math
import os
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple
from xml.sax.saxutils import escape, quoteattr

from .figures import Group, Row, Who
from .ledger import Record, write_text
from .summary import Summary, summarize
from .table import number

COLORS = 12  # that the page has
DODGE = 5.0  # between lanes of one size, so that none hides another
LEAST = 0.5  # of a power of ten that an axis shows
PAD = 0.06  # of an axis that is left free at both ends
STEPS = ((1.0, (1, 1.5, 2, 3, 5, 7)), (2.2, (1, 2, 5)), (math.inf, (1,)))
"""The marks within each power of ten, on axes of up to so many of them."""


class Scale:
	"""A logarithmic axis that ends where the values do, with more marks the shorter it is."""

	def __init__(self, values: Iterable[float], start: float, end: float) -> None:
		logarithms = sorted(math.log10(value) for value in values)
		first, last = logarithms[0], logarithms[-1]
		if last - first < LEAST:
			first, last = (first + last - LEAST) / 2, (first + last + LEAST) / 2
		pad = PAD * (last - first)
		self.first, self.last = first - pad, last + pad
		self.start, self.end = start, end

	def place(self, value: float) -> float:
		"""The position of a value in the picture."""
		share = (math.log10(value) - self.first) / (self.last - self.first)
		return self.start + share * (self.end - self.start)

	def marks(self) -> List[float]:
		steps = next(steps for length, steps in STEPS if self.last - self.first <= length)
		powers = range(math.floor(self.first), math.ceil(self.last) + 1)
		found = [step * 10.0**power for power in powers for step in steps]
		return [mark for mark in found if self.first <= math.log10(mark) <= self.last]


class Frame(NamedTuple):
	"""A picture, and what is left free around its curves, for words."""

	width: int
	height: int
	left: int
	right: int
	top: int
	bottom: int

	def across(self, values: Iterable[float]) -> Scale:
		return Scale(values, self.left, self.width - self.right)

	def up(self, values: Iterable[float]) -> Scale:
		return Scale(values, self.height - self.bottom, self.top)

	def grid(self, xs: Scale, ys: Scale, columns: Dict[float, str], about: str) -> str:
		"""The lines behind everything, with their numbers: across those that are given."""
		parts = []
		end = -99.0
		base, right = self.height - self.bottom, self.width - self.right
		for value, text in sorted(columns.items()):
			x = xs.place(value)
			parts.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>' % (x, self.top, x, base))
			if x - end > 45:
				parts.append(label(x, base + 16, "middle", text))
				end = x
		for mark in ys.marks():
			y = ys.place(mark)
			parts.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>' % (self.left, y, right, y))
			parts.append(label(self.left - 6, y + 4, "end", "%g" % mark))
		parts.append(label((self.left + right) / 2, self.height - 6, "middle", about))
		return "\n".join(['<g class="grid">', *parts, "</g>"])


def label(x: float, y: float, anchor: str, text: str, more: str = "") -> str:
	return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' % (x, y, anchor, more, escape(text))


def line_through(places: Iterable[Tuple[float, float]]) -> str:
	return '<polyline points="%s"/>' % " ".join("%.1f,%.1f" % place for place in places)


# ---- plots of a page

PLOT = Frame(400, 300, 48, 12, 12, 40)


class Style(NamedTuple):
	"""How a lane is drawn: a color for each contender, hollow and dashed for all interpreters but the first."""

	color: int
	turn: int

	@property
	def classes(self) -> str:
		return "k%d i%d" % (self.color, min(self.turn, 2))


def styles_of(lanes: Sequence[Who]) -> Dict[Who, Style]:
	colors = {name: n % COLORS for n, name in enumerate(dict.fromkeys(who.contender for who in lanes))}
	turns = {name: n for n, name in enumerate(dict.fromkeys(who.interpreter for who in lanes if who.interpreter))}
	return {who: Style(colors[who.contender], turns.get(who.interpreter, 0)) for who in lanes}


def plot(group: Group, measure: str, unit: str, styles: Dict[Who, Style]) -> str:
	"""The medians of a measure against the number of tasks, with bars from min to max and boxes between quartiles."""
	rows = [row for row in group.rows if is_drawn(row, measure)]
	if not rows:
		return ""
	xs = PLOT.across(row.tasks for row in rows)
	ys = PLOT.up(v for row in rows for v in (row.spreads[measure].least, row.spreads[measure].most))
	name = "%s: %s in %s against tasks" % (group.title, measure, unit)
	parts = ['<svg viewBox="0 0 %d %d" role="group" aria-label=%s>' % (*PLOT[:2], quoteattr(name))]
	parts.append(PLOT.grid(xs, ys, {row.tasks: "{:,}".format(row.tasks) for row in rows}, "tasks"))
	lanes = list(dict.fromkeys(row.who for row in rows))
	for turn, who in enumerate(lanes):
		aside = (turn - (len(lanes) - 1) / 2) * min(DODGE, 40 / len(lanes))
		places = [(xs.place(row.tasks) + aside, row) for row in rows if row.who == who]
		parts.append('<g class="lane %s" data-lane=%s>' % (styles[who].classes, quoteattr(who.text)))
		parts.append(line_through((x, ys.place(row.spreads[measure].median)) for x, row in places))
		parts += [point(x, row, measure, unit, ys) for x, row in places]
		parts.append("</g>")
	return "\n".join([*parts, "</svg>"])


def is_drawn(row: Row, measure: str) -> bool:
	"""Tell whether a row has a point. A peak without the processes of a daemon would mislead."""
	return measure in row.spreads and row.spreads[measure].least > 0 and not (measure == "peak" and row.is_partial)


def point(x: float, row: Row, measure: str, unit: str, ys: Scale) -> str:
	"""One lane in one size. Pointing at it shows its numbers."""
	s = row.spreads[measure]
	least, low, mid, high, most = (ys.place(v) for v in (s.least, s.low, s.median, s.high, s.most))
	parts = ['<g class="point" tabindex="0" role="img" aria-label=%s>' % quoteattr(tip(row, s, unit, measure))]
	if s.count > 1:
		parts.append('<line class="range" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (x, least, x, most))
		parts.append('<rect x="%.1f" y="%.1f" width="5" height="%.1f"/>' % (x - 2.5, high, max(low - high, 0.5)))
	parts.append('<circle class="dot" cx="%.1f" cy="%.1f" r="3.5"/></g>' % (x, mid))
	return "".join(parts)


def tip(row: Row, s: Summary, unit: str, measure: str) -> str:
	lines = ["%s, %s tasks" % (row.who.text, "{:,}".format(row.tasks))]
	lines.append("median %s %s of %d run%s" % (number(s.median), unit, s.count, "s" if s.count > 1 else ""))
	if s.count > 1:
		lines.append("min %s, max %s" % (number(s.least), number(s.most)))
		lines.append("quartiles %s and %s" % (number(s.low), number(s.high)))
	if measure == "wall" and row.paired is not None:
		lines.append("paired ratio %.2f%s" % (row.paired, ", %s" % row.verdict if row.verdict else ""))
	return "\n".join(lines)


# ---- pictures that stand beside a record

Curves = Dict[str, List[Tuple[float, float]]]

PICTURE = Frame(760, 440, 80, 150, 40, 50)
PAINT = ("#1b6ca8", "#c8553d", "#4f7942", "#8e5ba6", "#b8860b", "#555555")
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>.grid line { stroke: #ddd } polyline { fill: none; stroke: currentColor; stroke-width: 2 }</style>
<rect width="100%%" height="100%%" fill="white"/>"""


def curves_of(record: Record, scenario: str, measure: str) -> Curves:
	"""The medians of a measure against another one, by contender, interpreter and kind of part, where they differ."""
	about = record["scenarios"][scenario]
	runs = [run for run in record["runs"] if run["scenario"] == scenario and measure in run["values"]]
	are_several = len({run.get("interpreter") for run in runs}) > 1
	values: Dict[str, Dict[float, List[float]]] = {}
	for run in runs:
		words = (run["contender"], run["interpreter"] if are_several else "", run.get("part", "").rpartition(", ")[0])
		points = values.setdefault(" ".join(filter(None, words)), {})
		points.setdefault(run["values"][about["against"]], []).append(run["values"][measure])
	return {name: [(x, summarize(ys).median) for x, ys in sorted(points.items())] for name, points in values.items()}


def draw(heading: str, across: str, up: str, curves: Curves) -> str:
	"""A picture, with its legend beside the curves."""
	shown = {name: [(x, y) for x, y in curve if x > 0 and y > 0] for name, curve in curves.items()}
	xs = PICTURE.across(x for curve in shown.values() for x, _ in curve)
	ys = PICTURE.up(y for curve in shown.values() for _, y in curve)
	turned = ' transform="translate(20 %d) rotate(-90)"' % (PICTURE.height / 2)
	parts = [HEAD % PICTURE[:2], label(PICTURE.left, PICTURE.top - 18, "start", heading)]
	parts += [label(0, 0, "middle", up, turned), PICTURE.grid(xs, ys, {x: "%g" % x for x in xs.marks()}, across)]
	edge = PICTURE.width - PICTURE.right
	for turn, (name, curve) in enumerate(shown.items()):
		places = [(xs.place(x), ys.place(y)) for x, y in curve]
		y = PICTURE.top + 12 + 20 * turn
		parts += ['<g color="%s" fill="currentColor">' % PAINT[turn % len(PAINT)], line_through(places)]
		parts += ['<circle cx="%.1f" cy="%.1f" r="3"/>' % place for place in places]
		parts += [line_through([(edge + 12, y), (edge + 32, y)]), "</g>", label(edge + 38, y + 4, "start", name)]
	return "\n".join([*parts, "</svg>", ""])


def pictures_of(record: Record, path: str) -> Dict[str, str]:
	"""The pictures of a record that is kept in this file, by the files in which they are kept."""
	found = {}
	for name, about in record["scenarios"].items():
		first = about["measures"][0][0]
		for measure, unit in about["measures"] if about.get("against") else ():
			curves = curves_of(record, name, measure) if measure in (about.get("drawn") or [first]) else {}
			if curves:
				heading, words = "%s: %s" % (name, about["title"]), "%s, %s" % (measure, unit)
				file = "-".join((os.path.splitext(path)[0], name, *([] if measure == first else [measure])))
				found[file + ".svg"] = draw(heading, about["against"], words, curves)
	return found


def write_pictures(record: Record, path: str) -> List[str]:
	"""Write the pictures of a record beside it; their names."""
	found: Dict[str, Any] = pictures_of(record, path)
	for name, text in found.items():
		write_text(text, name)
	return list(found)
