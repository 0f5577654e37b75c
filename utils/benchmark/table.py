"""A table as plain text: aligned columns, bold only where a person looks at it."""

from typing import List, Optional, Sequence

NOTHING = "-"


def number(value: Optional[float]) -> str:
	"""Write a measured value with about three digits that mean something."""
	if value is None:
		return NOTHING
	digits = next((digits for digits, limit in ((4, 0.1), (3, 10), (2, 100)) if abs(value) < limit), 1)
	return "%.*f" % (digits, value)


def percent(value: Optional[float]) -> str:
	return NOTHING if value is None else "%.0f %%" % (100 * value)


def times(value: Optional[float]) -> str:
	return NOTHING if value is None else "%.2f" % value


def layout(head: Sequence[str], rows: Sequence[Sequence[str]], words: int, bold: bool = False) -> str:
	"""Align the rows under their head: the first columns, as many as ``words``, to the left, numbers to the right."""
	widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

	def line(cells: Sequence[str]) -> str:
		padded = [c.ljust(w) if i < words else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))]
		return ("  " + "  ".join(padded)).rstrip()

	lines: List[str] = [emphasize(line(head), bold)]
	lines.extend(line(row) for row in rows)
	return "\n".join(lines)


def emphasize(text: str, bold: bool) -> str:
	return "\033[1m%s\033[0m" % text if bold else text
