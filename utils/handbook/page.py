"""Man pages, as roff."""

import re
import textwrap
from typing import List, Sequence

from .text import Help, Option

MARKS = {"\\": "\\e", "-": "\\-", "…": "\\[u2026]", "‘": "\\[oq]", "’": "\\[cq]"}  # noqa: RUF001


def write(helps: Sequence[Help], section: int, version: str, date: str, summary: str, others: Sequence[str]) -> str:
	"""The page of a program; what follows its own help is that of its commands."""
	name = helps[0].name
	lines = [
		'.\\" Written by utils/manual.py from what --help says: change that instead.',
		'.TH %s %d "%s" "waflib\\-extras %s"' % (escape(name.upper()), section, date, version),
		".SH NAME",
		"%s \\- %s" % (escape(name), escape(summary)),
	]
	for one in helps:
		prefix = "" if one is helps[0] else one.name.upper() + ": "
		if one.usage:
			lines += [".SH %s" % heading(prefix + ("SYNOPSIS" if not prefix else "USAGE")), ".nf"]
			lines += [guard(bold_words(line)) for line in one.usage]
			lines.append(".fi")
		lines.append(".SH %s" % heading(prefix + "DESCRIPTION"))
		lines += join_paragraphs([escape(text) for text in one.about + one.notes])
		if one.commands:
			lines.append(".SH %s" % heading(prefix + "COMMANDS"))
			for command, text in one.commands:
				lines += [".TP", "\\fB%s\\fR" % escape(command), fold(escape(text))]
		if one.options:
			lines.append(".SH %s" % heading(prefix + "OPTIONS"))
			for option in one.options:
				lines += [".TP", bold_words(option.spec or spell(option)), fold(escape(option.text)) or "\\&"]
		if one.environment:
			lines.append(".SH %s" % heading(prefix + "ENVIRONMENT"))
			for variable, text in one.environment:
				if variable.upper() == variable:
					lines += [".TP", "\\fB%s\\fR" % escape(variable), fold(escape(text))]
				else:
					lines += [".PP", fold(escape(variable + " " + text).strip())]
		if one.examples:
			lines += [".SH %s" % heading(prefix + "EXAMPLES"), ".nf"]
			lines += [guard(escape(line)) for line in one.examples]
			lines.append(".fi")
	lines += [".SH SEE ALSO", ",\n".join("\\fB%s\\fR(%s)" % (escape(o[:-3]), o[-2]) for o in others)]
	return "\n".join(lines) + "\n"


def spell(option: Option) -> str:
	return ", ".join(option.flags) + (
		("=" if option.flags[-1].startswith("--") else " ") + option.metavar if option.metavar else ""
	)


def heading(text: str) -> str:
	return '"%s"' % escape(text) if " " in text else escape(text)


def escape(text: str) -> str:
	"""Text in which nothing acts on roff."""
	return "".join(MARKS.get(c, c if ord(c) < 128 else "\\[u%04X]" % ord(c)) for c in text)


def bold_words(text: str) -> str:
	"""Options in bold, what stands for values in italics."""
	escaped = escape(text)
	escaped = re.sub(r"(?<![\w\\])((?:\\-){1,2}[A-Za-z](?:\w|\\-)*)", r"\\fB\1\\fR", escaped)
	return re.sub(r"(?<![\w\\])([A-Z][A-Z]+)(?!\w)", r"\\fI\1\\fR", escaped)


def guard(line: str) -> str:
	"""A line that does not begin as a request does."""
	return "\\&" + line if line[:1] in (".", "'") else line


def fold(text: str) -> str:
	"""Running text, in lines that none of those who read the source find too long."""
	return "\n".join(guard(line) for line in textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False))


def join_paragraphs(paragraphs: List[str]) -> List[str]:
	lines: List[str] = []
	for text in paragraphs:
		lines += ([".PP"] if lines else []) + [fold(text)]
	return lines


def write_tools(groups: Sequence[Help], version: str, date: str, summary: str, others: Sequence[str]) -> str:
	"""The page of what is added to a program: groups of options, each with its title."""
	text = write([groups[0]], 7, version, date, summary, others)
	head, see_also = text.split(".SH SEE ALSO", 1)
	lines = [".SH OPTIONS"]
	for group in groups[1:]:
		lines.append(".SS %s" % heading(group.name))
		for option in group.options:
			lines += [".TP", bold_words(spell(option)), fold(escape(option.text)) or "\\&"]
	return head + "\n".join(lines) + "\n.SH SEE ALSO" + see_also
