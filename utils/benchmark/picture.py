"""A curve for each contender as SVG: pure, from a raw record, as the tables of ``report``."""

import math
import os
from typing import Any, Dict, List, Sequence, Tuple
from xml.sax.saxutils import escape

from .record import Record
from .summary import summarize

Curves = Dict[str, List[Tuple[float, float]]]

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 80, 150, 40, 60  # what is around the curves, for words
COLORS = ("#1b6ca8", "#c8553d", "#4f7942", "#8e5ba6", "#b8860b", "#555555")
TEXT = '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>'
LINE = '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>'


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


class Axis:
	"""A logarithmic axis with a mark for each power of ten that is in it or just outside."""

	def __init__(self, values: Sequence[float], start: float, end: float) -> None:
		self.first = math.floor(math.log10(min(values)))
		self.last = max(math.ceil(math.log10(max(values))), self.first + 1)
		self.start, self.end = start, end

	def place(self, value: float) -> float:
		"""Where a value is in the picture."""
		share = (math.log10(value) - self.first) / (self.last - self.first)
		return self.start + share * (self.end - self.start)

	def marks(self) -> List[float]:
		"""The powers of ten."""
		return [10.0**power for power in range(self.first, self.last + 1)]


def draw(heading: str, across: str, up: str, curves: Curves) -> str:
	"""A picture with both axes logarithmic."""
	points = [(x, y) for curve in curves.values() for x, y in curve if x > 0 and y > 0]
	xs = Axis([x for x, _ in points], LEFT, WIDTH - RIGHT)
	ys = Axis([y for _, y in points], HEIGHT - BOTTOM, TOP)
	parts = [
		'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">'
		% (WIDTH, HEIGHT),
		'<rect width="100%" height="100%" fill="white"/>',
		words(LEFT, TOP - 18, "start", heading),
		words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 15, "middle", across),
		words(0, 0, "middle", up, ' transform="translate(20 %d) rotate(-90)"' % ((TOP + HEIGHT - BOTTOM) / 2)),
	]
	for mark in xs.marks():
		parts.append(LINE % (xs.place(mark), TOP, xs.place(mark), HEIGHT - BOTTOM, "#dddddd"))
		parts.append(words(xs.place(mark), HEIGHT - BOTTOM + 18, "middle", "%g" % mark))
	for mark in ys.marks():
		parts.append(LINE % (LEFT, ys.place(mark), WIDTH - RIGHT, ys.place(mark), "#dddddd"))
		parts.append(words(LEFT - 6, ys.place(mark) + 4, "end", "%g" % mark))
	for number, (name, curve) in enumerate(curves.items()):
		parts += draw_curve(name, number, [(xs.place(x), ys.place(y)) for x, y in curve if x > 0 and y > 0])
	return "\n".join([*parts, "</svg>", ""])


def draw_curve(name: str, number: int, places: Sequence[Tuple[float, float]]) -> List[str]:
	"""One contender's curve, its points and its line in the legend."""
	color = COLORS[number % len(COLORS)]
	y = TOP + 12 + 20 * number
	path = " ".join("%.1f,%.1f" % place for place in places)
	parts = ['<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (path, color)]
	parts += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (*place, color) for place in places]
	parts.append(LINE % (WIDTH - RIGHT + 12, y, WIDTH - RIGHT + 32, y, color))
	return [*parts, words(WIDTH - RIGHT + 38, y + 4, "start", name)]


def words(x: float, y: float, anchor: str, text: str, more: str = "") -> str:
	"""A line of text."""
	return TEXT % (x, y, anchor, more, escape(text))


def write_pictures(record: Record, path: str) -> List[str]:
	"""Write the pictures of a record beside it; their names."""
	found: Dict[str, Any] = pictures_of(record, path)
	for name, text in found.items():
		with open(name, "w", encoding="utf-8") as f:
			f.write(text)
	return list(found)
