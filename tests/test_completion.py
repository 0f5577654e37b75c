"""Completions and man pages: they have the same options as --help, and shells accept them."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List

import pytest
from conftest import leave_out
from programs import build, find_lint, name_packages

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
MADE = ROOT / "engine" / "completions"
PAGES = ROOT / "docs" / "man"
DEADLINE = 60
HELPS = (
	("wafd", ("--help",)),
	("wafd", ("serve", "--help")),
	("wafd", ("dashboard", "--help")),
	("wafd", ("worker", "--help")),
	("wafcc", ("--help",)),
)


def run(command: List[str], **kwargs: Any) -> str:
	done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=DEADLINE, check=False, **kwargs)
	assert done.returncode == 0, (command, done.stdout, done.stderr)
	return done.stdout


@pytest.fixture
def programs(engine: str) -> Dict[str, str]:
	return {"wafd": engine, "wafcc": str(pathlib.Path(engine).parent / "wafcc")}


@pytest.fixture
def environ(engine: str, tmp_path: pathlib.Path, runtime: pathlib.Path) -> Dict[str, str]:
	"""Our programs along PATH, a `waf` of this tree among them, and a home of the test's own."""
	folder = tmp_path / "bin"
	folder.mkdir()
	waf = folder / "waf"
	code = "import sys; sys.path.insert(0, %r); from waflib_extras import launcher; launcher.main()" % str(ROOT)
	waf.write_text(
		'#!/bin/sh\necho called >> "%s"\nexec "%s" -c \'%s\' "$@"\n'
		% (tmp_path / "calls", sys.executable, code.replace("'", '"'))
	)
	waf.chmod(0o755)
	path = os.pathsep.join([str(folder), os.path.dirname(engine), os.environ["PATH"]])
	return {
		**os.environ,
		"PATH": path,
		"HOME": str(tmp_path),
		"XDG_CACHE_HOME": str(tmp_path / "cache"),
		"LC_ALL": "C.UTF-8",
	}


def find(program: str) -> str:
	path = shutil.which(program)
	if path:
		return path
	leave_out("there is no %s: apt-get install zsh fish man-db" % program)


# ---- one source


def test_the_page_of_the_tools_is_up_to_date() -> None:
	"""The man page of the tools is up to date with their options."""
	environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
	run([sys.executable, str(ROOT / "utils" / "manual.py"), "--check"], env=environ)


@pytest.mark.timeout(600)
def test_what_is_made_of_command_lines_is_up_to_date() -> None:
	"""Pages, completions and the table of settings are up to date with the definitions."""
	cargo = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
	if not cargo:
		pytest.skip("needs cargo")
	environ = {**os.environ, **find_lint(cargo, os.environ)}
	(program,) = build(cargo, [*name_packages(cargo), "--example", "manual"], environ)
	argv = [program["executable"], "--check"]
	made = subprocess.run(argv, cwd=ROOT / "engine", capture_output=True, encoding="utf-8", check=False)
	assert made.returncode == 0, made.stderr


def read_flags(text: str) -> List[str]:
	"""The options of a help text: in the usage of the program itself, and in the list of options."""
	usage, _, rest = text.partition("Usage: ")[2].partition("\n\n")
	listed = rest.partition("Options:\n")[2].partition("\n\n")[0]
	specs = [re.split(r" {2,}", line.strip())[0] for line in listed.splitlines()]
	return sorted({flag for line in [*usage.splitlines(), *specs] for flag in FLAG.findall(line.replace("docs/", ""))})


@pytest.mark.parametrize(("program", "arguments"), HELPS)
def test_every_option_is_in_page_and_completion(programs: Dict[str, str], program: str, arguments: Any) -> None:
	"""Pages and completions have the options of the programs' help, and no others."""
	flags = read_flags(run([programs[program], *arguments]))
	assert len(flags) > 2
	text = (PAGES / (program + ".1")).read_text().replace("\\-", "-")
	page = re.sub(r"\\f[BIR]", "", text)
	known = {flag for name, words in HELPS if name == program for flag in read_flags(run([programs[name], *words]))}
	texts = [(MADE / shell).read_text() for shell in ("bash/" + program, "zsh/_" + program)]
	fish = (MADE / "fish" / (program + ".fish")).read_text()
	for flag in flags:
		assert re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(flag), page), flag
		if flag.startswith("--"):
			assert all(re.search(r"(?<![\w-])%s(?![\w-])" % flag, text) for text in texts), flag
			assert re.search(r"-l %s\b" % flag[2:], fish), flag
	in_bold = re.findall(r"\\fB(--?[A-Za-z][\w-]*)\\fR", text)
	assert set(in_bold) <= known | {"-v"}


def test_the_page_of_tools_has_their_options(waf: Any, project: Any) -> None:
	"""The page has all options that `waf --help` shows beyond Waf's own, with all tools loaded, and no others."""
	from waflib_extras import TOOLS
	from waflib_extras.console import completion

	folder = project({"wscript": "def options(opt):\n\topt.load(%r)\n" % " ".join(TOOLS)})
	bare = project({"wscript": "def options(opt):\n\tpass\n"}, "bare")

	def ask(place: pathlib.Path) -> set:
		shown = completion.parse(waf(place, "--help", env={"WAF_NO_RESIDENT": "1"}).stdout)
		return {word.rstrip("=") for word, _ in shown if word.startswith("-")}

	page = (PAGES / "waf-extras.7").read_text().replace("\\-", "-")
	options = page.partition(".SH OPTIONS")[2].partition(".SH SEE")[0]
	heads = [line for before, line in zip(options.splitlines(), options.splitlines()[1:]) if before == ".TP"]
	assert {flag for head in heads for flag in re.findall(r"\\fB(--?[A-Za-z][\w-]*)\\fR", head)} == ask(folder) - ask(
		bare
	)


@pytest.mark.parametrize("page", ["wafd.1", "wafcc.1", "waf-extras.7"])
def test_man_shows_the_pages(page: str) -> None:
	"""The program man prints no warning about them."""
	environ = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
	command = [find("man"), "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(PAGES / page)]
	done = subprocess.run(command, env=environ, capture_output=True, encoding="utf-8", timeout=DEADLINE, check=False)
	assert (done.returncode, done.stderr) == (0, "")
	shown = run([find("man"), "-l", str(PAGES / page)], env=environ)
	assert re.search(r"^NAME\n +%s - \w" % page[:-2], shown, re.M)
	assert "--" in shown


# ---- shells


BASH = """\
source "$1" || exit 3
COMP_WORDS=("${@:2}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMP_LINE="${COMP_WORDS[*]}"
COMP_POINT=${#COMP_LINE}
spec=$(complete -p "$2") || exit 4
[[ $spec == *"-F _$2 "* ]] || exit 5
"_$2" "$2" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
((${#COMPREPLY[@]})) && printf '%s\\n' "${COMPREPLY[@]}" || true
"""


def complete(environ: Dict[str, str], folder: pathlib.Path, *words: str) -> List[str]:
	"""The words that bash offers for the last of these words."""
	command = ["bash", "--norc", "-c", BASH, "bash", str(MADE / "bash" / words[0]), *words]
	return run(command, env=environ, cwd=folder).split()


def test_bash_completes_wafd(environ: Dict[str, str], tmp_path: pathlib.Path) -> None:
	"""Bash offers commands, the options of a command, and files where files are expected, and otherwise nothing."""
	(tmp_path / "cert.pem").write_text("")
	assert complete(environ, tmp_path, "wafd", "st") == ["start", "status", "stop"]
	assert complete(environ, tmp_path, "wafd", "status", "--") == ["--json", "--help"]
	assert "--tls-cert" in complete(environ, tmp_path, "wafd", "serve", "--t")
	assert complete(environ, tmp_path, "wafd", "serve", "--tls-cert", "ce") == ["cert.pem"]
	assert complete(environ, tmp_path, "wafd", "serve", "--workers", "") == []
	assert complete(environ, tmp_path, "wafd", "worker", "--sl") == ["--slots"]
	assert complete(environ, tmp_path, "wafd", "completion", "")[-3:] == ["bash", "zsh", "fish"]


def test_bash_completes_wafcc(environ: Dict[str, str], tmp_path: pathlib.Path) -> None:
	"""Options first; after a compiler its own words; settings by name."""
	(tmp_path / "source.c").write_text("")
	assert complete(environ, tmp_path, "wafcc", "--show") == ["--show-stats", "--show-config"]
	assert "bash" in complete(environ, tmp_path, "wafcc", "bas")
	assert complete(environ, tmp_path, "wafcc", "gcc", "-c", "sou") == ["source.c"]
	assert complete(environ, tmp_path, "wafcc", "run", "--n") == ["--no-cache"]
	assert complete(environ, tmp_path, "wafcc", "-k", "max_") == ["max_size"]
	assert complete(environ, tmp_path, "wafcc", "--set-config", "max_") == ["max_size="]
	assert "source.c" in complete(environ, tmp_path, "wafcc", "--explain", "s")


def test_bash_completes_waf(environ: Dict[str, str], project: Any, tmp_path: pathlib.Path) -> None:
	"""Commands and options of the project in this folder, which is asked once until a wscript has changed."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
		opt.recurse("sub")
	def bench(ctx):
		'''measures'''
	"""
	sub = "def options(opt):\n\topt.add_option('--with-foo', dest='foo', help='the foo')\n"
	folder = project({"wscript": wscript, "sub/wscript": sub})
	assert complete(environ, folder, "waf", "be") == ["bench"]
	assert complete(environ, folder, "waf", "bench", "bui") == ["build"]
	assert complete(environ, folder, "waf", "build", "--wit") == ["--with-foo="]
	assert complete(environ, folder, "waf", "--no-pre") == ["--no-prefork"]
	words = run(["waf", "--completion-words"], env=environ, cwd=folder)
	assert re.search(r"^bench\tmeasures$", words, re.M)
	assert re.search(r"^--with-foo=\tthe foo$", words, re.M)
	(kept,) = (tmp_path / "cache" / "waflib-extras").iterdir()
	# a wrong stored answer shows that the project is not asked again
	kept.write_text(kept.read_text().replace('"bench"', '"banch"'))
	assert complete(environ, folder, "waf", "ba") == ["banch"]
	(folder / "sub" / "wscript").write_text(sub.replace("foo", "bars"))
	assert complete(environ, folder, "waf", "build", "--with") == ["--with-bars="]
	assert complete(environ, folder, "waf", "ba") == []


def test_no_project_is_no_trouble(environ: Dict[str, str], tmp_path: pathlib.Path) -> None:
	"""Without a wscript, or with one that fails, only words are printed, and nothing is kept for long."""
	(tmp_path / "wscript").write_text("def options(opt):\n\traise ValueError('no')\n")
	done = subprocess.run(
		["waf", "--completion-words"], env=environ, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
	)
	assert "Traceback" not in done.stdout + done.stderr
	(tmp_path / "wscript").write_text("def options(opt):\n\tpass\ndef mine(ctx):\n\tpass\n")
	assert "mine\t" in run(["waf", "--completion-words"], env=environ, cwd=tmp_path)


ZSH = """\
autoload -Uz compinit && compinit -u -D
eval "$(%s completion zsh)"
print -l ${_comps[wafd]} ${_comps[wafcc]} ${_comps[waf]}
"""


def test_zsh_takes_them(environ: Dict[str, str], programs: Dict[str, str]) -> None:
	"""The output of `wafd completion zsh` defines a function for each program."""
	shown = run([find("zsh"), "-f", "-c", ZSH % programs["wafd"]], env=environ)
	assert shown.split() == ["_wafd", "_wafcc", "_waf"]


ZSH_SESSION = """\
PS1='READY>'
autoload -Uz compinit && compinit -u -D
zstyle ':completion:*' verbose no
LISTMAX=0
eval "$(%s completion zsh)"
"""


def test_zsh_completes(environ: Dict[str, str], programs: Dict[str, str], tmp_path: pathlib.Path) -> None:
	"""A tab after a part of a word makes the whole of it."""
	(tmp_path / ".zshrc").write_text(ZSH_SESSION % programs["wafd"])
	master, slave = pty.openpty()
	environ = {**environ, "ZDOTDIR": str(tmp_path), "TERM": "dumb"}
	command = [find("zsh"), "-d", "-i"]
	process = subprocess.Popen(
		command, env=environ, cwd=tmp_path, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
	)
	os.close(slave)
	shown = b""

	def wait_for(wanted: bytes) -> None:
		nonlocal shown
		deadline = time.monotonic() + DEADLINE
		while wanted not in shown:
			assert time.monotonic() < deadline, shown
			if select.select([master], [], [], 0.2)[0]:
				shown += os.read(master, 4096)

	try:
		wait_for(b"READY>")
		os.write(master, b"wafd stat\t")
		wait_for(b"wafd status")
		os.write(master, b"--js\t")
		wait_for(b"--json")
		os.write(master, b"\x15wafcc --show-st\t")
		wait_for(b"wafcc --show-stats")
	finally:
		process.kill()
		process.wait()
		os.close(master)


def test_fish_completes(environ: Dict[str, str], programs: Dict[str, str], project: Any) -> None:
	"""Commands, options of a command only, and the words of a project."""
	folder = project({"wscript": "def options(opt):\n\tpass\ndef bench(ctx):\n\tpass\n"})
	script = "%s completion fish | source; complete -C $argv[1]" % programs["wafd"]

	def offer(line: str) -> List[str]:
		shown = run([find("fish"), "-N", "-c", script, line], env=environ, cwd=folder)
		return [row.split("\t")[0] for row in shown.splitlines()]

	assert offer("wafd sta") == ["start", "status"]
	assert "--json" in offer("wafd status --")
	assert "--json" not in offer("wafd stop --")
	assert "--show-stats" in offer("wafcc --show")
	assert offer("wafcc --explain wsc") == ["wscript"]
	assert offer("waf ben") == ["bench"]


@pytest.mark.parametrize(("shell", "says"), [("csh", "no completion for csh"), ("", "for which shell")])
def test_other_shells_are_refused(programs: Dict[str, str], shell: str, says: str) -> None:
	"""One line says which shells there are."""
	command = [programs["wafd"], "completion", *([shell] if shell else [])]
	done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=DEADLINE, check=False)
	assert done.returncode == 1
	assert says in done.stderr
	assert done.stderr.count("\n") == 1
