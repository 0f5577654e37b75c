"""waflib_extras/facts/files.py: a file has its old content or its new one, also when something is in the way."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

from waflib_extras.facts.files import replace

# writes files of 10 bytes at most, as on a disk that is nearly full
NARROW = """\
import resource, sys
sys.path.insert(0, %r)
from waflib_extras.facts.files import replace
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
replace(sys.argv[1], b"short")
replace(sys.argv[1], b"much longer than that")
""" % str(ROOT)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("obstacle", ["nothing", "file", "pipe", "link"])
def test_what_lies_beside_it_does_no_harm(obstacle: str, tmp_path: pathlib.Path) -> None:
	"""What has the other name is removed: it does not block us, and what a link leads to is not written."""
	file, victim = tmp_path / "file", tmp_path / "victim"
	file.write_text("old")
	victim.write_text("mine")
	beside = tmp_path / ("file.%d" % os.getpid())
	if obstacle == "file":
		beside.write_text("left by a process that was killed, and longer")
	elif obstacle == "pipe":
		os.mkfifo(beside)
	elif obstacle == "link":
		beside.symlink_to(victim)
	replace(str(file), b"new")
	assert file.read_bytes() == b"new" and not file.is_symlink()
	assert victim.read_text() == "mine"
	assert sorted(os.listdir(tmp_path)) == ["file", "victim"]


def test_a_full_disk(tmp_path: pathlib.Path) -> None:
	"""A content that cannot be written whole leaves the old one, and nothing beside it."""
	file = tmp_path / "file"
	done = subprocess.run([sys.executable, "-c", NARROW, str(file)], capture_output=True, check=False)
	assert done.returncode == 1 and b"OSError" in done.stderr
	assert file.read_bytes() == b"short"
	assert os.listdir(tmp_path) == ["file"]


def test_a_folder_in_its_place(tmp_path: pathlib.Path) -> None:
	"""A folder of that name is not replaced, and nothing is left beside it."""
	(tmp_path / "file" / "in it").mkdir(parents=True)
	with pytest.raises(OSError, match="file"):
		replace(str(tmp_path / "file"), b"new")
	assert os.listdir(tmp_path) == ["file"]


def test_only_the_owner(tmp_path: pathlib.Path) -> None:
	"""A file is made with the permissions that are asked for, and is never open to others before."""
	replace(str(tmp_path / "file"), b"secret", 0o600)
	assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
