"""
Finds what a C or C++ file leaves behind for the next file of the same unit, and by what it would be affected itself.

Pure: a text goes in, facts come out. The text is read in one pass without a preprocessor, so both sides of an ``#if``
count. If that is not certain enough, the facts tell that the file has to be compiled alone, or last, and why.
"""

import re
from typing import Dict, List, NamedTuple, Set, Tuple, Union

from .declarations import Declarations, State
from .tokens import COMMENT, KEYWORDS, RAW, TOKEN, TYPES, WORD

VERSION = 1
"""The version of the facts. Those of another version are not read."""

PLAIN_INCLUDE = re.compile(r'#include ("[^"\n]+(?=")|<[^>\n]+(?=>)).$')
"""The usual form of an include."""
INCLUDES = re.compile(
	r"""
	(?:[ \t]*\n|//[^\n\\]*\n|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/[ \t]*\n)*
	((?:\#include[ ](?:"[^"\n]+"|<[^>\n]+>)\n|\n)+)
	""",
	re.VERBOSE,
)
"""The usual beginning of a file: a comment and many includes."""
INCLUDE_OF_MANY = re.compile(r'("[^"\n]+(?=")|<[^>\n]+(?=>)).\n')
OPT_OUT = re.compile(r"\bunity: *alone\b")
ODD_SPELLING = re.compile(r"\?\?[=/'()!<>-]|<%|<:|%:")
BALANCED = {
	re.compile(r"GCC\s+diagnostic\s+push|clang\s+diagnostic\s+push"): ("diagnostic", 1),
	re.compile(r"GCC\s+diagnostic\s+pop|clang\s+diagnostic\s+pop"): ("diagnostic", -1),
	re.compile(r"pack\s*\(\s*push"): ("pack", 1),
	re.compile(r"pack\s*\(\s*pop"): ("pack", -1),
	re.compile(r"GCC\s+visibility\s+push"): ("visibility", 1),
	re.compile(r"GCC\s+visibility\s+pop"): ("visibility", -1),
	re.compile(r"GCC\s+push_options"): ("options", 1),
	re.compile(r"GCC\s+pop_options"): ("options", -1),
	re.compile(r"push_macro"): ("macro", 1),
	re.compile(r"pop_macro"): ("macro", -1),
}
COVERED = {
	"diagnostic": re.compile(r"(GCC|clang)\s+diagnostic"),
	"options": re.compile(r"GCC\s+(optimize|target)"),
	"pack": re.compile(r"pack"),
}
HARMLESS = re.compile(r"once\b|omp\b|region\b|endregion\b|mark\b|GCC\s+(unroll|ivdep)|unroll\b")

MEMBER = (".", "->")
ALONE_WORDS = {
	"__COUNTER__": "counts with __COUNTER__",
	"__INCLUDE_LEVEL__": "asks for __INCLUDE_LEVEL__",
	"__BASE_FILE__": "asks for __BASE_FILE__",
	"__TIMESTAMP__": "asks for __TIMESTAMP__",
}


class Facts(NamedTuple):
	"""The facts of one file, in a form that ``marshal`` can write."""

	includes: List[str]
	"""The includes as written, with the quote or bracket at their beginning."""
	leaves: List[str]
	"""Names at file scope: kind, namespace and name, separated by blanks."""
	macros: Dict[str, str]
	"""The macros that it defines or undefines, with the text; empty if it first tests whether there is one."""
	prelude: List[Union[str, int]]
	"""Directives that change how headers are read, with the numbers of includes between them."""
	words: str
	"""All identifiers except those in ``members``."""
	members: str
	"""The identifiers that occur only as members."""
	usings: List[str]
	"""Its using directives and declarations at the scope of the file or of a namespace, with that namespace."""
	optional: List[int]
	"""The numbers of its includes that depend on a condition."""
	spaces: str
	"""The namespaces that it opens."""
	quals: str
	"""The names before ``::``."""
	guard: str
	"""The guard against being read twice; empty if there is none."""
	alone: str
	"""Why it has to be compiled alone; empty if it has not."""
	last: str
	"""Why nothing may come after it; empty if anything may."""
	takes: str
	"""A macro of other files that it undefines; empty if there is none."""
	tags: str
	"""The names of classes, structs, unions and enums in it."""
	own: str
	"""Something of which each including file has its own copy that it may change; empty if there is none."""
	starts: str
	"""Something that may run before ``main`` in C++; empty if there is nothing."""
	operator: str
	"""``one`` if it declares operators at the scope of a file or namespace, ``any`` if one is a template."""


def read_facts(text: str) -> Facts:
	"""The facts of a file, whose bytes were decoded as Latin-1."""
	try:
		return Reader(text).facts()
	except LookupError:  # neither a compiler nor we can read it
		return Reader("").facts()._replace(alone="is not understood")


class Reader(Declarations):
	"""One pass over the tokens of a file."""

	def __init__(self, text: str) -> None:
		super().__init__()
		self.last = self.takes = ""
		self.includes: List[str] = []
		self.macros: Dict[str, str] = {}
		self.prelude: List[Union[str, int]] = []
		self.directive_words: Set[str] = set()
		self.optional: List[int] = []
		self.conditions: List[Tuple[Set[str], Tuple[bool, State], List[State]]] = []
		self.balance: Dict[str, int] = {}
		self.once = False
		self.guard = ""
		self.first_directives: List[str] = []
		if 'R"' in text:
			text = RAW.sub('""', text)
		text = self.take_first_includes(text)
		found = TOKEN.findall(text)
		if "unity" in text and any(OPT_OUT.search(token) for token in found if token[:2] in ("//", "/*")):
			self.alone = "says so itself"
		self.tokens = [token for token in found if not (token[0] == "/" and token[1:2] in ("/", "*"))]
		if ODD_SPELLING.search(text) and ODD_SPELLING.search(self.code()):
			self.alone = "has trigraphs or digraphs"
		self.walk()

	def take_first_includes(self, text: str) -> str:
		"""Take the includes at the beginning of a file with one expression. Returns the rest of the text."""
		begin = INCLUDES.match(text)
		if not begin or OPT_OUT.search(text, 0, begin.start(1)) or ODD_SPELLING.search(text, 0, begin.end()):
			return text
		if "/*" in begin.group(1):  # a comment, which is left to the tokens
			return text
		self.includes = INCLUDE_OF_MANY.findall(begin.group(1))
		self.prelude = list(range(len(self.includes)))
		self.first_directives = ["include"] * len(self.includes)
		return text[begin.end() :]

	def code(self) -> str:
		"""The tokens without the content of strings."""
		return "".join(token for token in self.tokens if token[-1] not in "\"'")

	def walk(self) -> None:
		is_static = False
		for token in self.tokens:
			first = token[0]
			if first in "# \t":
				plain = PLAIN_INCLUDE.match(token)
				if plain:
					self.first_directives.append("include")
					self.add_include(plain.group(1))
				else:
					self.take_directive(token)
			elif token == "{":
				self.open_brace()
			elif token == "}":
				self.close_brace()
			elif self.inside:
				if self.stack[-1] == "e" and self.inside == 1:
					self.take_enumerator(token)
				elif is_static:
					self.take_local(token)
				is_static = token == "static"
			elif token == ";" and not self.parens:
				self.finish()
			else:
				if token == "(":
					self.parens += 1
				elif token == ")":
					self.parens = max(self.parens - 1, 0)
				self.decl.append('"' if token[-1] in "\"'" else token)
		self.finish()

	def facts(self) -> Facts:
		tokens = [token for token in self.tokens if token[0] not in "# \t"]
		known = set(tokens)
		names = {word for word in known if word[-1] not in "\"'" and (word[0].isalpha() or word[0] in "_$")}
		words = names
		if not known.isdisjoint(MEMBER):
			words = names.intersection([word for before, word in zip(["", *tokens], tokens) if before not in MEMBER])
		words = (words | self.directive_words) - KEYWORDS
		members = names - words - KEYWORDS
		quals = {word for word, behind in zip(tokens, tokens[1:]) if behind == "::"} if "::" in known else set()
		tags = set()
		if not known.isdisjoint(TYPES):
			tags = {word for before, word in zip(tokens, tokens[1:]) if before in TYPES}
		for word, reason in ALONE_WORDS.items():
			if word in words:
				self.alone = self.alone or reason
		if "_Pragma" in words:
			self.last = self.last or "has a _Pragma"
		if self.stack:
			self.alone = self.alone or "its braces are not understood"
		if any(self.balance.values()):
			self.last = self.last or "leaves a pragma behind"
		self.find_prelude_end()
		return Facts(
			self.includes,
			# a macro of its own may stand for another name
			[leaf for leaf in self.leaves if leaf.rpartition(" ")[2] not in self.macros],
			self.macros,
			self.prelude,
			" ".join(sorted(words)),
			" ".join(sorted(members)),
			list(self.usings),
			self.optional,
			" ".join(self.spaces),
			" ".join(sorted(quals & words)),
			"#pragma once" if self.once else self.guard if self.is_guarded() else "",
			self.alone,
			self.last,
			self.takes,
			" ".join(sorted(tags & words)),
			self.own,
			self.starts,
			self.operator,
		)

	def find_prelude_end(self) -> None:
		"""Remove directives after the last include, which change no header."""
		while self.prelude and not isinstance(self.prelude[-1], int):
			self.prelude.pop()

	# ---- directives

	def take_directive(self, token: str) -> None:
		text = COMMENT.sub(" ", token).strip()[1:].strip()
		name = WORD.match(text)
		if not name:
			if token.strip() != "#" or text:
				self.alone = self.alone or "has a # that is not understood"
			return
		word, rest = name.group(), text[name.end() :].strip()
		if len(self.first_directives) < 2:
			self.first_directives.append("%s %s" % (word, rest))
			self.find_guard()
		if word in ("include", "include_next", "import"):
			self.take_include(word, rest)
			return
		self.directive_words.update(WORD.findall(rest))
		if word in ("define", "undef"):
			self.take_macro(word, rest)
		elif word in ("if", "ifdef", "ifndef"):
			self.conditions.append((set(WORD.findall(rest)), (word == "if" and rest == "0", self.save()), []))
		elif word in ("elif", "else", "elifdef", "elifndef"):
			self.take_other_side(rest)
		elif word == "endif":
			self.take_end()
		elif word == "pragma":
			self.take_pragma(rest)
		elif word == "line":
			self.alone = self.alone or "has a #line"

	def find_guard(self) -> None:
		"""Find the usual guard against being read twice."""
		if len(self.first_directives) == 2:
			opening, defining = self.first_directives
			names = WORD.findall(opening)
			is_asking = names[:1] == ["ifndef"] or names[:2] == ["if", "defined"]
			if is_asking and defining.split()[:2] == ["define", names[-1]]:
				self.guard = names[-1]

	def is_guarded(self) -> bool:
		"""Tell whether nothing comes after the end of the guard."""
		return bool(self.tokens) and self.tokens[-1].strip()[1:].strip().startswith("endif")

	def take_include(self, word: str, rest: str) -> None:
		closing = {'"': '"', "<": ">"}.get(rest[:1])
		end = rest.find(closing, 1) if closing else -1
		if word != "include" or end < 0:
			self.alone = self.alone or "has an #%s that is not understood" % word
			return
		self.add_include(rest[:end])

	def add_include(self, include: str) -> None:
		if self.inside:
			self.last = self.last or "includes within braces"
		if len(self.conditions) > bool(self.guard):
			self.optional.append(len(self.includes))
		self.prelude.append(len(self.includes))
		self.includes.append(include)

	def take_macro(self, word: str, rest: str) -> None:
		found = WORD.match(rest)
		if not found:
			return
		name = found.group()
		is_asked = any(name in asked for asked, _, _ in self.conditions)
		if word == "undef" and name not in self.macros:
			self.takes = self.takes or name
		if is_asked:
			self.macros[name] = ""
		elif self.macros.get(name) != "":
			self.macros[name] = " ".join(rest.split())
		self.prelude.append("%s %s" % (word, " ".join(rest.split())))

	def take_other_side(self, rest: str) -> None:
		if self.conditions:
			asked, (is_out, before), ends = self.conditions[-1]
			asked.update(WORD.findall(rest))
			if not ends and not is_out:
				ends.append(self.save())
			self.restore(before)

	def take_end(self) -> None:
		if self.conditions:
			_, (is_out, before), ends = self.conditions.pop()
			if ends:
				self.restore(ends[0])
			elif is_out:
				self.restore(before)

	def take_pragma(self, rest: str) -> None:
		if rest.startswith("once"):
			self.once = True
			return
		if HARMLESS.match(rest):
			return
		for pattern, (kind, step) in BALANCED.items():
			if pattern.match(rest):
				self.balance[kind] = self.balance.get(kind, 0) + step
				if self.balance[kind] < 0:
					self.last = self.last or "ends a pragma of others"
				return
		for kind, pattern in COVERED.items():
			if pattern.match(rest) and self.balance.get(kind, 0) > 0:
				return
		self.prelude.append("pragma " + rest)
		self.last = self.last or "leaves a pragma behind"
