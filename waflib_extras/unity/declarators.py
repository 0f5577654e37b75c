"""
Reads the tokens of one declaration: removes what is in brackets, and finds the names that it declares.

Pure. It does not know where in a file the declaration is.
"""

from typing import Container, List, Optional, Tuple

from .tokens import ATTRIBUTES, KEYWORDS, WORD


def strip_groups(decl: List[str], only: Optional[Container[str]] = None) -> List[str]:
	"""The tokens without groups in parentheses and brackets; with ``only``, without those after these words."""
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


def strip_angles(decl: List[str]) -> List[str]:
	"""The tokens up to the value, without template arguments."""
	if "<" not in decl:
		return decl
	found: List[str] = []
	i = 0
	while i < len(decl):
		if decl[i] == "=" and "operator" not in found:
			return found + decl[i:]
		if decl[i] == "<" and found and WORD.match(found[-1]) and found[-1] != "operator":
			i = end_of_group(decl, i, ANGLES)
			continue
		found.append(decl[i])
		i += 1
	return found


def is_mutable(decl: List[str]) -> bool:
	"""Tell whether a variable with this declaration can be changed."""
	end = decl.index("=") if "=" in decl else len(decl)
	stars = [i for i in range(end) if decl[i] == "*"]
	if stars:
		return "const" not in decl[stars[-1] : end]
	return not {"const", "constexpr"}.intersection(decl)


def declarators(decl: List[str]) -> List[Tuple[str, bool]]:
	"""The names that a declaration declares, and whether each is a function. Names declared elsewhere are left out."""
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
			return found  # a constructor with initializers of members
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


ANGLES = (("<",), (">",))
GROUPS = (("(", "["), (")", "]"))


def end_of_group(decl: List[str], start: int, brackets: Tuple[Tuple[str, ...], Tuple[str, ...]] = GROUPS) -> int:
	"""The position where the group ends that a bracket opens."""
	opening, closing = brackets
	depth = 0
	for i in range(start, len(decl)):
		if decl[i] in opening:
			depth += 1
		elif decl[i] in closing:
			depth -= 1
			if not depth:
				return i + 1
	return len(decl)
