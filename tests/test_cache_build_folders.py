"""Folders into which cargo builds share crates, as far as nothing that rustc makes tells their names."""

import os
import pathlib
import shutil
import subprocess
import time
from typing import Dict

import pytest
from cache_support import PATIENCE
from test_cache_proofs import prove, wait
from test_cache_rust import BODIES, END, HASH, START, Rust, rust, rustc  # noqa: F401

pytestmark = [pytest.mark.timeout(4 * PATIENCE), pytest.mark.xdist_group("rust")]

CRATE = (
	"{rustc} --crate-name %s --crate-type lib --error-format=json --json=artifacts --emit=dep-info,metadata,link "
	"-C extra-filename=" + HASH + " --out-dir {to}/debug/deps -L dependency={to}/debug/deps %s %s.rs"
)
ONE = CRATE % ("one", "", "one")
TWO = CRATE % ("two", "--extern one={to}/debug/deps/libone%s.rlib" % HASH, "two")
APP = (
	"{rustc} --crate-name app --emit=dep-info,link --out-dir {to}/debug --extern mac={to}/libmac%s.so "
	"-L dependency={to}/debug/deps app.rs" % HASH
)
MACRO = "{rustc} --crate-name mac --crate-type proc-macro -C extra-filename=%s --out-dir {to} mac.rs" % HASH
ARGUMENTS = 'let text = format!("{:?}", std::env::args().collect::<Vec<_>>()).len().to_string();'


def compile_into(rust: Rust, line: str, to: str, **env: str) -> str:  # noqa: F811
	return rust.compile(line.replace("{to}", str(rust.folder / to)), **env)


@pytest.fixture
def folders(rust: Rust) -> Rust:  # noqa: F811
	for name in ("here", "elsewhere"):
		rust.write(name + "/CACHEDIR.TAG", "")
		(rust.folder / name / "debug/deps").mkdir(parents=True)
	time.sleep(0.1)
	return rust


def test_another_folder_shares(folders: Rust) -> None:
	"""With dependency files and messages that name it, and not the first one."""
	for line in (ONE, TWO):
		assert compile_into(folders, line, "here").startswith("miss")
	for line in (ONE, TWO):
		assert compile_into(folders, line, "elsewhere").startswith("hit")
		assert compile_into(folders, line, "here").startswith("hit")


def test_a_crate_of_another_folder_counts(folders: Rust) -> None:
	for line in (ONE, TWO):
		compile_into(folders, line, "here")
	folders.write("one.rs", "pub fn one() -> u32 { 2 }\npub fn more() {}\n")
	time.sleep(0.1)
	assert compile_into(folders, ONE, "elsewhere").startswith("miss")
	assert compile_into(folders, TWO, "elsewhere").startswith("miss")
	assert compile_into(folders, TWO, "here").startswith("hit")


def test_a_folder_that_cargo_has_not_made_is_not_shared(folders: Rust) -> None:
	(folders.folder / "elsewhere/CACHEDIR.TAG").unlink()
	compile_into(folders, ONE, "here")
	assert compile_into(folders, ONE, "elsewhere").startswith("miss")
	assert compile_into(folders, ONE, "elsewhere").startswith("hit")


def test_a_folder_with_a_link_in_its_name_is_not_shared(folders: Rust) -> None:
	(folders.folder / "link").symlink_to("elsewhere")
	compile_into(folders, ONE, "here")
	assert compile_into(folders, ONE, "link").startswith("miss")


@pytest.mark.parametrize(
	"text",
	[
		'include!(concat!(env!("OUT_DIR"), "/generated.rs"));\n',
		'pub const FOLDER: &str = env!("OUT_DIR");\npub const SIZE: usize = env!("OUT_DIR").len();\n',
		'pub const SIZE: [u8; env!("OUT_DIR").len()] = [0; env!("OUT_DIR").len()];\n',
	],
	ids=["included", "told", "counted"],
)
def test_what_tells_its_folder_is_not_shared(text: str, folders: Rust) -> None:
	folders.write("one.rs", text)
	for to in ("here", "elsewhere"):
		folders.write(to + "/out/generated.rs", "pub fn generated() {}\n")
	time.sleep(0.1)
	for expected in ("miss", "hit"):
		for to in ("here", "elsewhere"):
			out = str(folders.folder / to / "out")
			assert compile_into(folders, ONE, to, OUT_DIR=out).startswith(expected)


def test_a_warning_about_a_generated_file_names_its_own_folder(folders: Rust) -> None:
	folders.write("one.rs", 'include!("here/generated.rs");\ninclude!("elsewhere/generated.rs");\n')
	folders.write("here/generated.rs", "fn unused() {}\n")
	folders.write("elsewhere/generated.rs", "fn idle() {}\n")
	folders.environ["RUSTFLAGS"] = ""
	time.sleep(0.1)
	line = ONE.replace("one.rs", "{to}/../one.rs")
	for expected in ("miss", "hit"):
		for to in ("here", "elsewhere"):
			assert compile_into(folders, line, to).startswith(expected)


def write_macro(folders: Rust, body: str) -> None:
	folders.write("mac.rs", "extern crate proc_macro;\n" + START + "\t" + body + END)
	time.sleep(0.1)
	line = MACRO.replace("{to}", str(folders.folder / "here")) + " --extern proc_macro"
	done = folders.run_argv(folders.words(line).split(), False)
	assert done.returncode == 0, done.stderr
	shutil.copy(str(folders.folder / ("here/libmac%s.so" % HASH)), str(folders.folder / "elsewhere"))
	time.sleep(0.1)


@pytest.mark.parametrize(
	("body", "is_shared"), [(BODIES["nothing"], True), (ARGUMENTS, False)], ids=["silent", "telling"]
)
def test_a_second_run_has_another_folder(body: str, is_shared: bool, folders: Rust) -> None:
	"""A macro knows the command line, so the second run gets one with another name of the folder."""
	prove(folders)
	write_macro(folders, body)
	verdicts: Dict[str, str] = {}
	for to in ("here", "elsewhere", "here"):
		line = folders.words(APP.replace("{to}", str(folders.folder / to)))
		plain = folders.run_argv(line.split(), False)
		expected = (folders.folder / to / "debug/app").read_bytes()
		shutil.rmtree(str(folders.folder / to / "debug"))
		(folders.folder / to / "debug/deps").mkdir(parents=True)
		time.sleep(0.1)
		done = folders.run_argv([folders.wafcc, *line.split()], False)
		assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
		assert (folders.folder / to / "debug/app").read_bytes() == expected
		verdicts[to] = folders.last()
		wait(folders)
	assert verdicts["here"].startswith("hit"), verdicts
	assert verdicts["elsewhere"].startswith("hit" if is_shared else "miss"), verdicts


def test_cargo_lends_its_jobserver(folders: Rust, tmp_path: pathlib.Path) -> None:
	"""rustc would warn of one that it is told of and does not have."""
	cargo = shutil.which("cargo")
	if not cargo:
		pytest.skip("there is no cargo")
	project = tmp_path / "project"
	for name, text in {
		"Cargo.toml": '[package]\nname = "project"\nversion = "1.0.0"\nedition = "2021"\n',
		"Cargo.lock": '[[package]]\nname = "project"\nversion = "1.0.0"\n',
		"build.rs": "fn main() {}\n",
		"src/lib.rs": "fn unused() {}\n",
	}.items():
		(project / name).parent.mkdir(parents=True, exist_ok=True)
		(project / name).write_text(text)
	time.sleep(0.1)
	homes = {"CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup"}
	known = {name: os.environ.get(name, str(pathlib.Path.home() / folder)) for name, folder in homes.items()}
	environ = {**folders.environ, **known, "CARGO_INCREMENTAL": "0", "CARGO_TERM_COLOR": "never"}
	said = {}
	for number, wrapper in enumerate(("", folders.wafcc, folders.wafcc)):
		line = [cargo, "build", "--offline", "--quiet", "--target-dir", str(tmp_path / ("target%d" % number))]
		done = subprocess.run(
			line,
			cwd=project,
			env={**environ, "RUSTC_WRAPPER": wrapper},
			capture_output=True,
			text=True,
			timeout=PATIENCE,
			check=False,
		)
		assert done.returncode == 0, done.stderr
		said[number] = done.stderr
	assert "unused" in said[0]
	assert said[1] == said[0]
	assert said[2] == said[0]
	assert folders.statistics()["hits"] > 0, folders.last()
