"""
Tracks braces and namespaces while C or C++ is read, and collects what is declared.

It knows nothing of directives, nor of how a text becomes tokens.
"""

from typing import Dict, List, Tuple

from .declarators import ANGLES, declarators, end_of_group, is_mutable, strip_angles, strip_groups
from .tokens import ATTRIBUTES, KEYWORDS, TYPES, WORD

INTERNAL, EXTERNAL, TAG, VARIABLE = "i", "e", "t", "v"
"""The kinds of names. Variables are those with external linkage."""
HIDING = frozenset(("static", "typedef", "const", "constexpr", "inline", "__inline", "__inline__", "template"))

State = Tuple[List[str], int, int, str, int, List[str]]


class Declarations:
	"""The declarations of a file, as far as its ``Reader`` has read. It reports braces and the ends of declarations."""

	def __init__(self) -> None:
		self.alone = self.own = self.starts = ""
		self.operator = ""
		self.leaves: Dict[str, None] = {}
		self.usings: Dict[str, None] = {}
		self.spaces: Dict[str, None] = {}
		self.stack: List[str] = []
		self.inside = 0
		"""The number of open braces that are not of namespaces."""
		self.parens = 0
		self.space = ""
		self.hidden = 0
		"""The number of open anonymous namespaces."""
		self.decl: List[str] = []

	def save(self) -> State:
		return self.stack[:], self.inside, self.parens, self.space, self.hidden, self.decl[:]

	def restore(self, state: State) -> None:
		stack, self.inside, self.parens, self.space, self.hidden, decl = state
		self.stack, self.decl = stack[:], decl[:]

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
		"""The kind of what a brace at file scope opens."""
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
		"""Take what follows ``static`` within braces. Each unit has its own variable if it has its own function."""
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
				return  # it is an instantiation
			decl = decl[end_of_group(decl, 1, ANGLES) :]
		decl = strip_angles(self.take_calls(decl))
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
			return  # it only declares that there is one
		is_hidden = is_template or not HIDING.isdisjoint(decl)
		if TYPES.intersection(decl) and "{" in decl and "=" not in decl[: decl.index("{")]:
			self.take_tag(decl)
			decl = ["type", *decl[decl.index("{") + 1 :]]
			if len(decl) == 1:
				return
		self.find_start(decl)
		for name, is_function in declarators(decl):
			is_known_variable = not is_function and not {"(", "operator"}.intersection(decl)
			self.leave(INTERNAL if is_hidden else VARIABLE if is_known_variable else EXTERNAL, name)
			is_variable = not is_function and "typedef" not in decl and "extern" not in decl
			if is_variable and ("static" in decl or self.hidden) and is_mutable(decl):
				self.own = self.own or name

	def take_calls(self, decl: List[str]) -> List[str]:
		"""Take the macros before a declaration that are called without a semicolon. Returns the declaration."""
		whole = decl
		while decl[1:2] == ["("] and WORD.match(decl[0]) and decl[0] not in KEYWORDS and decl[0] not in ATTRIBUTES:
			end = end_of_group(decl, 1)
			if not (end < len(decl) and WORD.match(decl[end])):
				break
			decl = decl[end:]
		if decl is not whole:
			self.find_start(whole)
		return decl

	def find_start(self, decl: List[str]) -> None:
		"""Note if a declaration may have code run before ``main``."""
		if {"typedef", "constexpr", "constinit"}.intersection(decl):
			return
		if "=" not in decl and ("extern" in decl or (decl[-1] == "{" and "(" in decl)):
			return  # it is a declaration, or a function with its body
		if decl[0] not in KEYWORDS and decl[1:2] == ["("]:
			self.starts = decl[0]
			return
		ends = [i for i, word in enumerate(decl) if word in ("=", "(", "[", "{")]
		end = ends[0] if ends else len(decl)
		types = [word for word in decl[:end] if WORD.match(word) and word not in KEYWORDS]
		if (len(types) > 1 and "*" not in decl[:end]) or ("=" in decl and "(" in decl[decl.index("=") :]):
			self.starts = types[-1] if types else decl[0]

	def take_tag(self, decl: List[str]) -> None:
		"""Take a class, struct, union or enum with its body."""
		head = strip_groups(decl[: decl.index("{")])
		if ":" in head:
			head = head[: head.index(":")]
		names = [i for i, word in enumerate(head) if WORD.match(word) and word not in KEYWORDS]
		if names and head[names[-1] - 1] != "::":
			self.leave(TAG, head[names[-1]])
