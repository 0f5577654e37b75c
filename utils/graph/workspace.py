"""The copy of the crates that all contenders build, into the same folders."""

import json
import pathlib
import shutil
from typing import Dict, NamedTuple

from benchmark.environment import plain_environment
from benchmark.meter import Command, explain, tail_of, watch
from benchmark.mistake import Failed, Mistake
from benchmark.package import fetch, find_cargo

from .outputs import Digests, digests_of
from .source import REMEDY, Source

OWN = (
	"CARGO_BUILD_",
	"CARGO_ENCODED_",
	"CARGO_INCREMENTAL",
	"CARGO_PROFILE_",
	"CARGO_TARGET_DIR",
	"RUSTC",
	"RUSTFLAGS",
)
"""How the names of variables begin that change what cargo runs."""
EDITED = ("src/lib.rs", "src/main.rs")
EDIT = b"\n/// Added by a benchmark.\n#[allow(dead_code)]\npub fn edited_by_a_benchmark() {}\n"


class Built(NamedTuple):
	"""What came of a build."""

	wall: float
	calls: int
	"""Crates, and targets of crates, that were compiled: each is one run of rustc."""
	made: Digests


class Workspace:
	"""A copy of the crates, and its two target folders."""

	def __init__(self, source: Source, work: pathlib.Path, is_release: bool, jobs: int) -> None:
		self.source = source
		self.folder = work / "project"
		self.targets = (self.folder / "target", self.folder / "elsewhere" / "another-target")
		self.output, self.errors = str(work / "output"), str(work / "errors")
		self.text = b""
		"""The source that is edited, as it was."""
		self.args = ["build", "--locked", "--offline", "--message-format=json-render-diagnostics", "--jobs=%d" % jobs]
		if is_release:
			self.args.append("--release")
		# an empty wrapper hides that of a file of settings
		self.env = {**plain_environment(*OWN), "CARGO_INCREMENTAL": "0", "RUSTC_WRAPPER": ""}

	def prepare(self) -> None:
		"""Copy the crates, and download all that their lock file names."""
		self.source.copy(str(self.folder))
		fetch(self.source.title, ["fetch", "--locked", "--manifest-path", str(self.folder / "Cargo.toml")], REMEDY)

	def clean(self, is_elsewhere: bool = False) -> None:
		shutil.rmtree(self.targets[is_elsewhere], ignore_errors=True)

	def build(self, variables: Dict[str, str], is_elsewhere: bool = False) -> Built:
		target = self.targets[is_elsewhere]
		argv = [find_cargo() or "cargo", *self.args, "--target-dir=%s" % target]
		command = Command(argv, str(self.folder), {**self.env, **variables})
		wall, status, _ = watch(command, self.output, errors=self.errors)
		if status:
			raise Failed(explain(argv, status), tail_of(self.errors))
		return Built(wall, self.count(), digests_of(target))

	def count(self) -> int:
		"""The crates that cargo has compiled, which it tells one a line."""
		with open(self.output, encoding="utf-8") as f:
			told = [json.loads(line) for line in f if line.startswith("{")]
		return sum(each["reason"] == "compiler-artifact" and not each["fresh"] for each in told)

	def find_edited(self) -> pathlib.Path:
		"""The source that is edited."""
		for name in EDITED:
			if (self.folder / name).is_file():
				return self.folder / name
		raise Mistake("--edit: %s has no %s: leave --edit out" % (self.source.title, " and no ".join(EDITED)))

	def edit(self) -> None:
		"""Append a function that is not used."""
		source = self.find_edited()
		self.text = self.text or source.read_bytes()
		source.write_bytes(self.text + EDIT)

	def take_back(self) -> None:
		"""Take the edit back, if there was one. The source is newer then, as after any edit."""
		if self.text:
			self.find_edited().write_bytes(self.text)
			self.text = b""
