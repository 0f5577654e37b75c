"""
A build as Trace Events, which ``chrome://tracing`` and Perfetto open.

Each build is a process, each lane a thread of it: slots, a cluster's commands, threads, the cache, Waf's own thread
and the longest chain. Memory, processors and idle slots are counters.
"""

import json
from typing import Dict, Iterator, List

from . import analysis, idle

MAIN_LANE = 1
CHAIN_LANE = 2
FIRST_LANE = 10
MICRO = 1e6
MOST = 20000
"""At most so many stretches of idle slots, and as many of Waf's own thread, of which the longest are taken."""
encode = json.encoder.encode_basestring_ascii  # quicker than json.dumps, for texts only
TITLES = {"slot": "slot %d", "thread": "thread %d", "cluster": "cluster %d", "cache": "cache"}


def make_trace(builds: List["analysis.Built"], origin: float) -> Iterator[str]:
	"""The parts of the file: an event per line."""
	about = builds[-1].about
	other = json.dumps({"waf": about["waf"], "python": about["python"], "arguments": about["arguments"]})
	yield '{"displayTimeUnit":"ms","otherData":%s,"traceEvents":[' % other
	separator = "\n"
	for number, build in enumerate(builds, 1):
		for line in Writer(build, number, origin).write():
			yield separator
			yield line
			separator = ",\n"
	yield "\n]}\n"


class Writer:
	"""The events of one build."""

	def __init__(self, build: "analysis.Built", number: int, origin: float) -> None:
		self.build = build
		self.number = number
		self.origin = origin
		self.lines: List[str] = []
		self.texts: Dict[str, str] = {}

	def write(self) -> List[str]:
		self.write_names()
		for row in self.build.rows:
			self.write_row(row, FIRST_LANE + row.lane)
		self.write_main()
		self.write_chain()
		self.write_counters()
		return self.lines

	def micro(self, at: float) -> float:
		return round((at - self.origin) * MICRO, 1)

	def quote(self, text: str) -> str:
		found = self.texts.get(text)
		if found is None:
			found = self.texts[text] = encode(text)
		return found

	def put(self, **event: object) -> None:
		self.lines.append(json.dumps(dict(event, pid=self.number), separators=(",", ":")))

	def name_thread(self, lane: int, name: str) -> None:
		self.put(ph="M", name="thread_name", tid=lane, args={"name": name})
		self.put(ph="M", name="thread_sort_index", tid=lane, args={"sort_index": lane})

	def write_names(self) -> None:
		build = self.build
		self.put(ph="M", name="process_name", tid=0, args={"name": "waf %s: %s" % (build.name, build.outcome)})
		self.name_thread(MAIN_LANE, "Waf's own thread")
		self.name_thread(CHAIN_LANE, "longest chain")
		for number, lane in enumerate(build.lanes):
			title = TITLES[lane.kind]
			self.name_thread(FIRST_LANE + number, title % lane.number if "%" in title else title)

	def write_row(self, row: "analysis.Row", lane: int) -> None:
		"""Write an event without ``json``, as there may be a hundred thousand of them."""
		start = self.micro(row.start)
		kind = '"X","dur":%.1f' % (self.micro(row.end) - start)
		if row.kind == analysis.HIT:
			kind = '"i","s":"t"'
		more = ""
		if row.way or row.kind == analysis.HIT:
			more = ',"queued_ms":%.3f,"processor_ms":%.3f,"peak_kib":%d,"status":%d' % (
				row.queued * 1e3,
				row.processor * 1e3,
				row.peak,
				row.code,
			)
		if row.words:
			more += ',"why":' + self.quote(row.words)
		if row.place:
			more += ',"where":' + self.quote(row.place)
		self.lines.append(
			'{"ph":%s,"pid":%d,"tid":%d,"ts":%.1f,"name":%s,"cat":%s,"args":{"outcome":%s,"target":%s%s}}'
			% (
				kind,
				self.number,
				lane,
				start,
				encode(row.name),
				self.quote(row.what or "task"),
				self.quote(analysis.KINDS[row.kind]),
				self.quote(row.target),
				more,
			)
		)

	def write_main(self) -> None:
		main = self.build.main
		if len(main) > MOST:
			bound = sorted(end - start for start, end, _ in main)[-MOST]
			main = [each for each in main if each[1] - each[0] > bound]
		for start, end, doing in main:
			at = self.micro(start)
			self.lines.append(
				'{"ph":"X","pid":%d,"tid":%d,"ts":%.1f,"dur":%.1f,"name":"%s","cat":"waf"}'
				% (self.number, MAIN_LANE, at, self.micro(end) - at, idle.MAIN[doing])
			)

	def write_chain(self) -> None:
		for number in self.build.chain:
			row = self.build.rows[number]
			at = self.micro(row.start)
			duration = round(self.micro(row.end) - at, 1)
			self.put(ph="X", tid=CHAIN_LANE, ts=at, dur=duration, name=row.name, cat="longest chain")

	def write_counters(self) -> None:
		for sample in self.build.samples:
			at = self.micro(sample.at)
			self.put(
				ph="C", tid=0, ts=at, name="memory MiB", args={"machine": round(sample.used), "waf": round(sample.own)}
			)
			self.put(ph="C", tid=0, ts=at, name="busy processors", args={"busy": round(sample.busy, 2)})
		levels: Dict[float, float] = {}
		segments = idle.thin(self.build.idle.segments, self.build.begun, self.build.ended, MOST)
		for begin, end, _, _, _ in segments:
			levels.setdefault(begin, 0)
			levels.setdefault(end, 0)
		for begin, _, slots, _, _ in segments:
			levels[begin] += slots
		for at in sorted(levels):
			self.put(ph="C", tid=0, ts=self.micro(at), name="idle slots", args={"idle": round(levels[at], 2)})
