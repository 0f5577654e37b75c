"""
Runs BuildGrid's command `bgd`, and leaves out a check that takes more than half of a server's start.

BuildGrid checks its settings against schemas that come with it. At each start, it first checks these schemas.

What remains are imports, mostly. With the number of a socket as its only argument, this program does them once, and
then runs each command that it is asked for in a fork (`forks.py` asks).
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import sys

import jsonschema
from buildgrid.server.app import cli

MAXIMUM = 1 << 20  # bytes of a request
COMMANDS = ("cas", "execute", "migrate", "server")


def serve(channel: socket.socket) -> int:
	"""Fork for each request. In the fork: be the command, and return the descriptor for its status, or -1."""
	for name in COMMANDS:
		importlib.import_module("buildgrid.server.app.commands.cmd_" + name)
	while True:
		message, fds, _, _ = socket.recv_fds(channel, MAXIMUM, 3)
		with contextlib.suppress(ChildProcessError):
			while os.waitpid(-1, os.WNOHANG)[0]:
				pass
		if not message:
			sys.exit()
		pid = os.fork()
		if not pid:
			channel.close()
			request = json.loads(message)
			sys.argv[1:] = request["words"]
			os.chdir(request["folder"])
			for number, fd in enumerate(fds[:2], 1):
				os.dup2(fd, number)
				os.close(fd)
			return fds[2] if len(fds) > 2 else -1
		# nothing waits for the fork before the next request, so that this is its number in any case
		fds.append(os.pidfd_open(pid))
		try:
			socket.send_fds(channel, [b"%d" % pid], fds[-1:])
		except BrokenPipeError:  # it was not waited for, so nothing will end the command
			os.kill(pid, signal.SIGKILL)
		for fd in fds:
			os.close(fd)


jsonschema.Draft202012Validator.check_schema = lambda *args, **kw: None  # the class that BuildGrid uses
report = serve(socket.socket(fileno=int(sys.argv[1]))) if len(sys.argv) == 2 else -1
status = 1
try:
	status = cli(standalone_mode=True)
except SystemExit as e:
	status = e.code
finally:
	if report >= 0:
		os.write(report, b"%d" % (status if isinstance(status, int) else status is not None))
		os.close(report)
sys.exit(status)
