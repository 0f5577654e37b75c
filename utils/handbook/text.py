"""
A program's help text as a value.

The texts have paragraphs, ``Usage:``, and sections whose lines have a left part and, from one column on, a right part.
"""

import re
from typing import Dict, List, NamedTuple, Tuple

FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
METAVAR = re.compile(r"(?:^| |\[)([A-Z]+(?:=[A-Z]+)?)")
SECTION = re.compile(r"^([A-Z][a-z]+):$")


class Option(NamedTuple):
	flags: Tuple[str, ...]
	metavar: str
	text: str
	also: Tuple[str, ...] = ()
	"""Options that go with this one only."""
	spec: str = ""
	"""As the help has it."""


class Help(NamedTuple):
	name: str
	about: List[str]
	usage: List[str]
	commands: List[Tuple[str, str]]
	options: List[Option]
	environment: List[Tuple[str, str]]
	notes: List[str]
	examples: List[str]

	def flags(self) -> List[str]:
		"""All options, also those that only the usage names."""
		found = [flag for option in self.options for flag in option.flags + option.also]
		found += [flag for line in self.usage if line.startswith(self.name) for flag in FLAG.findall(line)]
		return list(dict.fromkeys(found))

	def flags_of(self, command: str) -> List[str]:
		"""The options that the usage of a command names."""
		start = "%s %s" % (self.name, command)
		found = [flag for line in self.usage if line.startswith(start) for flag in FLAG.findall(line)]
		return list(dict.fromkeys(found))

	def option(self, flag: str) -> Option:
		"""What is said of an option."""
		for option in self.options:
			if flag in option.flags:
				return option
		return Option((flag,), "", "")


def parse(name: str, text: str) -> Help:
	"""The value of a help text."""
	paragraphs: List[str] = []
	parts: Dict[str, List[str]] = {"": []}
	section = ""
	for line in text.splitlines():
		if line.startswith("Usage: "):
			section = "Usage"
			parts[section] = [line[len("Usage: ") :]]
		elif SECTION.match(line):
			section = SECTION.match(line).group(1)  # type: ignore[union-attr]
			parts[section] = []
		elif not line:
			section = ""
			parts[""].append("")
		elif section == "Usage":
			parts[section].append(line.strip())
		else:
			parts[section].append(line)
	paragraphs = [" ".join(block.split("\n")) for block in "\n".join(parts[""]).split("\n\n") if block.strip()]
	paragraphs = [" ".join(paragraph.split()) for paragraph in paragraphs]
	first = 1 if text.startswith(paragraphs[0][:20]) else 0
	return Help(
		name,
		paragraphs[:first],
		parts.get("Usage", []),
		split(parts.get("Commands", [])),
		[read_option(left, right) for left, right in split(parts.get("Options", []))],
		split(parts.get("Environment", [])),
		paragraphs[first:],
		[line.strip() for line in parts.get("Examples", [])],
	)


def split(lines: List[str]) -> List[Tuple[str, str]]:
	"""The parts of each line: they part at the column where most right parts begin."""
	columns = [found.end() for line in lines for found in [re.match(r"\s+\S.*?\s{2,}(?=\S)", line)] if found]
	column = max(set(columns), key=columns.count) if columns else 0
	pairs: List[Tuple[str, str]] = []
	for line in lines:
		if column and len(line) > column and line[column - 1] == " ":
			pairs.append((line[:column].strip(), line[column:].strip()))
		elif re.match(r"\s+\S", line):
			pairs.append((line.strip(), ""))
		else:
			pairs[-1] = pairs[-1][0], (pairs[-1][1] + " " + line.strip()).strip()
	return pairs


def read_option(spec: str, text: str) -> Option:
	"""An option of its left and its right part, such as ``-s, --show-stats [--json] [-v]``."""
	head, *rest = re.split(r" (?=\[-)", spec)
	metavar = METAVAR.search(head)
	also = tuple(flag for part in rest for flag in FLAG.findall(part))
	return Option(tuple(FLAG.findall(head)), metavar.group(1) if metavar else "", text, also, spec)
