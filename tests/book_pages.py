"""
The book's pages as what they have a reader do: files to write, commands to give, and what these should answer.

A page is written so:
- a block of `console` has commands behind "$ ", and below each what it prints; a block of `sh` has commands alone;
- in what is printed, "…" is any text of a line, and alone on a line any lines; where nothing is, nothing is compared;
- a command is to end with 0; one that is to fail says so in the page, as `! command`;
- of a command that goes on in the background (`… &`) what it prints is waited for;
- a block whose first line is a comment with nothing but a path (`# wscript`) is that file;
- a comment before a block, `<!-- not run: REASON -->`, is for what no test can do.
"""

import contextlib
import dataclasses
import pathlib
import re
import shlex
import subprocess
from typing import Dict, Iterator, List, Optional, Tuple, Union

from markdown_it import MarkdownIt

COMMANDS = ("console", "sh")
TITLE = re.compile(r"^(?:#|//|/\*|;) ?([\w./-]+\.\w+|wscript|\w+/wscript|Makefile)(?: \*/)?$")
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->", re.S)
ANY = "…"
PORT = "7117"  # where the book has a server listen; the tests take one that is free
PATIENCE = 100  # seconds for a page, and for a background command to begin


@dataclasses.dataclass
class Block:
	"""A block of code on a page."""

	page: pathlib.Path
	line: int
	language: str
	text: str
	not_run: Optional[str]

	@property
	def place(self) -> str:
		return f"{self.page.name}:{self.line}"

	@property
	def title(self) -> Optional[str]:
		"""The file that the block is."""
		found = TITLE.match(self.text.split("\n", 1)[0])
		return found.group(1) if found and self.language not in COMMANDS else None


@dataclasses.dataclass
class File:
	"""A file that the page has its reader write."""

	place: str
	path: str
	content: str


@dataclasses.dataclass
class Command:
	"""A command that the page tells the reader to type, and what it prints."""

	place: str
	text: str
	printed: List[str]

	@property
	def goes_on(self) -> bool:
		"""Whether it stays in the background."""
		return self.text.endswith("&") and not self.text.endswith("&&")


Step = Union[File, Command]


def read_blocks(page: pathlib.Path) -> List[Block]:
	"""All blocks of code of a page, indented ones too, which have no language."""
	blocks = []
	before = ""
	for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
		if token.type in ("fence", "code_block"):
			reason = NOT_RUN.search(before)
			language = token.info.split()[0] if token.info.split() else ""
			said = " ".join(reason.group(1).split()) if reason else None
			blocks.append(Block(page, token.map[0] + 1, language, token.content.rstrip("\n"), said))
		before = token.content if token.type == "html_block" else ""
	return blocks


def list_steps(page: pathlib.Path) -> List[Step]:
	"""The steps of a reader who follows the page from its beginning to its end."""
	steps: List[Step] = []
	for block in read_blocks(page):
		if block.not_run:
			continue
		if block.title:
			steps.append(File(block.place, block.title, block.text.split("\n", 1)[1] + "\n"))
		elif block.language in COMMANDS:
			steps += list_commands(block)
	return steps


def list_commands(block: Block) -> Iterator[Command]:
	"""The commands of a block; a line that ends with a backslash, or begins a here-document, goes on."""
	lines = block.text.split("\n")
	at = 0
	while at < len(lines):
		place = f"{block.page.name}:{block.line + 1 + at}"
		first = lines[at]
		at += 1
		if block.language == "console":
			assert first.startswith("$ "), f"{place}: neither a command nor what one prints: {first}"
			first = first[2:]
		if not first.strip() or first.lstrip().startswith("#"):
			continue
		typed = [first]
		end = re.search(r"<<\s*'?(\w+)'?", first)
		while at < len(lines) and (typed[-1].endswith("\\") or (end and typed[-1] != end.group(1))):
			typed.append(lines[at])
			at += 1
		printed = []
		while block.language == "console" and at < len(lines) and not lines[at].startswith("$ "):
			printed.append(lines[at])
			at += 1
		yield Command(place, "\n".join(typed), printed)


def fits(printed: List[str], expected: List[str]) -> bool:
	"""Tell whether printed lines match those that a page shows."""
	pattern = ""
	for line in expected:
		if line.strip() == ANY:
			pattern += r"(?:[^\n]*\n)*?"
		else:
			pattern += ".*".join(re.escape(x) for x in line.rstrip().split(ANY)) + r"[ \t]*\n"
	return re.fullmatch(pattern, "".join(x + "\n" for x in printed)) is not None


def write_script(steps: List[Step], notes: pathlib.Path, port: int) -> str:
	"""
	A script for one shell, so that folders and variables last from a page's command to its next.

	It notes of each step what was printed and the status, and stops at the first that did not end as it should.
	"""
	script = ["trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT"]
	for number, step in enumerate(steps):
		# no reader types that fast: a file that changed just before is not stored
		script.append("sleep 0.03")
		note = shlex.quote(str(notes / str(number)))
		if isinstance(step, File):
			(notes / f"{number}.file").write_text(step.content.replace(PORT, str(port)), encoding="utf-8")
			script.append(f'mkdir -p "$(dirname {step.path})" && cp {note}.file {step.path} && echo 0 > {note}.status')
			continue
		# the redirection surrounds the command, so that it may have several lines
		script.append("{ :; %s\n} > %s.printed 2>&1 < /dev/null" % (step.text.replace(PORT, str(port)), note))
		script.append(f"status=$?; echo $status > {note}.status; [ $status = 0 ] || exit 1")
		if step.goes_on:
			script.append(f"for _ in $(seq {PATIENCE * 20}); do")
			script.append(f"[ $(wc -l < {note}.printed) -lt {len(step.printed)} ] || break; sleep 0.05; done")
	return "\n".join(script)


def follow(page: pathlib.Path, folder: pathlib.Path, notes: pathlib.Path, env: Dict[str, str], port: int) -> List[str]:
	"""Do what a page says, in a folder; what did not go as the page has it."""
	steps = list_steps(page)
	script = notes / "page.sh"
	script.write_text(write_script(steps, notes, port), encoding="utf-8")
	with contextlib.suppress(subprocess.TimeoutExpired):  # the steps that were not reached show where it hangs
		subprocess.run(["bash", str(script)], cwd=folder, env=env, timeout=PATIENCE, check=False)
	return [x for x in (judge(step, notes / str(n), port) for n, step in enumerate(steps)) if x]


def judge(step: Step, note: pathlib.Path, port: int) -> str:
	"""The errors of a step, with all that its command printed; empty if it went well."""
	status, printed = read_note(note, port)
	if isinstance(step, File):
		return "" if status == "0" else f"{step.place}: {step.path} was not written"
	shown = indent([f"$ {step.text}", *printed])
	if status is None:
		return f"{step.place}: not reached: {step.text}"
	if status != "0":
		return f"{step.place}: status {status}{shown}"
	# a background command prints more while others run
	if step.printed and not fits(printed[: len(step.printed)] if step.goes_on else printed, step.printed):
		return f"{step.place}: the page has{indent(step.printed)}\n  and it was{shown}"
	return ""


def indent(lines: List[str]) -> str:
	return "".join(f"\n    {x}" for x in lines)


def read_note(note: pathlib.Path, port: int) -> Tuple[Optional[str], List[str]]:
	"""Status and lines that were noted of a step, with the book's port for the one that was free."""
	status = note.with_suffix(".status")
	printed = note.with_suffix(".printed")
	text = printed.read_text(encoding="utf-8", errors="replace") if printed.exists() else ""
	text = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", text).replace(str(port), PORT)
	return status.read_text().strip() if status.exists() else None, text.splitlines()
