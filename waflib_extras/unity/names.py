"""
Finds what a C or C++ file leaves behind for the next file of the same unit, and by what it would be affected itself.

Pure: a text goes in, facts come out. The text is read in one pass without a preprocessor, so both sides of an ``#if``
count. If that is not certain enough, the facts tell that the file has to be compiled alone, or last, and why.
"""

import re
from typing import Dict, List, NamedTuple, Set, Union

from .declarations import Declarations, State
from .tokens import COMMENT, KEYWORDS, RAW, TOKEN, TYPES, WORD

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
PUSHES = {
	"diagnostic": re.compile(r"(?:GCC|clang) diagnostic push"),
	"warning": re.compile(r"warning ?\( ?push"),
	"pack": re.compile(r"pack ?\( ?push"),
	"visibility": re.compile(r"GCC visibility push"),
	"options": re.compile(r"GCC push_options"),
	"macro": re.compile(r"push_macro"),
}
"""By kind: the pragmas that save a state."""
POPS = {
	"diagnostic": re.compile(r"(?:GCC|clang) diagnostic pop"),
	"warning": re.compile(r"warning ?\( ?pop"),
	"pack": re.compile(r"pack ?\( ?pop"),
	"visibility": re.compile(r"GCC visibility pop"),
	"options": re.compile(r"GCC pop_options"),
	"macro": re.compile(r"pop_macro"),
}
"""By kind: the pragmas that restore it."""
COVERED = {
	"diagnostic": re.compile(r"(?:GCC|clang) diagnostic"),
	"warning": re.compile(r"warning\b"),
	"options": re.compile(r"GCC (?:optimize|target)"),
	"pack": re.compile(r"pack\b"),
}
"""By kind: the pragmas that change the state."""
REACHING = ("pack", "visibility", "options")
"""The kinds under which an included file means something else."""
PACK_RESET = re.compile(r"pack ?\( ?\)$")
"""It restores the state at the beginning of the unit."""
HARMLESS = re.compile(r"(?:once|omp|region|endregion|mark|unroll|message|comment|GCC (?:unroll|ivdep|warning|error))\b")
"""Pragmas that change nothing after them, whether a compiler obeys them or not."""
MESSAGES = re.compile(r"(?:(?:GCC|clang) diagnostic|warning)\b")
"""Pragmas that change no meaning, only what is told."""
OPERATOR = re.compile(r'\b_Pragma\s*\(\s*(L?"(?:[^"\\\n]|\\.)*")\s*\)')
"""A pragma in the form that may come from a macro."""

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
	pragmas: List[str]
	"""The pragmas that stay in force after it, in compilers that do not ignore them."""


Open = Dict[str, List[int]]
"""By kind: for each pragma that saved a state, how many conditions it was in."""


class Condition(NamedTuple):
	"""An ``#if`` that is open."""

	asked: Set[str]
	"""The words of its conditions."""
	is_out: bool
	"""Whether it is an ``#if 0``."""
	before: State
	ends: List[State]
	"""What was open at the end of its first side."""
	open: Open
	"""What pragmas had saved before it."""
	others: List[Open]
	"""What they had saved at the ends of its sides so far."""


def is_starting(facts: Facts, is_cxx: bool) -> bool:
	"""Tell whether code of a file may run before ``main``."""
	return (is_cxx and bool(facts.starts)) or "constructor" in facts.words.split()


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
		self.conditions: List[Condition] = []
		self.open: Open = {}
		self.pragmas: Dict[str, int] = {}
		"""The pragmas that may stay in force, and how many conditions each was in."""
		self.covered: Dict[str, Dict[str, None]] = {}
		"""By kind: the pragmas that a later one may make undone."""
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
		if "_Pragma" in text:
			self.tokens = spell_operators(self.tokens)
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
		if "_Pragma" in names:
			self.last = self.last or "has a _Pragma"
		if self.stack:
			self.alone = self.alone or "its braces are not understood"
		for kind in [kind for kind, depths in self.open.items() if depths]:
			self.pragmas.update(dict.fromkeys(self.covered[kind], 0))
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
			list(self.pragmas),
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
			is_out = word == "if" and rest == "0"
			self.conditions.append(
				Condition(set(WORD.findall(rest)), is_out, self.save(), [], copy_open(self.open), [])
			)
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
		for kind in REACHING:
			if self.open.get(kind):
				self.alone = self.alone or "includes a file within #pragma %s" % list(self.covered[kind])[-1]
		if len(self.conditions) > bool(self.guard):
			self.optional.append(len(self.includes))
		self.prelude.append(len(self.includes))
		self.includes.append(include)

	def take_macro(self, word: str, rest: str) -> None:
		found = WORD.match(rest)
		if not found:
			return
		name = found.group()
		is_asked = any(name in condition.asked for condition in self.conditions)
		if word == "undef" and name not in self.macros:
			self.takes = self.takes or name
		if is_asked:
			self.macros[name] = ""
		elif self.macros.get(name) != "":
			self.macros[name] = " ".join(rest.split())
		self.prelude.append("%s %s" % (word, " ".join(rest.split())))
		if "_Pragma" in rest:
			self.take_operators(rest)

	def take_other_side(self, rest: str) -> None:
		if self.conditions:
			condition = self.conditions[-1]
			condition.asked.update(WORD.findall(rest))
			if not condition.is_out:
				condition.others.append(self.open)
				if not condition.ends:
					condition.ends.append(self.save())
			self.open = copy_open(condition.open)
			self.restore(condition.before)

	def take_end(self) -> None:
		if self.conditions:
			condition = self.conditions.pop()
			if condition.ends:
				self.restore(condition.ends[0])
			elif condition.is_out:
				self.restore(condition.before)
			# of sides that differ, the one that leaves most
			for kind in set(self.open).union(*condition.others):
				self.open[kind] = max((each.get(kind, []) for each in [self.open, *condition.others]), key=len)

	# ---- pragmas

	def take_pragma(self, rest: str) -> None:
		text = " ".join(rest.split())
		if text.startswith("once"):
			self.once = True
		if HARMLESS.match(text):
			return
		depth = len(self.conditions)
		for kind, pattern in PUSHES.items():
			if pattern.match(text):
				self.open.setdefault(kind, []).append(depth)
				self.covered.setdefault(kind, {})[text] = None
				return
			if POPS[kind].match(text):
				depths = self.open.get(kind)
				# one that is in more conditions may not be there
				if not depths or depths.pop() < depth:
					self.keep_pragma(text)
				return
			covered = COVERED.get(kind)
			if covered and covered.match(text) and self.open.get(kind):
				self.covered[kind][text] = None
				return
		if PACK_RESET.match(text) and self.reset_packing(depth):
			return
		self.keep_pragma(text)

	def keep_pragma(self, text: str) -> None:
		"""Note a pragma that may stay in force."""
		self.prelude.append("pragma " + text)
		depth = len(self.conditions)
		self.pragmas[text] = min(self.pragmas.get(text, depth), depth)

	def reset_packing(self, depth: int) -> bool:
		"""Forget the packings so far if they certainly end here. Tell whether they do."""
		packings = [text for text in self.pragmas if COVERED["pack"].match(text)]
		if any(self.pragmas[text] < depth for text in packings):
			return False
		for text in packings:
			del self.pragmas[text]
		end = max((i + 1 for i, part in enumerate(self.prelude) if isinstance(part, int)), default=0)
		later = [part for part in self.prelude[end:] if not str(part).startswith("pragma pack")]
		if len(later) < len(self.prelude) - end:
			self.prelude[end:] = later
		elif packings:
			self.prelude.append("pragma pack()")
		return True

	def take_operators(self, text: str) -> None:
		"""Take the pragmas in the text of a macro. Where it is used is not known."""
		found = [read_literal(literal) for literal in OPERATOR.findall(text)]
		if text.count("_Pragma") > len(found):
			self.last = self.last or "has a _Pragma"
		# nothing that this file says later makes them undone
		self.pragmas.update((pragma, -1) for pragma in found if not HARMLESS.match(pragma))


def copy_open(found: Open) -> Open:
	return {kind: depths[:] for kind, depths in found.items() if depths}


def read_literal(literal: str) -> str:
	"""The pragma in a string, as it would be written in a directive."""
	text = literal[literal.index('"') + 1 : -1].replace('\\"', '"').replace("\\\\", "\\")
	return " ".join(text.split())


def spell_operators(tokens: List[str]) -> List[str]:
	"""The tokens with each ``_Pragma("text")`` as the directive that it stands for."""
	found: List[str] = []
	for token in tokens:
		found.append(token)
		if token == ")" and found[-4:-2] == ["_Pragma", "("] and found[-2][-1] == '"':
			found[-4:] = ["#pragma " + read_literal(found[-2])]
	return found
