"""PostgreSQL for one campaign or one session of tests, and BuildGrid's tables in it."""

import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import List, Optional

from benchmark.mistake import Failed

from .forks import READY

PATIENCE = 60  # seconds
USER = "postgres"  # of Debian's package; PostgreSQL does not run as root
OWNER = "buildgrid"  # of the databases
TEMPLATE = "with_tables"
BUILDGRID = shutil.which("bgd", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))


def find_programs() -> Optional[str]:
	"""The folder of PostgreSQL's programs, which Debian does not put into PATH."""
	found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
	program = found[-1] if found else shutil.which("initdb")
	return os.path.dirname(program) if program else None


def missing() -> str:
	"""What this machine lacks for a cluster, with the remedy; empty if all is here."""
	if sys.version_info < (3, 11):
		return "BuildGrid needs Python 3.11 or newer"
	if not BUILDGRID:
		return "pip install 'buildgrid[database]==0.4.4' psycopg2-binary 'SQLAlchemy<2.1'"
	if not find_programs():
		return "apt-get install postgresql"
	if not shutil.which("openssl"):
		return "apt-get install openssl"
	return "" if os.geteuid() or shutil.which("setpriv") else "apt-get install util-linux"


def as_other_user() -> List[str]:
	"""What is before a command of PostgreSQL's so that it does not run as root; the command keeps its process."""
	return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []


class Database:
	"""PostgreSQL in a folder of its own, which is reached by a Unix socket only. Nothing is synced to the disk."""

	def __init__(self) -> None:
		self.programs = find_programs() or ""
		# short, as a socket's path has about a hundred bytes
		self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pg-"))
		self.process: Optional[subprocess.Popen[bytes]] = None
		self.count = 0

	def ask(self, program: str, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
		"""Run one of its small programs."""
		command = [*as_other_user(), os.path.join(self.programs, program), *words]
		done = subprocess.run(
			command, cwd=self.folder, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False
		)
		if check and done.returncode:
			raise Failed(f"{program} ended with status {done.returncode}", done.stdout + done.stderr)
		return done

	def make(self) -> None:
		if os.geteuid() == 0:
			shutil.chown(self.folder, USER, USER)
		words = ["--auth=trust", f"--username={OWNER}", "--encoding=UTF8", "--locale=C", "--no-sync"]
		self.ask("initdb", *words, "--pgdata", str(self.folder / "data"))

	def start(self) -> None:
		settings = [
			"listen_addresses=",
			f"unix_socket_directories={self.folder}",
			"fsync=off",
			"full_page_writes=off",
			"synchronous_commit=off",
			"max_connections=400",
			"shared_buffers=32MB",
		]
		command = [*as_other_user(), os.path.join(self.programs, "postgres"), "-D", str(self.folder / "data")]
		with open(self.folder.with_suffix(".log"), "ab") as log:
			self.process = subprocess.Popen(
				[*command, *(word for each in settings for word in ("-c", each))],
				cwd=self.folder,
				stdin=subprocess.DEVNULL,
				stdout=log,
				stderr=log,
			)
		deadline = time.monotonic() + PATIENCE
		while self.ask("pg_isready", "-h", str(self.folder), "-U", OWNER, check=False).returncode:
			if self.process.poll() is not None or time.monotonic() > deadline:
				raise Failed("PostgreSQL does not start", self.folder.with_suffix(".log").read_text())
			time.sleep(0.02)

	def stop(self, number: int = signal.SIGINT) -> None:
		"""End it, and all connections; the default is its quick but orderly way."""
		if self.process:
			self.process.send_signal(number)
			self.process.wait(PATIENCE)
			self.process = None

	def restart(self) -> None:
		self.stop(signal.SIGQUIT)
		self.start()

	def remove(self) -> None:
		self.stop()
		shutil.rmtree(self.folder, ignore_errors=True)
		self.folder.with_suffix(".log").unlink()

	def name(self, database: str) -> str:
		"""The address of one of its databases, as SQLAlchemy takes it."""
		return f"postgresql://{OWNER}@/{database}?host={self.folder}"

	def add(self) -> str:
		"""A database with BuildGrid's tables, which are made once; its address."""
		connection = ["-h", str(self.folder), "-U", OWNER]
		if not self.count:
			self.ask("createdb", *connection, TEMPLATE)
			call_buildgrid("migrate", "apply", self.name(TEMPLATE))
		self.count += 1
		database = f"cluster{self.count}"
		self.ask("createdb", *connection, "--template", TEMPLATE, database)
		return self.name(database)


def call_buildgrid(*words: str) -> str:
	"""Run `bgd`; what it prints."""
	python = python_of_buildgrid()
	if python:
		done = READY.call(python, words, PATIENCE)
	else:
		environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
		command = [str(BUILDGRID), *words]
		done = subprocess.run(
			command, env=environ, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False
		)
	if done.returncode:
		raise Failed(f"bgd {' '.join(words)} ended with status {done.returncode}", done.stdout + done.stderr)
	return done.stdout


def python_of_buildgrid() -> Optional[str]:
	"""The Python that BuildGrid is installed for, if it is beside `bgd`. With it, commands start quicker."""
	python = pathlib.Path(str(BUILDGRID)).with_name("python")
	return str(python) if python.exists() else None
