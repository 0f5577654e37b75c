"""
Measures what starting a program costs from Python.

	spawn.py WAY PIPED FIRST WARM COUNT MIB RESULT PROGRAM [DAEMON...]

It is ``spawn.c`` for the ways that Python has, with the same arguments (FIRST is not used) and the same answer without
``p99``. The process numbers of daemons that do a part of the work may follow. Their use, and that of
their children, counts, too.
"""

import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import time

PAGE = 4096
PIPE = subprocess.PIPE


def by_subprocess():

	def start(program, piped):
		if not piped:
			return subprocess.call([program])
		process = subprocess.Popen([program], stdout=PIPE, stderr=PIPE)
		process.communicate()
		return process.returncode

	return start, []


def by_waf():
	"""The function that all commands of Waf go through, with its pool of one worker, started before we grow."""
	from waflib import Utils

	Utils.alloc_process_pool(1)
	cwd = os.getcwd()

	def start(program, piped):
		# a new dict each time, as every exec_command makes one, and Waf's own pool adds to it
		kwargs = {"stdout": PIPE, "stderr": PIPE, "cwd": cwd} if piped else {"cwd": cwd}
		return Utils.run_process([program], kwargs, {})[0]

	return start, [worker.pid for worker in Utils.process_pool]


def by_prefork():
	"""Our tool, which has replaced Waf's function."""
	from waflib_extras import prefork

	prefork.install()
	return by_waf()


WAYS = {"subprocess": by_subprocess, "waf": by_waf, "prefork": by_prefork}


def hold_memory(mib):
	"""Memory counts when it was written to: only then has a fork something to copy."""
	memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
	for offset in range(0, mib << 20, PAGE):
		memory[offset] = 1
	return memory


def read_used(others):
	"""The processor time, user and system, of us, of our children that have ended, and of others with theirs; in µs."""
	user = system = 0.0
	for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
		used = resource.getrusage(who)
		user, system = user + used.ru_utime, system + used.ru_stime
	for pid in others:
		with open("/proc/%d/stat" % pid) as f:
			# the name of the program stands in parentheses and may hold anything
			fields = f.read().rpartition(")")[2].split()
		tick = os.sysconf("SC_CLK_TCK")
		user += (int(fields[11]) + int(fields[13])) / tick
		system += (int(fields[12]) + int(fields[14])) / tick
	return user * 1e6, system * 1e6


def run(start, program, piped, count):
	"""Start the program so often; how long each took by the clock, in µs."""
	walls = []
	for _ in range(count):
		started = time.perf_counter()
		status = start(program, piped)
		walls.append((time.perf_counter() - started) * 1e6)
		if status:
			sys.exit("spawn.py: the program ended with the status %d" % status)
	return walls


def main(way, piped, first, warm, count, mib, result, program, *daemons):
	piped, count = int(piped), int(count)
	start, workers = WAYS[way]()
	others = [*workers, *map(int, daemons)]
	memory = hold_memory(int(mib))
	run(start, program, piped, int(warm))
	before = read_used(others)
	walls = run(start, program, piped, count)
	user, system = ((b - a) / count for a, b in zip(before, read_used(others)))
	memory.close()
	with open(result, "w") as f:
		json.dump({"wall": statistics.median(walls), "user": user, "system": system}, f)


main(*sys.argv[1:])
