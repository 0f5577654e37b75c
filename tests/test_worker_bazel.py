"""Bazel, another client of a cluster, has `wafd worker` run its commands."""

import pathlib
import shutil
import subprocess

import pytest
from cache_support import PATIENCE
from cluster_support import INSTANCE, Cluster
from conftest import leave_out
from execute_support import CC, needs_compiler, needs_root

pytestmark = [needs_compiler, needs_root, pytest.mark.thorough]
BUILD = f"""\
genrule(
    name = "object",
    srcs = ["answer.c", "answer.h"],
    outs = ["answer.o"],
    cmd = "{shutil.which(CC)} -I. -c $(location answer.c) -o $@",
)

genrule(
    name = "folders",
    srcs = ["answer.c"],
    outs = ["made/copy.c", "made/further/lines"],
    cmd = "cp $(location answer.c) $(RULEDIR)/made/copy.c; wc -l < $< > $(RULEDIR)/made/further/lines",
)

genrule(name = "wrong", outs = ["wrong.o"], cmd = "echo it cannot be done >&2; exit 7")
"""


class Bazel:
	"""A workspace, and a Bazel without a daemon that runs nothing on this machine."""

	def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
		self.folder, self.room = folder / "workspace", folder / "bazel"
		self.folder.mkdir()
		(self.folder / "WORKSPACE").touch()
		(self.folder / "BUILD").write_text(BUILD)
		(self.folder / "answer.h").write_text("int answer(void);\n")
		(self.folder / "answer.c").write_text('#include "answer.h"\nint answer(void) { return 42; }\n')
		self.options = [f"--remote_executor=grpc://127.0.0.1:{cluster.port}", f"--remote_instance_name={INSTANCE}"]
		self.options += ["--spawn_strategy=remote", "--genrule_strategy=remote", "--remote_timeout=60", "--color=no"]

	def build(self, base: str) -> "subprocess.CompletedProcess[str]":
		"""Build all that can be built. `base` is the folder of what it knows of earlier builds."""
		places = [f"--output_user_root={self.room}", f"--output_base={self.room / base}"]
		return subprocess.run(
			["bazel", "--batch", *places, "build", "--keep_going", *self.options, "//:all"],
			cwd=self.folder,
			capture_output=True,
			encoding="utf-8",
			timeout=3 * PATIENCE,
			check=False,
		)

	def made(self, name: str) -> bytes:
		return (self.folder / "bazel-bin" / name).read_bytes()


@pytest.fixture
def bazel(buildgrid: Cluster, engine: str, tmp_path: pathlib.Path) -> Bazel:
	if not shutil.which("bazel"):
		leave_out("bazel is not installed: apt install bazel-bootstrap")
	buildgrid.worker(engine, "--slots", "2", "--name", "one").until_said("works for")
	return Bazel(buildgrid, tmp_path)


def test_bazel_builds_on_our_workers(bazel: Bazel) -> None:
	"""It gets what commands make here, and the words of one that fails. Another one has the results of this one."""
	done = bazel.build("first")
	assert done.returncode == 1
	assert "it cannot be done" in done.stderr and "Exit 7" in done.stderr, done.stderr
	assert "2 remote" in done.stderr, done.stderr
	source = (bazel.folder / "answer.c").read_bytes()
	assert (bazel.made("made/copy.c"), bazel.made("made/further/lines")) == (source, b"2\n")
	here = [CC, "-I.", "-c", "answer.c", "-o", "plain.o"]
	subprocess.run(here, cwd=bazel.folder, check=True, timeout=PATIENCE)
	assert bazel.made("answer.o") == (bazel.folder / "plain.o").read_bytes()
	again = bazel.build("second")
	assert "2 remote cache hit" in again.stderr, again.stderr
