"""Folders in which programs are linked share results, as far as nothing that is made or printed tells their names."""

import os
import shutil
import subprocess
import time
from typing import Dict

import pytest
from cache_support import COMPILERS, PATIENCE, Lab

pytestmark = pytest.mark.timeout(4 * PATIENCE)

LINE = "gcc a.o -o {here}/app"
FOLDERS = ("one", "elsewhere/two")


@pytest.fixture
def lab(lab: Lab) -> Lab:
	"""Two folders with the same object, in a lab where links are cached."""
	lab.environ["WAFCC_FACTS"] = "yes"
	fill(lab, "int main(void) { return 0; }\n")
	return lab


def fill(lab: Lab, source: str, flags: str = "") -> None:
	"""Compile in the first folder, and copy the object to the other one."""
	lab.write("a.c", source)
	for folder in FOLDERS:
		(lab.folder / folder).mkdir(parents=True, exist_ok=True)
	subprocess.run(["gcc", *flags.split(), "-c", "../a.c", "-o", "a.o"], cwd=lab.folder / FOLDERS[0], check=True)
	shutil.copy(lab.folder / FOLDERS[0] / "a.o", lab.folder / FOLDERS[1] / "a.o")
	time.sleep(0.1)


def link(lab: Lab, line: str = LINE, folder: str = FOLDERS[0], **env: str) -> str:
	"""The first word of the verdict, after a comparison with a plain link."""
	cwd = lab.folder / folder
	found, plain = (lab.run(line, cached, folder, **env) for cached in (True, False))
	assert found == plain, line
	return lab.explain(cwd / "app").partition(":")[0]


def link_everywhere(lab: Lab, line: str = LINE, **env: str) -> Dict[str, str]:
	"""The verdicts of a link in each folder, the second time."""
	for _ in range(2):
		verdicts = {folder: link(lab, line, folder, **env) for folder in FOLDERS}
	return verdicts


def link_in_turn(lab: Lab, line: str = LINE, **env: str) -> str:
	"""The verdict of the first link in the other folder. In its own folder, each of them is a hit the second time."""
	assert link(lab, line, FOLDERS[0], **env) == "miss"
	verdict = link(lab, line, FOLDERS[1], **env)
	assert set(link_everywhere(lab, line, **env).values()) == {"hit"}
	return verdict


@pytest.mark.parametrize(
	"line",
	[
		LINE,
		"gcc a.o -o{here}/sub/app",
		"gcc -shared -o {here}/app a.o -lm",
		"g++ -O2 -Wl,-rpath,$ORIGIN -o {here}/app a.o",
	],
)
def test_another_folder_shares(line: str, lab: Lab) -> None:
	"""Programs and libraries whose output has a whole name are hits there, in folders with names of other lengths."""
	for folder in FOLDERS:
		(lab.folder / folder / "sub").mkdir()
	for folder, expected in (*zip(FOLDERS, ("miss", "hit")), (FOLDERS[0], "hit")):
		found, plain = (lab.run(line, cached, folder) for cached in (True, False))
		assert found == plain
		assert found.status == 0
		app = next(name for name in found.files if name.endswith("app"))
		assert lab.explain(lab.folder / app).startswith(expected)


def test_another_object_counts(lab: Lab) -> None:
	link(lab)
	fill(lab, "int main(void) { return 1; }\n")
	assert link_in_turn(lab) == "hit"


@pytest.mark.parametrize(
	"line",
	[
		LINE + " -Wl,-rpath,{here}/lib",
		LINE + " -L{here}",
		LINE + " -Wl,-Map={here}/map",
		LINE + " -Wl,-Map=map",
		LINE + " -Wl,--dependency-file=deps",
		LINE + " -Wl,--compress-debug-sections=zlib",
		LINE + " -Wl,-soname={here}/app -shared",
	],
)
def test_a_name_that_shows_or_is_given_again_counts(line: str, lab: Lab) -> None:
	"""It is in another word, or in a file that the link makes, so the other folder links for itself."""
	assert link_in_turn(lab, line) == "miss"


def test_objects_that_name_their_folder_count(lab: Lab) -> None:
	"""Debug information has the name, which the program takes over."""
	fill(lab, "int main(void) { return 0; }\n", "-g")
	assert link_in_turn(lab) == "miss"


def test_output_that_names_the_folder_counts(lab: Lab) -> None:
	"""The map of a link names its output."""
	line = LINE + " -Wl,-M"
	assert os.fsencode(lab.folder / FOLDERS[0] / "app") in lab.run(line, False, FOLDERS[0]).stdout
	assert link_in_turn(lab, line) == "miss"


def test_other_messages_are_shared(lab: Lab) -> None:
	assert lab.run(LINE + " -Wl,-e,nowhere", False, FOLDERS[0]).stderr
	assert link_in_turn(lab, LINE + " -Wl,-e,nowhere") == "hit"


PLUGIN = "int onload(void *tv) { return 0; }\n"
LINKER = r"""
#include <stdio.h>
#include <string.h>
/* writes how long the name of its output is */
int main(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "-o")) {
			FILE *out = fopen(argv[i + 1], "w");
			fprintf(out, "%zu\n", strlen(argv[i + 1]));
			return fclose(out);
		}
	return 1;
}
"""


def test_a_linker_that_is_not_known_counts(lab: Lab) -> None:
	"""It may make anything of the name of its output: here, its length."""
	lab.write("linker.c", LINKER)
	(lab.folder / "tools").mkdir()
	subprocess.run(["gcc", "linker.c", "-o", "tools/ld"], cwd=lab.folder, check=True)
	time.sleep(0.1)
	assert link_in_turn(lab, "gcc -B%s/tools/ a.o -o {here}/app" % lab.folder) == "miss"


def test_a_compiler_behind_a_script_counts(lab: Lab) -> None:
	"""The script may make anything of its arguments: here, a symbol whose value is the length of the output's name."""
	script = '#!/bin/sh\nexec %s "$@" -Wl,--defsym=length=${#3}\n' % shutil.which("gcc")
	lab.write("bin/gcc", script).chmod(0o755)
	time.sleep(0.1)
	assert link_in_turn(lab, "%s/bin/gcc a.o -o {here}/app" % lab.folder) == "miss"


def test_a_plugin_counts(lab: Lab) -> None:
	"""It gets the name of the output, and may add anything."""
	lab.write("plugin.c", PLUGIN)
	built = ["gcc", "-shared", "-fPIC", "plugin.c", "-o", "plugin.so"]
	subprocess.run(built, cwd=lab.folder, check=True)
	time.sleep(0.1)
	assert link_in_turn(lab, LINE + " -Wl,-plugin,%s/plugin.so" % lab.folder) == "miss"


def test_link_time_optimization_counts(lab: Lab) -> None:
	"""More programs than the linker take part, and get names that are made of the output's."""
	fill(lab, "int f(void) { return 1; }\nint main(void) { return f(); }\n", "-flto")
	verdicts = [link(lab, LINE + " -flto", folder) for folder in FOLDERS]
	assert "hit" not in verdicts


def test_a_source_that_is_compiled_and_linked_counts(lab: Lab) -> None:
	for folder in FOLDERS:
		shutil.copy(lab.folder / "a.c", lab.folder / folder / "a.c")
	time.sleep(0.1)
	assert [link(lab, "gcc a.c -o {here}/app", folder) for folder in FOLDERS] == ["miss", "miss"]


def test_words_in_a_file_count(lab: Lab) -> None:
	"""The key has the name of the file, whose content is a fact."""
	for folder in FOLDERS:
		(lab.folder / folder / "words").write_text("-o %s/app" % (lab.folder / folder))
	time.sleep(0.1)
	assert [link(lab, "gcc a.o @words", folder) for folder in FOLDERS] == ["miss", "miss"]


def test_an_output_outside_of_the_folder(lab: Lab) -> None:
	"""Its name is the same in each folder, so it is left as it is, and the folders share the result all the same."""
	line = "gcc a.o -o %s/app" % lab.folder
	for folder, expected in zip((*FOLDERS, *FOLDERS), ("miss", "hit", "hit", "hit")):
		found, plain = (lab.run(line, cached, folder) for cached in (True, False))
		assert found == plain
		assert lab.explain(lab.folder / "app").startswith(expected)


def test_a_folder_with_a_link_in_its_name_is_not_shared(lab: Lab) -> None:
	(lab.folder / "link").symlink_to(FOLDERS[1])
	link(lab)
	line = LINE.replace("{here}", str(lab.folder / "link"))
	done = lab.run(line, True, "link")
	assert done.status == 0
	assert lab.explain(lab.folder / "link/app").startswith("miss")


@pytest.mark.skipif("clang" not in COMPILERS, reason="apt-get install clang")
def test_clang_links_as_it_does_alone(lab: Lab) -> None:
	"""It asks for its folder, so there may be no hits, but the results are its own."""
	verdicts = link_everywhere(lab, LINE.replace("gcc", "clang"))
	assert set(verdicts.values()) <= {"hit", "miss"}
