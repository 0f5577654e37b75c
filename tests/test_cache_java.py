"""javac and jar are cached by what they are seen to do, and proved by a second run. So are scripts around them."""

import pathlib
import shutil
import time
from typing import Dict

import pytest
from cache_support import PATIENCE
from test_cache_facts import Facts
from test_cache_proofs import prove, wait

pytestmark = pytest.mark.timeout(6 * PATIENCE)

QUICK = "-J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC"
"""Each start of Java is short, so that it does not pay to optimize its code."""
FILES = {
	"src/p/One.java": "package p;\npublic class One { public static int one() { return 1; } }\n",
	"src/p/Two.java": (
		"package p;\npublic class Two {\n\tclass Inner { }\n"
		"\tpublic static void main(String[] a) { System.out.println(One.one() + q.Other.OTHER); }\n}\n"
	),
	"lib/q/Other.java": "package q;\npublic class Other { public static int OTHER = 2; }\n",
	"build.sh": "set -e\nmkdir -p out\njavac %s -cp lib -d out src/p/*.java\necho done > out/list\n" % QUICK,
}
JAVAC = f"javac {QUICK} -cp lib -d out src/p/One.java src/p/Two.java"
JAR = f"jar {QUICK} --create --file out.jar %s -C lib q/Other.class"


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	if not shutil.which("javac"):
		pytest.skip("there is no javac: apt-get install default-jdk-headless")
	sandbox = Facts.make(engine, tmp_path, **FILES)
	prove(sandbox)
	run_plainly(sandbox, f"javac {QUICK} -d lib lib/q/Other.java")
	time.sleep(0.1)  # what was written just before a command is not trusted
	return sandbox


def run_plainly(sandbox: Facts, line: str) -> None:
	done = sandbox.run_argv(line.split(), False)
	assert done.returncode == 0, done.stderr


def run(sandbox: Facts, line: str, output: str) -> str:
	done = sandbox.run_by_facts(line)
	assert done.returncode == 0, done.stderr
	return sandbox.explain(sandbox.folder / output)


def take(sandbox: Facts) -> Dict[str, bytes]:
	"""Remove what was made, and return it."""
	made = {name: text for name, text in sandbox.look().items() if not name.startswith(("src", "lib", "build.sh"))}
	for name in made:
		(sandbox.folder / name).unlink()
	shutil.rmtree(sandbox.folder / "out", ignore_errors=True)
	return made


@pytest.mark.parametrize("line", [JAVAC, "sh build.sh"], ids=["javac", "script"])
def test_classes_are_hits(line: str, sandbox: Facts) -> None:
	"""After a second run, with all classes that a source holds, and not after an edit of a source or of a library."""
	run_plainly(sandbox, line)
	plain = take(sandbox)
	assert "out/p/Two$Inner.class" in plain
	assert "not stored" not in run(sandbox, line, "out/p/One.class")
	assert take(sandbox) == plain
	told = wait(sandbox)
	assert (told["proved"], told["refuted"]) == (1, 0), told
	assert run(sandbox, line, "out/p/One.class").startswith("hit")
	assert take(sandbox) == plain
	sandbox.write("src/p/One.java", FILES["src/p/One.java"].replace("1; }", "7; }"))
	time.sleep(0.1)
	assert run(sandbox, line, "out/p/One.class").startswith("miss")
	assert take(sandbox)["out/p/One.class"] != plain["out/p/One.class"]
	sandbox.write("src/p/One.java", FILES["src/p/One.java"])
	sandbox.write("lib/q/Other.java", FILES["lib/q/Other.java"].replace("int OTHER", "long OTHER"))
	run_plainly(sandbox, f"javac {QUICK} -d lib lib/q/Other.java")
	time.sleep(0.1)
	assert run(sandbox, line, "out/p/One.class").startswith("miss")
	assert take(sandbox)["out/p/Two.class"] != plain["out/p/Two.class"]


def test_an_archive_is_a_hit_if_its_date_is_fixed(sandbox: Facts) -> None:
	line = JAR % "--date=2020-01-01T00:00:00Z"
	assert "not stored" not in run(sandbox, line, "out.jar")
	made = take(sandbox)
	told = wait(sandbox)
	assert (told["proved"], told["refuted"]) == (1, 0), told
	assert run(sandbox, line, "out.jar").startswith("hit")
	assert take(sandbox) == made


def test_an_archive_with_the_time_is_none(sandbox: Facts) -> None:
	line = JAR % ""
	assert "not stored" not in run(sandbox, line, "out.jar")
	take(sandbox)
	told = wait(sandbox)
	assert (told["proved"], told["refuted"]) == (0, 1), told
	assert run(sandbox, line, "out.jar").startswith("miss")


def test_a_source_that_fails_is_compiled_again(sandbox: Facts) -> None:
	sandbox.write("src/p/One.java", "package p;\nclass One { int x = ; }\n")
	time.sleep(0.1)
	for _ in range(2):
		done = sandbox.run_by_facts(JAVAC)
		assert done.returncode == 1 and b"illegal start of expression" in done.stderr
	assert sandbox.hits() == 0
