"""utils/fuzzcache.py finds wrong answers, and nothing else."""

import pathlib
import re
import shutil
import subprocess
import sys
from typing import List

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

HONEST = '#!/bin/sh\ncase "$1" in --shutdown) exit 0;; esac\nexec "$@"\n'
# remembers by command line and folder only
LYING = """\
#!/bin/sh
case "$1" in --shutdown) exit 0;; esac
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


def test_mistakes_are_one_line(tmp_path: pathlib.Path) -> None:
	"""A wrapper or a compiler that is not there is named."""
	for options in (["--wafcc", "/no/such"], ["--wafcc", sys.executable, "--compilers", "no-such-cc"]):
		done = fuzz(tmp_path, *options)
		assert done.returncode == 2
		assert re.fullmatch(r"fuzzcache: .*(/no/such|no-such-cc).*--(wafcc|compilers)\n", done.stderr), done.stderr
