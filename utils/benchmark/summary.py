"""The statistics of a table, as pure functions of the measured values."""

import statistics
from typing import Dict, NamedTuple, Optional, Sequence


class Summary(NamedTuple):
	"""A summary of repeated measurements. Half of them lie between low and high."""

	median: float
	least: float
	low: float
	high: float
	most: float
	count: int

	@property
	def spread(self) -> Optional[float]:
		"""The range of the measurements, relative to the median; None if that is zero."""
		return (self.most - self.least) / self.median if self.median else None


def summarize(values: Sequence[float]) -> Summary:
	low = high = values[0]
	if len(values) > 1:
		low, _, high = statistics.quantiles(values, n=4, method="inclusive")
	return Summary(statistics.median(values), min(values), low, high, max(values), len(values))


def ratio(value: float, base: float) -> Optional[float]:
	"""A value as a multiple of the base; None if that is zero."""
	return value / base if base else None


def paired_ratio(values: Dict[int, float], base: Dict[int, float]) -> Optional[float]:
	"""
	The median of the ratios within each repetition that both have.

	The other load of a machine changes slowly. Two builds of one repetition are close together in time and meet the
	same load, so their ratio does not depend on it. The ratio of two medians may compare a quiet hour with a busy one.
	"""
	ratios = [values[n] / base[n] for n in values if base.get(n)]
	return statistics.median(ratios) if ratios else None
