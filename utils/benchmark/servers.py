"""
The servers that machines share a cache by: ours, Redis and nginx, each in a folder of its own, empty at first.

sccache has one for each machine.
"""

import os
import resource
import shutil
import socket
import subprocess
import time
from typing import Dict, List, Optional

from . import session
from .hosts import Host
from .machine import read
from .mistake import Failed
from .service import find_engine

LOOPBACK = "127.0.0.1"
TOKEN = "token-of-the-benchmark"
LISTENS = "0A"  # of a socket in /proc/net/tcp

NGINX = """
daemon off;
%(user)s
worker_processes auto;
worker_rlimit_nofile 20000;
pid %(folder)s/nginx.pid;
error_log %(folder)s/error.log;
events { worker_connections 16384; }
http {
	access_log off;
	client_body_temp_path %(folder)s/bodies;
	proxy_temp_path %(folder)s/proxy;
	fastcgi_temp_path %(folder)s/fastcgi;
	uwsgi_temp_path %(folder)s/uwsgi;
	scgi_temp_path %(folder)s/scgi;
	client_max_body_size 100m;
	keepalive_requests 100000000;
	keepalive_timeout 1h;
	sendfile on;
	server {
		listen %(address)s:%(port)d backlog=4096;
		root %(folder)s/files;
		location / {
			dav_methods PUT DELETE MKCOL;
			create_full_put_path on;
		}
	}
}
"""


class Server:
	"""A server in the foreground, so that it is our child, on a host of its own or on this machine."""

	program = ""
	tells_version = "--version"
	patience = 20.0

	def __init__(self, folder: str, env: Dict[str, str], host: Optional[Host] = None) -> None:
		os.makedirs(folder)
		self.folder = folder
		self.host = host
		self.address = host.address if host else LOOPBACK
		self.port = free_port()
		argv = self.argv()
		self.log = os.path.join(folder, "log")
		with open(self.log, "wb") as log:
			self.child = subprocess.Popen(
				host.enter(argv) if host else argv,
				env=dict(env, **self.variables()),
				stdin=subprocess.DEVNULL,
				stdout=log,
				stderr=subprocess.STDOUT,
				start_new_session=True,
				preexec_fn=allow_many_files,
			)
		self.await_listening()

	@property
	def place(self) -> str:
		return "%s:%d" % (self.address, self.port)

	@classmethod
	def find(cls) -> Optional[str]:
		"""The path of its program, if it is here."""
		return shutil.which(cls.program)

	@classmethod
	def missing(cls) -> Optional[str]:
		"""What this machine lacks for it, with the remedy; None if it is here."""
		return None if cls.find() else "%s is not installed" % cls.program

	def argv(self) -> List[str]:
		raise NotImplementedError

	@property
	def token(self) -> str:
		"""The token that it wants of its clients; empty without one."""
		return ""

	def variables(self) -> Dict[str, str]:
		return {}

	def await_listening(self) -> None:
		"""Wait until it takes connections, which its own host's table of sockets tells."""
		wanted = ":%04X" % self.port
		deadline = time.monotonic() + self.patience
		while True:
			table = [line.split() for line in read("/proc/%d/net/tcp" % self.child.pid).splitlines()[1:]]
			if any(line[1].endswith(wanted) and line[3] == LISTENS for line in table):
				return
			if self.child.poll() is not None or time.monotonic() > deadline:
				self.stop()
				last = read(self.log).strip().splitlines()[-1:] or ["it said nothing"]
				raise Failed("%s did not start: %s" % (self.program, last[0]))
			time.sleep(0.01)

	def pids(self) -> List[int]:
		"""Its processes."""
		return [status.pid for status in session.members(self.child.pid)]

	def stop(self) -> None:
		session.end(self.child.pid)
		self.child.returncode = self.child.returncode or 0  # it has been waited for, which subprocess cannot know


class WafdServe(Server):
	"""Our server."""

	program = "wafd"

	@classmethod
	def find(cls) -> Optional[str]:
		return find_engine()

	@classmethod
	def missing(cls) -> Optional[str]:
		return None if find_engine() else "the engine is not built: run cargo build --release in engine"

	def argv(self) -> List[str]:
		store = os.path.join(self.folder, "store")
		return [self.find() or self.program, "serve", "--listen", self.place, "--store", store]

	@property
	def token(self) -> str:
		"""It needs one only if it listens on more than loopback."""
		return TOKEN if self.host else ""

	def variables(self) -> Dict[str, str]:
		return {"WAFD_SERVE_TOKEN": self.token} if self.token else {}


class Redis(Server):
	"""Redis, which keeps everything in memory, and nothing on the disk."""

	program = "redis-server"
	keeps = "no"

	def argv(self) -> List[str]:
		argv = [self.program, "--bind", self.address, "--port", str(self.port), "--dir", self.folder]
		argv += ["--save", "", "--protected-mode", "no", "--maxclients", "12000"]
		return [*argv, "--appendonly", self.keeps, "--appendfsync", "no"]


class RedisFile(Redis):
	"""Redis, which writes what comes to a file before it acknowledges it: ``kill -9`` loses nothing, as with ours."""

	keeps = "yes"


class Nginx(Server):
	"""nginx with its WebDAV module. Uploads and files are on the same disk."""

	program = "nginx"
	tells_version = "-v"

	@classmethod
	def find(cls) -> Optional[str]:
		return shutil.which(cls.program) or shutil.which(cls.program, path="/usr/sbin:/usr/local/sbin")

	def argv(self) -> List[str]:
		os.makedirs(os.path.join(self.folder, "files"))
		settings = os.path.join(self.folder, "nginx.conf")
		# started by root, its workers would be another user, who cannot enter our folders
		names = {"folder": self.folder, "address": self.address, "port": self.port}
		with open(settings, "w", encoding="utf-8") as f:
			f.write(NGINX % dict(names, user="user root;" if os.geteuid() == 0 else ""))
		return [self.find() or self.program, "-c", settings, "-e", os.path.join(self.folder, "error.log")]


class Sccache(Server):
	"""The one of sccache, which belongs to a single machine; its cache is the folder around its own."""

	program = "sccache"

	def argv(self) -> List[str]:
		return [self.program]

	@property
	def environment(self) -> Dict[str, str]:
		"""The variables with which sccache's clients find it."""
		return {
			"SCCACHE_DIR": os.path.dirname(self.folder),
			"SCCACHE_CONF": os.path.join(self.folder, "none"),
			"SCCACHE_SERVER_PORT": str(self.port),
			"SCCACHE_IDLE_TIMEOUT": "0",
		}

	def variables(self) -> Dict[str, str]:
		return dict(self.environment, SCCACHE_START_SERVER="1", SCCACHE_NO_DAEMON="1")

	def pids(self) -> List[int]:
		"""The server, whose children the compilers are."""
		return [self.child.pid]


def free_port() -> int:
	with socket.socket() as s:
		s.bind((LOOPBACK, 0))
		return s.getsockname()[1]


def allow_many_files() -> None:
	"""Raise the limit of open files to the hard limit."""
	_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
	resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
