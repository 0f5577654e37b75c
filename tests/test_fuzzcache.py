"""utils/fuzzcache.py finds wrong answers, and nothing else."""

import pathlib
import re
import shutil
import subprocess
import sys
from typing import List

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "utils"))

from fuzzer.trial import Trace, compare  # noqa: E402

KINDS = ("wrappers", "helpers", "tools", "links", "libraries", "processors", "checkouts", "configured", "precompiled")
HONEST = '#!/bin/sh\ncase "$1" in --*) exit 0;; run) shift 2;; esac\nexec "$@"\n'
# remembers by command line and folder only
LYING = """\
#!/bin/sh
case "$1" in --*) exit 0;; run) shift 2;; esac
for output; do :; done
kept="$WAFCC_DIR.$(printf '%s\\n' "$PWD" "$@" | cksum | tr ' ' -)"
if [ -f "$kept" ]; then
	cp "$kept" "$output"
else
	"$@" || exit
	cp "$output" "$kept"
fi
"""


def fuzz(folder: pathlib.Path, *options: str) -> "subprocess.CompletedProcess[str]":
	argv = [sys.executable, str(ROOT / "utils" / "fuzzcache.py"), "--work", str(folder), *options]
	return subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=100, check=False)


def install(folder: pathlib.Path, script: str) -> str:
	path = folder / "wrapper"
	path.write_text(script)
	path.chmod(0o755)
	return str(path)


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_an_honest_wrapper_passes(tmp_path: pathlib.Path) -> None:
	"""Where nothing is cached nothing differs, and nothing is left."""
	wrapper = install(tmp_path, HONEST)
	work = tmp_path / "work"
	work.mkdir()
	done = fuzz(work, "--wafcc", wrapper, "--steps", "25", "--seed", "1", "--compilers", "gcc")
	assert (done.returncode, done.stdout) == (0, "seed 1\n25 steps, nothing differs\n"), done.stderr
	assert not list(work.iterdir())


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_lying_wrapper_is_caught(tmp_path: pathlib.Path) -> None:
	"""The step, the command and what led to it are told, the folder is kept, and the same seed finds the same."""
	wrapper = install(tmp_path, LYING)

	def find() -> List[str]:
		done = fuzz(tmp_path, "--wafcc", wrapper, "--steps", "400", "--seed", "5", "--compilers", "gcc")
		assert done.returncode == 1, done
		kept = re.search(r"kept in (\S+)", done.stdout)
		assert kept and (pathlib.Path(kept.group(1)) / "one" / "src").is_dir()
		return re.findall(r"^step \d+", done.stdout, re.M)

	first = find()
	assert len(first) == 1 and find() == first


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_wrapper_passes_all_kinds(kind: str, tmp_path: pathlib.Path) -> None:
	"""What wrappers, helpers and the like make is the same from run to run, as far as it is compared."""
	wrapper = install(tmp_path, HONEST)
	done = fuzz(tmp_path, "--wafcc", wrapper, "--steps", "12", "--seed", "1", "--kinds", kind, "--compilers", "gcc")
	assert (done.returncode, done.stdout) == (0, "seed 1\n12 steps, nothing differs\n"), done.stderr


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"processors"}))
def test_a_lying_wrapper_is_caught_by_all_kinds(kind: str, tmp_path: pathlib.Path) -> None:
	"""Each kind edits what its own commands depend on."""
	wrapper = install(tmp_path, LYING)
	done = fuzz(tmp_path, "--wafcc", wrapper, "--steps", "200", "--seed", "3", "--kinds", kind, "--compilers", "gcc")
	assert done.returncode == 1 and "step" in done.stdout, done


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_another_processor_is_another_question(tmp_path: pathlib.Path) -> None:
	"""A cache that says that it knew the answer for a processor that it has never seen is wrong."""
	wrapper = install(tmp_path, HONEST.replace("in --*)", "in --explain) echo x: hit;; --*)"))
	done = fuzz(tmp_path, "--wafcc", wrapper, "--steps", "60", "--seed", "1", "--kinds", "processors")
	assert done.returncode == 1 and "it was a hit" in done.stdout, done


def test_a_result_that_differs_from_run_to_run() -> None:
	"""It is wrong only where the cache has one answer for what a plain run answers in another way each time."""

	def trace(content: bytes, stdout: bytes = b"") -> Trace:
		return Trace(0, stdout, b"", {"a.o": content})

	assert compare(trace(b"1"), trace(b"2"), trace(b"2")) == "other content: a.o"
	assert compare(trace(b"", b"1"), trace(b""), trace(b"")) == "stdout: b'1' instead of b''"
	assert compare(trace(b"1"), trace(b"2"), trace(b"3")) == ""
	plain = trace(b"2"), trace(b"3")
	assert "always the same" in compare(trace(b"1"), trace(b"1"), trace(b"1"), plain)
	assert compare(trace(b"1"), trace(b"4"), trace(b"4"), plain) == ""
	assert compare(trace(b"2"), trace(b"2"), trace(b"2"), plain) == ""
	assert compare(trace(b"1"), trace(b"1"), trace(b"1"), (trace(b"2"), trace(b"2"))) == ""


def test_mistakes_are_one_line(tmp_path: pathlib.Path) -> None:
	"""A wrapper, a compiler or a kind that is not there is named."""
	others = (["--compilers", "no-such-cc"], ["--kinds", "no-such-kind"])
	for options in (["--wafcc", "/no/such"], *(["--wafcc", sys.executable, *other] for other in others)):
		done = fuzz(tmp_path, *options)
		assert done.returncode == 2
		assert re.fullmatch(
			r"fuzzcache: .*(/no/such|no-such-cc|no-such-kind).*(--wafcc|--compilers|wrappers).*\n", done.stderr
		), done.stderr


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("kind", KINDS)
def test_our_cache_is_right(kind: str, engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""No answer of the cache differs from what a command of this kind makes without it."""
	wafcc = str(pathlib.Path(engine).with_name("wafcc"))
	done = fuzz(tmp_path, "--wafcc", wafcc, "--steps", "30", "--seed", "1", "--kinds", kind, "--compilers", "gcc")
	assert (done.returncode, done.stdout) == (0, "seed 1\n30 steps, nothing differs\n"), f"{done.stdout}{done.stderr}"
