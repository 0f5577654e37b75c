"""Uses of wafcc: settings, counts, extra files, and the same command several times at once."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
from cache_support import PATIENCE, Lab, by_one


def test_settings_are_heeded(lab: Lab) -> None:
	"""Read only stores nothing, recache looks nothing up, and a namespace is apart."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	lab.write("x.c", "int f;\n")
	line = "gcc -c x.c"
	for _ in range(3):
		assert not lab.same(line, WAFCC_READONLY="1").startswith("hit")
	lab.until_hit(line)
	assert lab.same(line, WAFCC_READONLY="1").startswith("hit")
	assert lab.same(line, WAFCC_RECACHE="1").startswith("miss: it is to be cached anew")
	assert lab.same(line, WAFCC_NAMESPACE="other").startswith("miss: it was not seen before")
	lab.until_hit(line, WAFCC_NAMESPACE="other")


def test_counts_survive_the_engine(lab: Lab) -> None:
	"""Hits, misses and what is not cached are counted, also over a restart; zeroing begins anew, clearing forgets."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	lab.write("x.c", "int main(void) { return 0; }\n")
	lab.until_hit("gcc -c x.c")
	lab.same("gcc x.c -o x")

	def ours(*options: str) -> str:
		argv = [lab.wafcc, *options]
		done = subprocess.run(argv, env=lab.environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True)
		return done.stdout

	before = ours("--show-stats", "--verbose")
	assert re.search(r"Hits: +1 /", before) and re.search(r"1 .*called for linking", before), before
	ours("--shutdown")
	assert re.search(r"Hits: +1 /", ours("--show-stats"))
	assert lab.same("gcc -c x.c").startswith("hit")
	ours("--zero-stats")
	assert re.search(r"Hits: +0 /", ours("--show-stats"))
	ours("--clear")
	assert lab.same("gcc -c x.c").startswith("miss: it was not seen before")


def test_extra_files_count(lab: Lab) -> None:
	"""Files that ``extra_files`` names are inputs of every command."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	lab.write("x.c", "int f;\n")
	extra = lab.write("extra", "1")
	lab.until_hit("gcc -c x.c", WAFCC_EXTRAFILES=str(extra))
	extra.write_text("2")
	assert lab.same("gcc -c x.c", WAFCC_EXTRAFILES=str(extra)).startswith("miss")
	extra.write_text("1")
	assert lab.same("gcc -c x.c", WAFCC_EXTRAFILES=str(extra)).startswith("hit")


@by_one
def test_the_same_at_the_same_time_runs_once(cc: str, lab: Lab) -> None:
	"""Of equal commands, one runs and the others are hits."""
	lab.write("x.c", "int f;\n" + "".join(f"int f{n}(int x) {{ return x * {n}; }}\n" for n in range(1500)))
	lab.same(f"{cc} -c x.c -o warm.o")
	argv = [[lab.wafcc, cc, "-O1", "-c", "x.c", "-o", f"{n}.o"] for n in range(6)]
	commands = [subprocess.Popen(one, cwd=lab.folder, env=lab.environ) for one in argv]
	assert [command.wait(PATIENCE) for command in commands] == [0] * 6
	said = [lab.explain(lab.folder / f"{n}.o") for n in range(6)]
	assert sum(words.startswith("miss") for words in said) == 1, said
	assert len({(lab.folder / f"{n}.o").read_bytes() for n in range(6)}) == 1


def test_status_tells_of_the_cache(lab: Lab) -> None:
	"""``wafd status`` tells of a store that is open, and opens none."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")

	def status(*options: str) -> str:
		argv = [lab.engine, "status", *options]
		return subprocess.run(
			argv, env=lab.environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
		).stdout

	subprocess.run([lab.engine, "start"], env=lab.environ, stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True)
	assert json.loads(status("--json"))["cache"] is None
	assert re.search(r"^cache +not asked so far$", status(), re.MULTILINE)
	store = pathlib.Path(lab.environ["HOME"]) / ".cache" / "wafcc"
	assert not store.exists()
	lab.write("x.c", "int main(void) { return 0; }\n")
	lab.until_hit("gcc -c x.c")
	lab.same("gcc x.c -o x")
	cache = json.loads(status("--json"))["cache"]
	counts = cache["statistics"]
	assert (cache["store"], cache["flights"], cache["audit_percent"]) == (str(store), {"running": 0, "waiting": 0}, 0)
	assert (counts["hits"], counts["entries"], counts["uncached"]) == (1, 1, {"called for linking": 1}), counts
	text = status()
	assert re.search(rf"^cache +{store}$\n  entries +1 in .* of 5.0 GB", text, re.MULTILINE), text
	assert re.search(r"^  requests +1 hits, \d+ misses .*, 1 uncached since 20", text, re.MULTILINE), text
