"""The statistics of a table, as pure functions of the measured values."""

import statistics
from typing import Dict, NamedTuple, Optional, Sequence


class Summary(NamedTuple):
	"""What repeated measurements of one thing come down to; the middle half of them lies between low and high."""

	median: float
	least: float
	low: float
	high: float
	most: float
	count: int

	@property
	def spread(self) -> Optional[float]:
		"""How far the measurements lie apart, relative to the median; none of a median of zero."""
		return (self.most - self.least) / self.median if self.median else None


def summarize(values: Sequence[float]) -> Summary:
	"""Reduce at least one measured value to its summary."""
	low = high = values[0]
	if len(values) > 1:
		low, _, high = statistics.quantiles(values, n=4, method="inclusive")
	return Summary(statistics.median(values), min(values), low, high, max(values), len(values))


def ratio(value: float, base: float) -> Optional[float]:
	"""How many times the base a value is; nothing can be said of a base of zero."""
	return value / base if base else None


def paired_ratio(values: Dict[int, float], base: Dict[int, float]) -> Optional[float]:
	"""
	The median of the ratios within each repetition that both have.

	What the machine does besides changes slowly: two builds of one repetition stand close together in time and meet
	the same load, which their ratio therefore leaves out, where the ratio of two medians may compare a quiet hour
	with a busy one.
	"""
	ratios = [values[n] / base[n] for n in values if base.get(n)]
	return statistics.median(ratios) if ratios else None
