"""Of `PATH`, a compile depends only on which programs are found along it."""

import os
import pathlib
import subprocess
import time

import pytest
from cache_support import Lab

COMPILE = {"gcc": "{cc} -O1 -c a.c -o a.o", "clang": "{cc} -fno-integrated-as -c a.c -o a.o"}
CC = {"gcc": "gcc", "clang": "clang"}


@pytest.fixture(params=COMPILE)
def line(request: pytest.FixtureRequest, lab: Lab) -> str:
	compiler = str(request.param)
	lab.write("a.c", "int a(void) { return 1; }\n")
	for name in ("empty", "more", "tools"):
		(lab.folder.parent / name).mkdir()
	time.sleep(0.1)  # what was written just before a command is not trusted
	return COMPILE[compiler].replace("{cc}", CC[compiler])


def along(lab: Lab, *names: str) -> str:
	"""The usual folders, after these ones beside that of the lab."""
	return os.pathsep.join([*(str(lab.folder.parent / name) for name in names), lab.environ.get("PATH", os.defpath)])


def put_assembler(lab: Lab, text: str) -> pathlib.Path:
	script = lab.folder.parent / "tools" / "as"
	script.write_text("#!/bin/sh\n" + text)
	script.chmod(0o755)
	time.sleep(0.1)
	return script


def test_folders_without_its_programs_make_no_difference(line: str, lab: Lab) -> None:
	lab.until_hit(line)
	assert lab.same(line, PATH=along(lab, "empty")).startswith("hit")
	assert lab.same(line, PATH=along(lab, "more", "empty")).startswith("hit")
	assert lab.same(line, PATH=along(lab, "missing")).startswith("hit")
	assert lab.same(line, PATH=along(lab) + os.pathsep + str(lab.folder.parent / "more")).startswith("hit")


def test_another_assembler_counts(line: str, lab: Lab) -> None:
	"""It is found first, and makes something else."""
	lab.until_hit(line)
	put_assembler(lab, 'exec /usr/bin/as --defsym found=1 "$@"\n')
	said = lab.same(line, PATH=along(lab, "tools"))
	assert said.startswith("miss") and "as, looked for along PATH, is" in said, said
	assert lab.same(line).startswith("hit")


def test_an_assembler_that_comes_later_counts(line: str, lab: Lab) -> None:
	"""Into a folder that was in `PATH` all the time."""
	path = along(lab, "tools")
	lab.until_hit(line, PATH=path)
	script = put_assembler(lab, 'exec /usr/bin/as --defsym found=1 "$@"\n')
	assert lab.same(line, PATH=path).startswith("miss")
	script.unlink()
	time.sleep(0.1)
	lab.until_hit(line, PATH=path)


def test_a_file_that_is_no_program_is_not_found(line: str, lab: Lab) -> None:
	lab.until_hit(line)
	put_assembler(lab, "exit 1\n").chmod(0o644)
	time.sleep(0.1)
	assert lab.same(line, PATH=along(lab, "tools")).startswith("hit")


def test_the_same_program_by_another_name_counts(line: str, lab: Lab) -> None:
	"""A link may lead elsewhere tomorrow."""
	lab.until_hit(line)
	(lab.folder.parent / "tools" / "as").symlink_to("/usr/bin/as")
	time.sleep(0.1)
	assert lab.same(line, PATH=along(lab, "tools")).startswith("miss")


def test_a_relative_folder_makes_all_of_it_count(line: str, lab: Lab) -> None:
	path = "." + os.pathsep + along(lab)
	lab.until_hit(line, PATH=path)
	said = lab.same(line, PATH=path + os.pathsep + str(lab.folder.parent / "more"))
	assert said.startswith("miss") and "PATH is" in said, said
	lab.write("as", '#!/bin/sh\nexec /usr/bin/as --defsym found=1 "$@"\n').chmod(0o755)
	time.sleep(0.1)
	said = lab.same(line, PATH=path)
	# clang leaves relative folders out
	assert said.startswith("miss" if line.startswith("gcc") else "hit"), said


def test_a_script_depends_on_all_of_it(lab: Lab) -> None:
	lab.write("show.sh", 'echo "$PATH" > out\n')
	time.sleep(0.1)

	def said(path: str) -> str:
		for name in lab.look():
			if name == "out":
				(lab.folder / name).unlink()
		words = [lab.wafcc, "run", "--", "sh", "show.sh"]
		environ = {**lab.environ, "PATH": path}
		subprocess.run(words, cwd=lab.folder, env=environ, stdin=subprocess.DEVNULL, check=True, timeout=60)
		assert (lab.folder / "out").read_text().strip() == path
		return lab.explain(lab.folder / "out")

	said(along(lab))
	assert said(along(lab)).startswith("hit")
	assert said(along(lab, "empty")).startswith("miss")
