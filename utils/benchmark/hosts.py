"""
Hosts on this machine: network namespaces, and the line between them.

The program ``wire``, an example of the engine, makes them and carries their packets; a line of it has a delay, loses
packets, and can be cut. Everything is gone when it ends, together with what still runs on the hosts.
"""

import json
import os
import shutil
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from .mistake import Failed
from .service import find_example, missing_example

WIRE = "wire"
DEVICE = "/dev/net/tun"
ENTER = "nsenter"
PATIENCE = 10.0


class Host(NamedTuple):
	"""One host: its address, and the namespace in which programs run that run there."""

	number: int
	address: str
	namespace: str

	def enter(self, argv: Sequence[str]) -> List[str]:
		"""A command as it runs on this host, in the same process."""
		return [ENTER, "--net=" + self.namespace, *argv]


def missing_hosts() -> Optional[str]:
	"""What this machine lacks for hosts of its own, with the remedy."""
	if os.geteuid() != 0:
		return "network namespaces are made by root only"
	if not os.path.exists(DEVICE):
		return "there is no %s: modprobe tun" % DEVICE
	if not shutil.which(ENTER):
		return "%s is not installed" % ENTER
	return missing_example(WIRE)


class Hosts:
	"""Some hosts on one line, which is perfect at first."""

	def __init__(self, count: int) -> None:
		pipe = subprocess.PIPE
		argv = [find_example(WIRE) or WIRE, str(count)]
		self.wire = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
		told = self.hear()
		self.hosts = [Host(number, one["address"], one["namespace"]) for number, one in enumerate(told)]

	def hear(self) -> Any:
		"""The next answer of the wire."""
		line = self.wire.stdout.readline()
		if not line:
			said = self.wire.stderr.read().decode("utf-8", "replace").strip()
			self.close()
			raise Failed("%s: %s" % (WIRE, said))
		return json.loads(line.decode())

	def say(self, *words: object) -> Dict[str, int]:
		"""Give the wire an order, such as ``cut 1``; what it answers, mostly the packets carried and lost so far."""
		self.wire.stdin.write((" ".join(map(str, words)) + "\n").encode())
		self.wire.stdin.flush()
		return dict(self.hear())

	def delay(self, seconds: float) -> None:
		self.say("delay", round(seconds * 1e6))

	def turns(self, host: Host) -> int:
		"""How often a host has sent data after data had come, so that it may have waited for it."""
		return self.say("turns", host.number)["turns"]

	def close(self) -> None:
		"""Remove the hosts. Programs that run there lose their line."""
		self.wire.stdin.close()
		try:
			self.wire.wait(PATIENCE)
		except subprocess.TimeoutExpired:
			self.wire.kill()
			self.wire.wait()
		self.wire.stdout.close()
		self.wire.stderr.close()
