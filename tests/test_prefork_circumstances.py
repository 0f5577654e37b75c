"""The circumstances of commands that the engine runs: they are those of the build that sent them."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
from typing import Any, Callable, Iterator, List

import pytest
from prefork_probes import BOTH, DEVNULL, PATIENT, PIPE, SHELL, read_processors
from waflib import Utils

from waflib_extras import prefork

pytestmark = pytest.mark.usefixtures("own_process")

DESCRIBE = """
umask; ulimit -a; nice; cat /proc/self/oom_score_adj /proc/self/cgroup /proc/self/coredump_filter
ls /proc/self/fd; chrt -p $$ | sed s/$$//
"""
# without a shell, which would change the signals
LIBC_SIGNALS = (32, 33)  # of glibc's own, which its posix_spawn ignores in children; Python 3.13 uses that at times
STATUS = ["grep", "-E", "Sig(Ign|Blk)|Cpus_allowed_list|NoNewPrivs|Cap|Groups|[UG]id", "/proc/self/status"]


def describe(run: Callable[..., Any]) -> List[Any]:
	"""The circumstances in which commands run."""
	status = run(STATUS, BOTH)[1].decode()
	ignored = int(re.findall(r"SigIgn:\s*(\w+)", status)[0], 16)
	return [
		run(DESCRIBE, SHELL),
		re.sub(r"SigIgn:.*\n", "", status),
		[n for n in range(1, 65) if ignored >> (n - 1) & 1 and n not in LIBC_SIGNALS],
	]


@contextlib.contextmanager
def other_umask() -> Iterator[None]:
	old = os.umask(0o027)
	yield
	os.umask(old)


@contextlib.contextmanager
def other_limit() -> Iterator[None]:
	old = resource.getrlimit(resource.RLIMIT_NOFILE)
	resource.setrlimit(resource.RLIMIT_NOFILE, (200, old[1]))
	yield
	resource.setrlimit(resource.RLIMIT_NOFILE, old)


def set_processors(*numbers: int) -> None:
	wanted = ",".join(map(str, numbers))
	subprocess.run(["taskset", "-apc", wanted, str(os.getpid())], stdout=DEVNULL, check=True, timeout=PATIENT)


@contextlib.contextmanager
def other_processors() -> Iterator[None]:
	old = read_processors()
	set_processors(old[-1])
	yield
	set_processors(*old)


@contextlib.contextmanager
def ignored_signal() -> Iterator[None]:
	old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
	yield
	signal.signal(signal.SIGUSR1, old)


@contextlib.contextmanager
def blocked_signal() -> Iterator[None]:
	old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
	yield
	signal.pthread_sigmask(signal.SIG_SETMASK, old)


@contextlib.contextmanager
def nothing_else() -> Iterator[None]:
	yield


@pytest.mark.parametrize(
	"change", [nothing_else, other_umask, other_limit, other_processors, ignored_signal, blocked_signal]
)
def test_commands_run_in_the_clients_own_circumstances(change: Callable[[], Any], hook: prefork.Prefork) -> None:
	"""Mask, limits, priority, processors, signals, groups and descriptors are the build's, also after a change."""
	before = describe(Utils.run_regular_process)
	assert describe(hook.run_process) == before
	with change():
		expected = describe(Utils.run_regular_process)
		found = describe(hook.run_process)
	assert found == expected
	assert (found != before) == (change is not nothing_else)
	assert describe(hook.run_process) == before
	assert not hook.reasons


def test_niceness_is_kept(waf: Any, project: Any) -> None:
	"""Commands of a build that was started with nice are nice, though the engine is not."""
	folder = project(
		{"wscript": "def options(opt):\n\topt.load('prefork')\ndef show(ctx):\n\tprint(ctx.cmd_and_log('nice'))\n"}
	)
	assert waf(folder, "show").stdout.split()[0] == str(os.nice(0))
	script = ["nice", "-n", "3", sys.executable, "-m", "waflib_extras.launcher", "show"]
	done = subprocess.run(script, cwd=folder, stdout=PIPE, check=True, timeout=PATIENT)
	assert done.stdout.split()[0] == b"%d" % (os.nice(0) + 3)
