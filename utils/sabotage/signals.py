"""Processes that are killed, told to end, stopped, or stopped for a while."""

import json
import os
import random
import signal
from typing import Dict, List, Type

from benchmark.session import send

from .fault import Fault, Later, Stage
from .processes import Process

PROGRAMS = ("wafd", "wafcc", "ninja", "python", "pypy", "sh", "dash", "handicap")


def find_engine(stage: Stage) -> List[Process]:
	"""The children of guardians: their own are commands that have not begun yet."""
	found = stage.scene.engines()
	pids = {one.pid for one in found}
	guardians = {one.pid for one in found if one.parent not in pids}
	return [one for one in found if one.parent in guardians]


def find_guardian(stage: Stage) -> List[Process]:
	return stage.scene.engines()[:1]


def find_parked(stage: Stage) -> List[Process]:
	"""Programs that wait for work, as the engine tells them."""
	wanted = set()
	for runtime in stage.scene.runtimes():
		_, said = stage.scene.ask(stage.scene.tools.wafd, "status", "--json", seconds=2, WAFD_RUNTIME_DIR=str(runtime))
		try:
			programs = json.loads(said)["parking"]["programs"]
		except (ValueError, KeyError):
			continue
		wanted |= {parked["pid"] for program in programs for parked in program["parked"]}
	return [one for one in stage.scene.processes() if one.pid in wanted]


def find_wafcc(stage: Stage) -> List[Process]:
	return [one for one in stage.scene.processes() if one.program == "wafcc"]


def find_compiler(stage: Stage) -> List[Process]:
	"""Processes that are neither build systems nor ours, so compilers and their parts, perhaps parked."""
	return [one for one in stage.scene.processes() if not one.program.startswith(PROGRAMS)]


TARGETS = {
	"engine": find_engine,
	"guardian": find_guardian,
	"parked": find_parked,
	"wafcc": find_wafcc,
	"compiler": find_compiler,
}


class Signal(Fault):
	"""A signal to one process of a kind."""

	strikes = 1
	target = ""
	number = signal.SIGKILL
	is_continued = False
	choices = (0.05, 0.3, 1.0)  # seconds of a pause

	def __init__(self, rng: random.Random) -> None:
		super().__init__(rng)
		self.which = rng.random()

	def strike(self, stage: Stage, later: Later) -> bool:
		found = TARGETS[self.target](stage)
		if not found:
			return False
		chosen = found[int(self.which * len(found))]
		if not send(chosen.pid, self.number):
			return False
		stage.note("%s to %d, %s" % (signal.Signals(self.number).name, chosen.pid, chosen.command[:60].strip()))
		if self.number == signal.SIGSTOP:
			if self.is_continued:
				later.append((self.drawn, lambda: send(chosen.pid, signal.SIGCONT) and None))
			else:
				stage.scene.stopped.append(chosen.pid)
		return True

	def end(self, stage: Stage) -> None:
		for pid in stage.scene.stopped:
			send(pid, signal.SIGCONT)


class BuildSignal(Fault):
	"""A signal to the build itself, which is then run again."""

	strikes = 1
	may_leave_links = True
	may_fail = True
	may_leave_beside = True
	number = signal.SIGKILL

	def strike(self, stage: Stage, later: Later) -> bool:
		programs = ("ninja",) if stage.builder.system == "ninja" else ("python", "pypy")
		found = [one for one in stage.scene.processes() if one.program.startswith(programs)]
		ours = [one for one in found if one.parent == os.getpid()]
		if not ours:
			return False
		if self.number == signal.SIGINT:  # as a terminal does it
			os.killpg(ours[0].pid, self.number)
		else:
			send(ours[0].pid, self.number)
		stage.note("%s to the build" % signal.Signals(self.number).name)
		return True


class Massacre(Fault):
	"""Guardian, engine and parked programs are all killed, in any order."""

	name = "kill-all"
	about = "guardian, engine and parked programs killed, in random order"
	strikes = 1
	may_leave_temporary = True
	may_leave_beside = True

	def strike(self, stage: Stage, later: Later) -> bool:
		found = [*stage.scene.engines(), *find_parked(stage)]
		if not found:
			return False
		self.rng.shuffle(found)
		for one in found:
			send(one.pid, signal.SIGKILL)
		stage.note("SIGKILL to %s" % " ".join("%s:%d" % (one.program, one.pid) for one in found))
		return True


def make_kinds() -> List[Type[Fault]]:
	verbs = {
		"kill": ("killed", signal.SIGKILL, False),
		"end": ("told to end", signal.SIGTERM, False),
		"stop": ("stopped for good", signal.SIGSTOP, False),
		"pause": ("stopped for a while", signal.SIGSTOP, True),
	}
	wanted: Dict[str, str] = {
		"engine": "kill end stop pause",
		"guardian": "kill end stop pause",
		"parked": "kill end stop pause",
		"wafcc": "kill end pause",
		"compiler": "kill end pause",
	}
	kinds: List[Type[Fault]] = [Massacre]
	for target, names in wanted.items():
		for verb in names.split():
			told, number, is_continued = verbs[verb]
			# a plain build fails, too, if a process ends that it waits for
			is_own = target in ("wafcc", "compiler") and verb != "pause"
			facts = {
				"name": "%s-%s" % (verb, target),
				"about": "%s %s" % (target, told),
				"target": target,
				"number": number,
				"is_continued": is_continued,
				"may_fail": is_own,
				"may_leave": is_own,
				"may_leave_temporary": target in ("engine", "guardian", "parked") and verb != "pause",
				# of `ar`
				"may_leave_beside": target in ("engine", "guardian", "parked") and verb != "pause",
			}
			if target == "wafcc":
				facts["systems"] = ("ninja",)
			kinds.append(type("Signal", (Signal,), facts))
	for verb, number in (("kill", signal.SIGKILL), ("end", signal.SIGTERM), ("interrupt", signal.SIGINT)):
		name = "%s-build" % verb
		about = "the build gets %s, and is run again" % number.name
		kinds.append(type("BuildSignal", (BuildSignal,), {"name": name, "about": about, "number": number}))
	return kinds


KINDS = make_kinds()
