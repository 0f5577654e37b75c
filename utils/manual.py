"""
Writes the man page of our tools, ``docs/man/waf-extras.7``, from what their options say.

::

	python utils/manual.py           # writes it if it has changed
	python utils/manual.py --check   # fails if it would be written

The options are read from the tools, loaded into a Waf: a new one needs nothing but its line of help. The pages of
``wafd`` and ``wafcc`` are written by ``engine/examples/manual``.
"""

import argparse
import os
import pathlib
import re
import runpy
import sys
import textwrap
from typing import List

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/man/waf-extras.7"
DATE = "2026-11-22"  # of the first pages, so that the page does not depend on the day
ABOUT = (
	"The command waf of this package is Waf, with these tools within reach of opt.load. A project that loads a tool "
	"has its options; waf --help shows them beside Waf's own, which are not repeated here."
)
NOTES = (
	"The command why tells without building what a build would do and why, and why it was done the last time: all of "
	"the project, or what --why or --targets names."
)
MARKS = {"\\": "\\e", "-": "\\-", "…": "\\[u2026]", "‘": "\\[oq]", "’": "\\[cq]"}  # noqa: RUF001


def list_groups() -> List[argparse._ArgumentGroup]:
	"""The options that our tools add to Waf, one group after the other; of each group only these are left."""
	sys.path.insert(0, str(ROOT))
	os.environ["WAF_NO_PREFORK"] = "1"
	from waflib import Context, Options

	import waflib_extras

	waflib_extras.offer_tools()
	Context.run_dir = Context.launch_dir = Context.top_dir = str(ROOT)
	context = Options.OptionsContext()
	own = {id(action) for action in context.parser._actions}
	for tool in waflib_extras.TOOLS:
		context.load(tool)
	if hasattr(context, "add_late_options"):
		context.add_late_options()
	for group in context.parser._action_groups:
		group._group_actions = [action for action in group._group_actions if id(action) not in own]
	return [group for group in context.parser._action_groups if group._group_actions]


def make_page() -> str:
	version = runpy.run_path(str(ROOT / "waflib_extras" / "version.py"))["VERSION"]
	lines = [
		'.\\" Written by utils/manual.py from what --help says: change that instead.',
		'.TH WAF\\-EXTRAS 7 "%s" "waflib\\-extras %s"' % (DATE, version),
		".SH NAME",
		"waf\\-extras \\- tools that make Waf quick",
		".SH SYNOPSIS",
		".nf",
		"waf [\\fICOMMAND\\fR...] [\\fIOPTION\\fR...]",
		".fi",
		".SH DESCRIPTION",
		fold(ABOUT),
		".PP",
		fold(NOTES),
		".SH OPTIONS",
	]
	for group in list_groups():
		# argparse had another name for it before Python 3.10
		title = "options" if group.title == "optional arguments" else str(group.title)
		lines.append(".SS %s" % ('"%s"' % escape(title) if " " in title else escape(title)))
		for action in group._group_actions:
			lines += [".TP", bold_words(spell(action)), fold(action.help or "") or "\\&"]
	return "\n".join([*lines, ".SH SEE ALSO", "\\fBwafd\\fR(1),", "\\fBwafcc\\fR(1)"]) + "\n"


def spell(action: argparse.Action) -> str:
	flags = ", ".join(action.option_strings)
	if action.nargs == 0:
		return flags
	metavar = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
	return flags + ("=" if action.option_strings[-1].startswith("--") else " ") + str(metavar)


def escape(text: str) -> str:
	"""Text in which nothing acts on roff."""
	return "".join(MARKS.get(c, c if ord(c) < 128 else "\\[u%04X]" % ord(c)) for c in text)


def bold_words(text: str) -> str:
	"""Options in bold, what stands for values in italics."""
	escaped = re.sub(r"(?<![\w\\])((?:\\-){1,2}[A-Za-z](?:\w|\\-)*)", r"\\fB\1\\fR", escape(text))
	return re.sub(r"(?<![\w\\])([A-Z][A-Z]+)(?!\w)", r"\\fI\1\\fR", escaped)


def fold(text: str) -> str:
	"""Running text in lines of 78 columns, none of which roff takes for a request."""
	lines = textwrap.wrap(escape(text), 78, break_long_words=False, break_on_hyphens=False)
	return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)


def main() -> None:
	parser = argparse.ArgumentParser(description="Write the man page of our tools from what their options say.")
	parser.add_argument("--check", action="store_true", help="write nothing, and fail if something would be written")
	check = parser.parse_args().check
	file, text = ROOT / PAGE, make_page()
	if file.read_text(encoding="utf-8") == text:
		return
	if check:
		sys.exit("manual: %s is not what --help says: run python utils/manual.py" % PAGE)
	file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
	main()
