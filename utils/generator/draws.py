"""Reproducible numbers."""

from typing import Dict, List


class Draws:
	"""
	Reproducible numbers: the splitmix64 sequence, started from the given integers.

	Why not ``random``: only its ``random()`` is promised to stay as it is; ``sample`` and ``choice`` have changed. And
	every file has a sequence of its own, so that its text does not depend on which files were planned before it.
	"""

	MASK = (1 << 64) - 1

	def __init__(self, *start: int) -> None:
		self.state = 0
		for number in start:
			self.state = self.next() ^ number

	def next(self) -> int:
		mask = self.MASK
		self.state = (self.state + 0x9E3779B97F4A7C15) & mask
		bits = self.state
		bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & mask
		bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & mask
		return bits ^ (bits >> 31)

	def below(self, bound: int) -> int:
		"""One of 0 .. bound - 1 (the bias of at most bound / 2**64 is of no account here)"""
		return (self.next() * bound) >> 64

	def between(self, lowest: int, highest: int) -> int:
		return lowest + self.below(highest - lowest + 1)

	def sample(self, bound: int, count: int) -> List[int]:
		"""`count` different numbers below `bound`: the first steps of a shuffle that keeps only the places it moved"""
		moved: Dict[int, int] = {}
		drawn = []
		for place in range(count):
			other = self.between(place, bound - 1)
			drawn.append(moved.get(other, other))
			moved[other] = moved.get(place, place)
		return drawn
