"""The book: the commands on its pages work, its links lead somewhere, and the site can be read."""

import ast
import fcntl
import importlib
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

if not os.environ.get("CI"):
	pytest.importorskip("myst_parser", reason="pip install -r docs/requirements.txt")
import book_pages
from browser_support import wait

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
OTHERS = ("cluster",)  # pages whose commands need more than these tests have: test_cluster_book.py
DONE = [
	page
	for page in PAGES
	if page.stem not in OTHERS and any(isinstance(x, book_pages.Command) for x in book_pages.list_steps(page))
]
PROGRAMS = (
	r"(?:sudo |\w+=\S* )*"
	r"(?:\./waf|waf|wafx|wafd|wafcc|pip|python3?|utils/bench\.py|make|cmake|ninja|export(?= +\w)|git|cd)\s"
)


def list_blocks() -> List[book_pages.Block]:
	return [block for page in PAGES for block in book_pages.read_blocks(page)]


@pytest.fixture
def reader(tmp_path: pathlib.Path, runtime: pathlib.Path, engine: str) -> Iterator[Dict[str, str]]:
	"""The environment of a reader: a home with a clone in it, and our programs."""
	home = tmp_path / "home"
	programs = tmp_path / "bin"
	for folder in (home / "work", programs):
		folder.mkdir(parents=True)
	(home / "waflib-extras").symlink_to(ROOT)
	for name, module in (("waf", "launcher"), ("wafx", "wafx")):
		start = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom waflib_extras.{module} import main\nmain()\n"
		(programs / name).write_text(f"#!{sys.executable}\n{start}")
		(programs / name).chmod(0o755)
	for name in ("wafd", "wafcc"):
		(programs / name).symlink_to(os.path.join(os.path.dirname(os.path.realpath(engine)), name))
	# not a link, which would be a Python without the environment's packages
	(programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
	(programs / "python3").chmod(0o755)
	known = ("LANG", "TMPDIR", "WAFD_PATIENCE")
	yield {
		**{x: os.environ[x] for x in known if x in os.environ},
		"HOME": str(home),
		"PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
		"WAFD": engine,
		"WAFD_RUNTIME_DIR": str(runtime),
	}
	# a store of its own has an engine of its own, which the fixture `runtime` does not know
	for lock in runtime.glob("*/*.sock"):
		environ = dict(os.environ, WAFD_RUNTIME_DIR=str(lock.parent))
		subprocess.run([engine, "stop", "--now"], env=environ, capture_output=True, timeout=30, check=False)


def find_port() -> int:
	with socket.socket() as free:
		free.bind(("127.0.0.1", 0))
		return free.getsockname()[1]


@pytest.mark.parametrize("page", DONE, ids=lambda page: page.stem)
def test_commands(page: pathlib.Path, reader: Dict[str, str], tmp_path: pathlib.Path) -> None:
	"""A reader who types all commands of a page, in a new folder, sees the output that the page shows."""
	notes = tmp_path / "notes"
	notes.mkdir()
	wrong = book_pages.follow(page, pathlib.Path(reader["HOME"]) / "work", notes, reader, find_port())
	assert not wrong, "\n" + "\n".join(wrong)


class TestConventions:
	"""Checks that the pages are really tried."""

	def test_few_are_not_run(self) -> None:
		"""Few blocks are not run, and each gives the reason."""
		excused = [block for block in list_blocks() if block.not_run]
		assert len(excused) <= 16, [x.place for x in excused]
		assert all(len(x.not_run.split()) > 3 for x in excused), [(x.place, x.not_run) for x in excused]

	def test_no_command_is_hidden(self) -> None:
		"""No command is in a block that is not run."""
		hidden = [
			f"{block.place}: {line}"
			for block in list_blocks()
			if block.language not in book_pages.COMMANDS and not block.title
			for line in block.text.split("\n")
			if re.match(rf"\s*\$ |{PROGRAMS}", line)
		]
		assert not hidden

	def test_python_is_python(self) -> None:
		"""Each block of Python can be compiled."""
		for block in list_blocks():
			if block.language == "python":
				ast.parse(textwrap.dedent(block.text), block.place)

	def test_a_wrong_page_is_told(self, reader: Dict[str, str], tmp_path: pathlib.Path) -> None:
		"""A page with another output, or with a command that fails, is reported, and so is what comes after it."""
		page = tmp_path / "wrong.md"
		page.write_text(
			"```c\n/* a.c */\nint a;\n```\n```console\n$ wc -l a.c\n1 a.c\n$ echo one; echo two; echo three\none\n…\n"
			"$ echo is\nwas\n$ ! false\n$ false\n$ true\n```\n"
		)
		notes = tmp_path / "notes"
		notes.mkdir()
		wrong = book_pages.follow(page, tmp_path, notes, reader, find_port())
		assert [x.split(":", 2)[1] for x in wrong] == ["11", "14", "15"]
		assert "was" in wrong[0] and "status 1" in wrong[1] and "not reached" in wrong[2]


def test_figures() -> None:
	"""Each figure in the README's table is in docs/measured.md, with the command that printed it."""
	text = (ROOT / "README.md").read_text(encoding="utf-8")
	rows = re.findall(r"^\| .* \| \*\*(.+?)\*\* \| (.+?) \| \*\*(.+?)\*\* \| [\d.]+ \|$", text, re.M)
	measured = set(re.findall(r"[\d,.]*\d", (DOCS / "measured.md").read_text(encoding="utf-8")))
	assert len(rows) >= 8
	assert [x for row in rows for x in row if x.split()[0] not in measured] == []


def list_spans(start: str) -> List[Tuple[str, str]]:
	"""The `code` within lines that begin so, unless it is shortened: its place, and the words after it."""
	found = []
	for page in PAGES:
		for span in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)):
			text = " ".join(span.split())
			if text.startswith(start + " ") and "…" not in text:
				found.append((page.name, text[len(start) + 1 :]))
	return found


class TestInText:
	"""Commands within sentences and tables, which are not run: their options are there."""

	def test_benchmarks(self, monkeypatch: pytest.MonkeyPatch) -> None:
		"""bench.py accepts each command with which a figure was measured."""
		monkeypatch.syspath_prepend(str(ROOT / "utils"))
		arguments = importlib.import_module("benchmark.arguments")
		mistake = importlib.import_module("benchmark.mistake")
		commands = [x for name in ("utils/bench.py", "bench.py") for x in list_spans(name) if x[1] != "--help"]
		wrong = []
		for place, words in commands:
			try:
				argv = shlex.split(words)
				arguments.parse_readme(argv[1:]) if argv[:1] == ["readme"] else arguments.parse(argv)
			except mistake.Mistake as e:
				wrong.append(f"{place}: bench.py {words}: {e}")
		assert len(commands) > 30
		assert not wrong

	def test_programs(self, engine: str) -> None:
		"""wafd and wafcc have the options that pages give them."""
		wafcc = os.path.join(os.path.dirname(os.path.realpath(engine)), "wafcc")
		known = "--help --verbose"  # the latter is shown as -v
		wrong = []
		for start, command in (("wafcc", [wafcc]), ("wafd serve", [engine, "serve"]), ("wafd", [engine])):
			shown = subprocess.run([*command, "--help"], capture_output=True, encoding="utf-8", check=True).stdout
			for place, words in list_spans(start):
				if not (start == "wafd" and words.startswith("serve")):
					options = re.findall(r"(?<!\S)--[a-z][a-z-]+", words.split(" -- ")[0])
					wrong += [f"{place}: {start} {words}" for x in options if x not in (shown + known)]
		assert not wrong

	def test_waf(self, waf: Callable[..., Any], project: Callable[..., pathlib.Path]) -> None:
		"""Waf with our tools has the options that pages give it."""
		tools = "compiler_c prefork wafcc unity batch large pch resident"
		folder = project({"wscript": f"def options(opt):\n\topt.load('{tools}')\n"})
		shown = waf(folder, "--help").stdout
		spans = list_spans("waf")
		wrong = [
			f"{place}: waf {words}"
			for place, words in spans
			for x in re.findall(r"(?<!\S)--[a-z][a-z-]+", words)
			if x not in shown
		]
		assert len(spans) > 15
		assert not wrong


class TestSettings:
	"""The tables for users of other caches."""

	def test_all_of_ccache(self) -> None:
		"""Every setting of the installed ccache is in the table, by its name."""
		if not shutil.which("ccache"):
			pytest.skip("apt-get install ccache")
		shown = subprocess.run(["ccache", "--show-config"], capture_output=True, encoding="utf-8", check=True).stdout
		settings = {x.split(") ", 1)[1].split(" =")[0] for x in shown.splitlines()}
		table = (DOCS / "moving.md").read_text(encoding="utf-8")
		assert len(settings) > 30
		assert [x for x in sorted(settings) if f"`{x}`" not in table] == []

	def test_ours_are_there(self, engine: str) -> None:
		"""The programs have every variable of ours that the pages name."""
		wafd = pathlib.Path(os.path.realpath(engine))
		programs = wafd.read_bytes() + wafd.with_name("wafcc").read_bytes()
		named = {x for page in PAGES for x in re.findall(r"\bWAFCC_[A-Z]+\b", page.read_text(encoding="utf-8"))}
		assert len(named) > 10
		assert [x for x in sorted(named) if x.encode() not in programs] == []


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
	"""The book as ./waf book makes it, with each warning an error: a page in no list, a link or anchor to nothing."""
	base = tmp_path_factory.getbasetemp()
	folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
	command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "trees")]
	with open(folder / "book.lock", "w") as lock:
		fcntl.flock(lock, fcntl.LOCK_EX)
		if not (folder / "built").exists():  # by another worker
			done = subprocess.run(
				[*command, str(DOCS), str(folder / "book")],
				capture_output=True,
				encoding="utf-8",
				timeout=100,
				check=False,
			)
			assert done.returncode == 0, done.stderr
			(folder / "built").touch()
	return folder / "book"


class TestSite:
	"""The site, as a browser shows it."""

	def test_links(self, site: pathlib.Path) -> None:
		"""Every link within the site leads to an existing page, picture or anchor."""
		pages = {x.name: x.read_text(encoding="utf-8") for x in site.glob("*.html")}
		lost = []
		for name, text in pages.items():
			body = text.split('<article role="main"', 1)[-1]
			for target in re.findall(r'(?:href|src)="([^"]+)"', body):
				path, _, anchor = target.split("?")[0].partition("#")
				if re.match(r"[a-z]+:", target):
					continue
				there = not path or (site / path).exists()
				if not there or (anchor and f'id="{anchor}"' not in pages.get(path or name, "")):
					lost.append(f"{name}: {target}")
		assert len(pages) > 20
		assert not lost

	def test_readme_links(self) -> None:
		"""The targets of links in the README and in CONTRIBUTING.md are in the repository."""
		for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
			links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
			assert [x for x in links if not (ROOT / x).exists()] == []

	def test_every_page_is_listed(self, site: pathlib.Path) -> None:
		"""The first page lists every other one."""
		index = (site / "index.html").read_text(encoding="utf-8")
		assert [x.stem for x in DOCS.glob("*.md") if x.stem != "index" and f'href="{x.stem}.html"' not in index] == []

	def test_reading(self, site: pathlib.Path, look: Callable[..., Any]) -> None:
		"""A reader opens the book from the disk, goes to a page by its name, and finds a word."""
		page = look((site / "index.html").as_uri())
		page.click("article >> text=Start in five minutes")
		wait(page, "article", "prefork wafcc")
		page.fill("input[name=q]", "masquerading")
		page.press("input[name=q]", "Enter")
		wait(page, "ul.search li a", "oving")

	def test_on_a_phone(self, site: pathlib.Path, look: Callable[..., Any]) -> None:
		"""On a phone no page is wider than the window. Wide parts scroll by themselves."""
		page = look((site / "index.html").as_uri(), size="phone", dark=True)
		for file in sorted(site.glob("*.html")):
			page.goto(file.as_uri())
			assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), file.name
