"""
Writes the man pages of ``docs/man`` and the completions of ``engine/completions``, all from what ``--help`` says.

::

	python utils/manual.py           # writes what has changed
	python utils/manual.py --check   # fails if something would be written

The texts of ``wafd`` and ``wafcc`` are read from their sources, those of ``waf`` from the tools, loaded into a Waf. So
a new option needs nothing but its line of help; a test compares the pages with what the programs print.
"""

import argparse
import os
import pathlib
import re
import runpy
import sys
from typing import Dict, List

from handbook import page, shells
from handbook.text import Help, Option, parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = {
	"wafd": "engine/src/bin/wafd.rs",
	"wafd serve": "engine/src/team/options.rs",
	"wafd dashboard": "engine/src/dashboard/options.rs",
	"wafcc": "engine/src/wafcc/act.rs",
}
TEXT = re.compile(r'const HELP: &str = "\\\n(.*?)";\n', re.S)
DATE = "2026-11-22"  # of the first pages: the day on which somebody runs this is of no interest
ABOUT_WAF = (
	"The command waf of this package is Waf, with these tools within reach of opt.load. A project that loads a tool "
	"has its options; waf --help shows them beside Waf's own, which are not repeated here."
)
NOTES_OF_WAF = (
	"The command why tells without building what a build would do and why, and why it was done the last time: all of "
	"the project, or what --why or --targets names.",
)
PAGES = ("wafd(1)", "wafcc(1)", "waf-extras(7)")


def read_help(name: str) -> Help:
	"""The help of one of our programs, from its source."""
	found = TEXT.search((ROOT / SOURCES[name]).read_text(encoding="utf-8"))
	if not found:
		sys.exit("manual: there is no HELP in %s" % SOURCES[name])
	return parse(name, found.group(1).replace('\\"', '"').replace("\\\\", "\\"))


def read_tools() -> List[Help]:
	"""The options that our tools add to Waf, one group after the other."""
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
	about = Help("waf-extras", [ABOUT_WAF], ["waf [COMMAND...] [OPTION...]"], [], [], [], [], [])
	helps = [about._replace(notes=[*NOTES_OF_WAF])]
	for group in context.parser._action_groups:
		options = [read_action(action) for action in group._group_actions if id(action) not in own]
		if options:
			# argparse had another name for it before Python 3.10
			title = "options" if group.title == "optional arguments" else group.title
			helps.append(Help(title, [], [], [], options, [], [], []))
	return helps


def read_action(action: argparse.Action) -> Option:
	text = action.help or ""
	metavar = ""
	if action.nargs != 0:
		metavar = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
	return Option(tuple(action.option_strings), str(metavar), text)


def make_files() -> Dict[str, str]:
	"""By path: what is to be there."""
	version = runpy.run_path(str(ROOT / "waflib_extras" / "version.py"))["VERSION"]
	wafd, serve, dashboard, wafcc = (read_help(name) for name in SOURCES)
	parts = [serve, dashboard]
	tools = read_tools()
	groups = [one._replace(name="waf-extras") for one in tools[:1]] + tools[1:]
	made = {
		"docs/man/wafd.1": page.write([wafd, *parts], 1, version, DATE, "run the commands of builds", PAGES[1:]),
		"docs/man/wafcc.1": page.write(
			[wafcc], 1, version, DATE, "compile with a cache that observes compilers", [PAGES[0], PAGES[2]]
		),
		"docs/man/waf-extras.7": page.write_tools(groups, version, DATE, "tools that make Waf quick", PAGES[:2]),
	}
	waf = Help("waf", [], [], [], [], [], [], [])
	for main, rest in ((wafd, parts), (wafcc, []), (waf, [])):
		made["engine/completions/bash/" + main.name] = shells.bash(main, rest)
		made["engine/completions/zsh/_" + main.name] = shells.zsh(main, rest)
		made["engine/completions/fish/%s.fish" % main.name] = shells.fish(main, rest)
	return made


def main() -> None:
	parser = argparse.ArgumentParser(description="Write man pages and completions from what --help says.")
	parser.add_argument("--check", action="store_true", help="write nothing, and fail if something would be written")
	check = parser.parse_args().check
	stale = []
	for path, text in make_files().items():
		file = ROOT / path
		if file.exists() and file.read_text(encoding="utf-8") == text:
			continue
		stale.append(path)
		if not check:
			file.parent.mkdir(parents=True, exist_ok=True)
			file.write_text(text, encoding="utf-8")
	if check and stale:
		sys.exit("manual: not what --help says: %s: run python utils/manual.py" % ", ".join(stale))
	print("\n".join(stale) if stale else "all as it is said")


if __name__ == "__main__":
	main()
