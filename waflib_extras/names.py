"""
What a C or C++ file leaves behind for whoever is compiled after it in the same unit, and what it would notice itself.

Pure: a text goes in, facts come out. It is read in one pass and without its preprocessor being run: both sides of an
``#if`` count. Where that is not certain enough, the facts say that the file is to stand alone, or last, and why.
"""

import re
from typing import Any, Dict, List, NamedTuple, Set, Tuple

VERSION = 1
"""Of the facts: those of another one are not read."""

INTERNAL, EXTERNAL, TAG = "i", "e", "t"

TOKEN = re.compile(
	r"""
	^[ \t]*\#(?:[^\n\\/]|\\(?:\n|.)|/(?![*/])|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//(?:[^\\\n]|\\(?:\n|.))*)*
	|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/
	|//(?:[^\\\n]|\\(?:\n|.))*
	|(?:u8|[uUL])?"(?:[^"\\\n]|\\(?:\n|.))*"
	|(?:u8|[uUL])?'(?:[^'\\\n]|\\(?:\n|.))*'
	|\.?[0-9](?:[eEpP][+-]|'?[.\w])*
	|[A-Za-z_$\x80-\xff][\w$\x80-\xff]*
	|::|->|\.\.\.|\S
	""",
	re.VERBOSE | re.MULTILINE,
)
RAW = re.compile(r'(?:u8|[uUL])?R"([^()\\\s]{0,16})\([\s\S]*?\)\1"')
PLAIN_INCLUDE = re.compile(r'#include ("[^"\n]+(?=")|<[^>\n]+(?=>)).$')
"""Nearly all of them."""
INCLUDES = re.compile(
	r"""
	(?:[ \t]*\n|//[^\n\\]*\n|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/[ \t]*\n)*
	((?:\#include[ ](?:"[^"\n]+"|<[^>\n]+>)\n|\n)+)
	""",
	re.VERBOSE,
)
"""A file often begins with a comment and many of them."""
INCLUDE_OF_MANY = re.compile(r'("[^"\n]+(?=")|<[^>\n]+(?=>)).\n')
WORD = re.compile(r"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*")
COMMENT = re.compile(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|//.*|\\\n")
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
TYPES = frozenset(("class", "struct", "union", "enum"))
ATTRIBUTES = frozenset(("__attribute__", "__declspec", "alignas", "_Alignas", "noexcept", "decltype", "__asm__", "asm"))
KEYWORDS = frozenset(
	WORD.findall(
		"""
	_Bool __attribute__ __const __extension__ __inline __inline__ __restrict alignas alignof auto bool break
	case catch char char16_t char32_t char8_t class const const_cast consteval constexpr constinit continue
	decltype default defined delete do double dynamic_cast else enum explicit export extern false final float
	for friend goto if inline int long mutable namespace new noexcept nullptr operator override private
	protected public register reinterpret_cast restrict return short signed sizeof static static_assert
	static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
	using virtual void volatile wchar_t while
	"""
	)
)
HIDING = frozenset(("static", "typedef", "const", "constexpr", "inline", "__inline", "__inline__", "template"))
ALONE_WORDS = {
	"__COUNTER__": "counts with __COUNTER__",
	"__INCLUDE_LEVEL__": "asks for __INCLUDE_LEVEL__",
	"__BASE_FILE__": "asks for __BASE_FILE__",
	"__TIMESTAMP__": "asks for __TIMESTAMP__",
}


class Facts(NamedTuple):
	"""What one file says; all of it plain, so that it can be kept by ``marshal``."""

	includes: List[str]
	"""As written, with the quote or bracket that they begin with."""
	leaves: List[str]
	"""Names at file scope: their kind, namespace and name, parted by blanks."""
	macros: Dict[str, str]
	"""Those that it defines or takes away, with the text, and none where it asks first whether there is one."""
	prelude: List[Any]
	"""Directives that change how headers are read, and between them the numbers of its includes."""
	words: str
	"""Every identifier that is not only a member of something."""
	members: str
	"""The others."""
	usings: List[str]
	"""What it uses at the scope of a file or namespace, with that namespace."""
	optional: List[int]
	"""The numbers of those of its includes that depend on a condition."""
	spaces: str
	"""Namespaces that it opens."""
	quals: str
	"""What stands before ``::``."""
	guard: str
	"""What keeps it from being read twice, or nothing."""
	alone: str
	"""Why it has to be compiled alone, or nothing."""
	last: str
	"""Why nothing may come after it, or nothing."""
	takes: str
	"""A macro of others that it takes away, or nothing."""
	tags: str
	"""What it names as a class, struct, union or enum."""
	own: str
	"""Something that each who includes it has for itself and may change, or nothing."""
	starts: str
	"""Something that may run before ``main``, in C++, or nothing."""
	operator: str
	"""``one`` if it declares operators at the scope of a file or namespace, ``any`` if one is a template."""


def read_facts(text: str) -> Facts:
	"""The facts of a file, whose bytes were decoded as Latin-1."""
	try:
		return Reader(text).facts()
	except LookupError:  # no compiler understands it either, or we have not thought of it
		return Reader("").facts()._replace(alone="is not understood")


class Reader:
	"""One pass over the tokens of a file."""

	def __init__(self, text: str) -> None:
		self.alone = self.last = self.takes = self.own = self.starts = ""
		self.operator = ""
		self.includes: List[str] = []
		self.leaves: Dict[str, None] = {}
		self.macros: Dict[str, str] = {}
		self.prelude: List[Any] = []
		self.directive_words: Set[str] = set()
		self.usings: Dict[str, None] = {}
		self.optional: List[int] = []
		self.conditions: List[Tuple[Set[str], Any, List[Any]]] = []
		self.balance: Dict[str, int] = {}
		self.once = False
		self.guard = ""
		self.spaces: Dict[str, None] = {}
		self.stack: List[str] = []
		self.inside = 0
		"""Braces that are no namespace's."""
		self.parens = 0
		self.space = ""
		self.hidden = 0
		"""Anonymous namespaces around us."""
		self.decl: List[str] = []
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
		"""Take those with which a file begins, all at once; what is left of it."""
		begin = INCLUDES.match(text)
		if not begin or OPT_OUT.search(text, 0, begin.start(1)) or ODD_SPELLING.search(text, 0, begin.end()):
			return text
		if "/*" in begin.group(1):  # a comment, for who reads it token by token
			return text
		self.includes = INCLUDE_OF_MANY.findall(begin.group(1))
		self.prelude = list(range(len(self.includes)))
		self.first_directives = ["include"] * len(self.includes)
		return text[begin.end() :]

	def code(self) -> str:
		"""Without strings, in which there may be anything."""
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
			# what a macro of its own makes of a name is another one
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
		"""What comes after the last include changes no header."""
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
		"""The usual way to keep a header from being read twice."""
		if len(self.first_directives) == 2:
			opening, defining = self.first_directives
			names = WORD.findall(opening)
			is_asking = names[:1] == ["ifndef"] or names[:2] == ["if", "defined"]
			if is_asking and defining.split()[:2] == ["define", names[-1]]:
				self.guard = names[-1]

	def is_guarded(self) -> bool:
		"""Nothing comes after the end of the guard."""
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

	def save(self) -> Tuple[Any, ...]:
		return self.stack[:], self.inside, self.parens, self.space, self.hidden, self.decl[:]

	def restore(self, state: Tuple[Any, ...]) -> None:
		stack, self.inside, self.parens, self.space, self.hidden, decl = state
		self.stack, self.decl = stack[:], decl[:]

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

	# ---- declarations

	def open_brace(self) -> None:
		kind = "b"
		if not self.inside and not self.parens:
			kind = self.find_kind()
		self.stack.append(kind)
		if not kind.startswith("n"):
			if not self.inside:
				self.decl.append("{")
			self.inside += 1

	def find_kind(self) -> str:
		"""What a brace at file scope opens."""
		decl = self.decl
		words = [word for word in decl if word != "inline"]
		if words[:1] == ["namespace"]:
			path = [word for word in strip_groups(words[1:]) if WORD.match(word) and word not in ATTRIBUTES]
			outer = self.space
			if path:
				for name in path:
					self.space = self.space + "::" + name if self.space else name
					self.spaces[self.space] = None
			else:
				self.hidden += 1
			self.decl = []
			return "n%d%s" % (not path, outer)
		if words[-2:] == ["extern", '"']:
			self.decl = []
			return "n0" + self.space
		if TYPES.isdisjoint(decl) or "(" in strip_groups(decl, ATTRIBUTES) or "=" in decl:
			return "b"
		if "enum" in decl:
			return "b" if {"class", "struct"} & set(decl) else "e"
		return "t"

	def close_brace(self) -> None:
		if not self.stack:
			self.alone = self.alone or "its braces are not understood"
			return
		kind = self.stack.pop()
		if kind.startswith("n"):
			self.hidden -= int(kind[1])
			self.space = kind[2:]
			self.decl = []
			return
		self.inside -= 1
		if not self.inside and not self.parens and kind == "b":
			flat = strip_groups(self.decl, ATTRIBUTES)
			if "(" in flat and "=" not in flat[: flat.index("(")]:
				self.finish()

	def take_enumerator(self, token: str) -> None:
		if self.decl[-1] in ("{", ",") and WORD.match(token):
			self.leave(INTERNAL, token)
		if token == "," or self.decl[-1] in ("{", ","):
			self.decl.append(token)

	def take_local(self, token: str) -> None:
		"""What follows ``static`` within braces: in a function of which each unit has its own, it has that, too."""
		is_shared = "t" in self.stack or not (self.hidden or "static" in self.decl)
		if token not in ("const", "constexpr") and not is_shared:
			self.own = self.own or "a static variable in a function"

	def leave(self, kind: str, name: str) -> None:
		if name not in KEYWORDS:
			self.leaves["%s %s %s" % (INTERNAL if self.hidden else kind, self.space, name)] = None

	def finish(self) -> None:
		decl, self.decl, self.parens = self.decl, [], 0
		if decl:
			self.take_declaration(decl)

	def take_declaration(self, decl: List[str]) -> None:
		is_template = decl[0] == "template"
		if is_template:
			if decl[1:2] != ["<"]:
				return  # an instantiation
			decl = decl[end_of_angle(decl, 1) :]
		decl = strip_angles(decl)
		if not decl:
			return
		first = decl[0]
		if first == "using":
			if "=" in decl:
				self.leave(INTERNAL, decl[1])
			else:
				self.usings["%s: %s" % (self.space, " ".join(decl))] = None
				if decl[1:2] == ["namespace"]:
					self.spaces["".join(decl[2:]).lstrip(":")] = None
			return
		if first == "namespace":
			self.leave(INTERNAL, decl[1])
			return
		if first in ("static_assert", "_Static_assert", "extern") and len(decl) > 1 and decl[1] == "template":
			return
		if first in ("asm", "__asm__", "__asm"):
			self.alone = self.alone or "has assembler at file scope"
			return
		if first in ("import", "module", "export"):
			self.alone = self.alone or "has modules"
			return
		if "operator" in decl and decl[decl.index("operator") - 1] != "::":
			self.operator = "any" if is_template else self.operator or "one"
		if first in TYPES and "{" not in decl and sum(word not in KEYWORDS for word in decl if WORD.match(word)) < 2:
			return  # it only says that there is one
		is_hidden = is_template or not HIDING.isdisjoint(decl)
		if TYPES.intersection(decl) and "{" in decl and "=" not in decl[: decl.index("{")]:
			self.take_tag(decl)
			decl = ["type", *decl[decl.index("{") + 1 :]]
			if len(decl) == 1:
				return
		self.find_start(decl)
		for name, is_function in declarators(decl):
			self.leave(INTERNAL if is_hidden else EXTERNAL, name)
			is_variable = not is_function and "typedef" not in decl and "extern" not in decl
			if is_variable and ("static" in decl or self.hidden) and is_mutable(decl):
				self.own = self.own or name

	def find_start(self, decl: List[str]) -> None:
		"""Whether a declaration may make something run before ``main``."""
		if {"typedef", "constexpr", "constinit"}.intersection(decl):
			return
		if "=" not in decl and ("extern" in decl or (decl[-1] == "{" and "(" in decl)):
			return  # a declaration, or a function with its body
		if decl[0] not in KEYWORDS and decl[1:2] == ["("]:
			self.starts = decl[0]
			return
		ends = [i for i, word in enumerate(decl) if word in ("=", "(", "[", "{")]
		end = ends[0] if ends else len(decl)
		types = [word for word in decl[:end] if WORD.match(word) and word not in KEYWORDS]
		if (len(types) > 1 and "*" not in decl[:end]) or ("=" in decl and "(" in decl[decl.index("=") :]):
			self.starts = types[-1] if types else decl[0]

	def take_tag(self, decl: List[str]) -> None:
		"""A class, struct, union or enum with its body."""
		head = strip_groups(decl[: decl.index("{")])
		if ":" in head:
			head = head[: head.index(":")]
		names = [i for i, word in enumerate(head) if WORD.match(word) and word not in KEYWORDS]
		if names and head[names[-1] - 1] != "::":
			self.leave(TAG, head[names[-1]])


def strip_groups(decl: List[str], only: Any = None) -> List[str]:
	"""Without what is between parentheses and brackets; with ``only``, such groups after these words."""
	found: List[str] = []
	depth = 0
	for word in decl:
		if word in ("(", "[") and (depth or only is None or (found and found[-1] in only)):
			depth += 1
		elif word in (")", "]") and depth:
			depth -= 1
		elif not depth:
			found.append(word)
	return found


def end_of_angle(decl: List[str], start: int) -> int:
	"""Where what a ``<`` opens ends."""
	depth = 0
	for i in range(start, len(decl)):
		if decl[i] == "<":
			depth += 1
		elif decl[i] == ">":
			depth -= 1
			if not depth:
				return i + 1
	return len(decl)


def strip_angles(decl: List[str]) -> List[str]:
	"""Without arguments of templates, up to the value."""
	if "<" not in decl:
		return decl
	found: List[str] = []
	i = 0
	while i < len(decl):
		if decl[i] == "=" and "operator" not in found:
			return found + decl[i:]
		if decl[i] == "<" and found and WORD.match(found[-1]) and found[-1] != "operator":
			i = end_of_angle(decl, i)
			continue
		found.append(decl[i])
		i += 1
	return found


def is_mutable(decl: List[str]) -> bool:
	"""A variable that is declared so can be changed."""
	end = decl.index("=") if "=" in decl else len(decl)
	stars = [i for i in range(end) if decl[i] == "*"]
	if stars:
		return "const" not in decl[stars[-1] : end]
	return not {"const", "constexpr"}.intersection(decl)


def declarators(decl: List[str]) -> List[Tuple[str, bool]]:
	"""The names that a declaration declares, and whether of functions; none that were declared elsewhere."""
	found: List[Tuple[str, bool]] = []
	name, name_at, seen, done, i = "", 0, 0, False, 0
	while i < len(decl):
		word = decl[i]
		if word == "(":
			end = end_of_group(decl, i)
			if not done and i and decl[i - 1] in ATTRIBUTES:
				pass
			elif not done and i + 1 < len(decl) and decl[i + 1] in ("*", "&", "^"):
				inner = [w for w in decl[i:end] if WORD.match(w) and w not in KEYWORDS]
				found += [(each, False) for each in inner[:1]]
				done = True
			elif not done and name and name_at == i - 1 and seen > 1:
				if decl[name_at - 1] != "::":
					found.append((name, True))
				done = True
			i = end
			continue
		if word == ":" and "(" in decl[:i]:
			return found  # a constructor with what it makes its members of
		if word in ("=", "[", ",", ":", "{"):
			if not done and name and seen > 1 and decl[name_at - 1] != "::":
				found.append((name, False))
			done = word != ","
			if word == "[":
				i = end_of_group(decl, i)
				continue
			if word == ",":
				name, seen = "", 1
		elif WORD.match(word) and not done:
			seen += 1
			if word not in KEYWORDS:
				name, name_at = word, i
		i += 1
	if not done and name and seen > 1 and decl[name_at - 1] != "::":
		found.append((name, False))
	return found


def end_of_group(decl: List[str], start: int) -> int:
	"""Where what a parenthesis or bracket opens ends."""
	depth = 0
	for i in range(start, len(decl)):
		if decl[i] in ("(", "["):
			depth += 1
		elif decl[i] in (")", "]"):
			depth -= 1
			if not depth:
				return i + 1
	return len(decl)


# ---- headers of the system


DEFINE = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b((?:[^\n\\]|\\\n)*)", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"][^>"\n]+)', re.MULTILINE)


class Foreign(NamedTuple):
	"""What a header of the system says; it is not doubted that it keeps to itself otherwise."""

	includes: List[str]
	macros: str
	"""Those that it may define or take away."""
	asked: str
	"""What its conditions ask for."""
	words: str
	"""Every identifier."""


def read_foreign(text: str) -> Foreign:
	text = COMMENT.sub(" ", text) if "/*" in text else text
	asked = {word for condition in CONDITION.findall(text) for word in WORD.findall(condition)}
	macros = set(DEFINE.findall(text))
	return Foreign(
		list(dict.fromkeys(INCLUDE.findall(text))),
		" ".join(sorted(macros)),
		" ".join(sorted(asked)),
		" ".join(sorted(set(WORD.findall(text)))),
	)
