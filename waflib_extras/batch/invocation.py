"""
Makes of a compiler's command for one source the command for several.

Pure: it knows words, but no task and no disk. If a word of the command may have an effect that is not understood here,
the answer is a text: the reason why the source is compiled alone.
"""

import os
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union

SOURCE = "\0source"
TARGET = "\0target"
FOLDER = "\0folder"
"""Marks for what differs between compiles. They contain a zero byte, which no argument can."""

WRAPPERS = ("buildcache", "ccache", "distcc", "icecc", "sccache", "wafcc")
"""Wrappers that handle one compile at a time."""

SIDE_OUTPUTS = (
	*("--analyze", "--config", "--coverage", "--save-temps", "--serialize-diagnostics", "--specs", "-E", "-M", "-S"),
	*("-Wa,", "-Wp,", "-X", "-aux-info", "-coverage", "-d", "-emit-", "-fcallgraph-info", "-fdeps"),
	*("-fdiagnostics-add-output", "-fdiagnostics-format", "-fdump-", "-fmodule", "-fopt-info", "-foptimization-record"),
	*("-fplugin", "-fprofile", "-frepo", "-fsave-optimization-record", "-fstack-usage", "-fsyntax-only"),
	*("-ftest-coverage", "-ftime-trace", "-gsplit-dwarf", "-index-", "-o", "-save-temps", "-serialize-diagnostics"),
	*("-specs", "-time", "-working-directory", "-wrapper", "@"),
)
"""
The beginnings of those arguments of gcc and clang that write or read files named after the output, write another
output, or stand for arguments that cannot be seen here.
"""

SIDE_OUTPUTS_OF_CL = (
	*("-", "FA", "FR", "Fa", "Fd", "Fe", "Fi", "Fm", "Fo", "Fp", "Fr", "Gm", "MP", "X", "Y", "Z7", "ZI", "Zi"),
	*("analyze", "clang:", "doc", "gcodeview", "gdwarf", "gline", "ifc", "link", "scan", "showIncludes"),
	"sourceDependencies",
)
"""The same for cl and clang-cl, after ``/`` or ``-``. With debug information, an object contains its own name."""

HARMLESS_OF_CL = ("--driver-mode=", "--target=")
"""Options of clang-cl that are harmless, though they begin like others that are not."""

OTHERS_OF_CL = ("E", "EP", "P", "g", "o")
"""Other such options of cl and clang-cl, in full."""

VARIABLES = ("CCC_OVERRIDE_OPTIONS", "CL", "_CL_", "DEPENDENCIES_OUTPUT", "GCC_COMPARE_DEBUG", "SUNPRO_DEPENDENCIES")
"""Environment variables that change what compilers do."""


class Form(NamedTuple):
	"""The common form of the compiles of some sources."""

	words: Tuple[str, ...]
	"""The words of a compile of several sources, with marks for the sources and for the folder of outputs."""
	is_placed: bool
	"""Whether the command names the folder of its outputs. Otherwise they are put into the folder where it runs."""
	ending: str
	"""The ending of the names that the compiler gives to its outputs."""

	def make(self, sources: Sequence[str], folder: str) -> List[str]:
		"""The words of a compile of these sources."""
		words: List[str] = []
		for word in self.words:
			if word == SOURCE:
				words += sources
			else:
				words.append(word.replace(FOLDER, folder))
		return words

	def name(self, source: str) -> str:
		"""The name that the compiler gives to the output of a source."""
		return os.path.splitext(os.path.basename(source))[0] + self.ending


def find_form(words: Sequence[str], source: str, target: str) -> Union[Form, str]:
	"""The form of a command that compiles one source, or the reason why there is none."""
	number = find_only(words, target)
	if number is None or words.count(source) != 1 or number == words.index(source):
		return "its source or its output is not named once"
	before = words[number][: -len(target)]
	left = [SOURCE if word == source else word for word in words]
	if before[1:] in ("Fo", "Fo:") and is_option_of_cl(before):
		others = left[:number] + left[number + 1 :]
		left[number] = before + FOLDER + "/"
		is_compile = "/c" in left or "-c" in left
		odd = find_odd_of_cl(others[1:])
	elif before == "-o" or (not before and left[number - 1] == "-o"):
		del left[number if before else number - 1 : number + 1]
		is_compile = "-c" in left
		odd = next((word for word in left[1:] if word.startswith(SIDE_OUTPUTS)), None)
	else:
		return "its output is not named by -o or /Fo"
	if not is_compile:
		return "it is not compiled with -c"
	if odd is not None:
		return "%s may concern more files than its object" % odd
	is_cl = before[1:2] == "F"
	return Form(tuple(left), is_cl, ".obj" if is_cl else ".o")


def find_only(words: Sequence[str], target: str) -> Optional[int]:
	"""The position of the only word that ends with a path; None if the path is in other words, or within one."""
	found = [number for number, word in enumerate(words) if target in word]
	return found[0] if len(found) == 1 and words[found[0]].endswith(target) else None


def is_option_of_cl(word: str) -> bool:
	return word[:1] in ("-", "/")


def find_odd_of_cl(words: Sequence[str]) -> Optional[str]:
	"""The first word of a command of cl that may have an effect besides making an object."""
	for word in words:
		option = word[1:] if is_option_of_cl(word) else ""
		is_odd = option.startswith(SIDE_OUTPUTS_OF_CL) or option in OTHERS_OF_CL or word.startswith("@")
		if is_odd and not word.startswith(HARMLESS_OF_CL):
			return word
	return None


def mark(text: str, sources: Sequence[str], targets: Sequence[str]) -> str:
	"""A word, or a command for a shell, with marks instead of a task's own paths."""
	marks = [(path, SOURCE) for path in sources] + [(path, TARGET) for path in targets]
	for path, sign in sorted(marks, key=lambda pair: -len(pair[0])):
		text = text.replace(path, sign)
	return text
