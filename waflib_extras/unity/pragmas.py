"""
Asks a compiler which pragmas it ignores.

It knows nothing of Waf. The compiler is asked once for each pragma, and for each set of options that may matter.
"""

import os
import re
import subprocess
import tempfile
from typing import Dict, FrozenSet, Iterable, List, Sequence

IGNORED = re.compile(r"^<stdin>:(\d+):.*\[-Wunknown-pragmas\]", re.MULTILINE)
OBSERVING = re.compile(r"(?:GCC|clang)\b")
"""Pragmas that may change what is told of others. They are asked for after the others."""
MATTERING = ("-f", "-m", "-std", "--std", "-ansi", "--target", "-x")
"""The beginnings of options that may have a compiler know other pragmas."""
SILENT = re.compile(
	r"-f(?:no-)?(?:diagnostics|color-diagnostics|message-length|dump|opt-info|profile|stack-usage|callgraph-info"
	r"|time-trace|save-optimization-record|syntax-only|working-directory|(?:file|debug|macro)-prefix-map)"
)
"""Of these, the options that do not, and that change messages or write files."""
IN_TWO_WORDS = ("-target", "-Xclang", "-arch")
SECONDS = 30.0


def choose_options(flags: Sequence[str]) -> List[str]:
	"""The options that may have a compiler know other pragmas."""
	found = []
	words = iter(flags)
	for word in words:
		if word in IN_TWO_WORDS:
			found += [word, next(words, "")]
		elif word.startswith(MATTERING) and not SILENT.match(word):
			found.append(word)
	return found


class Pragmas:
	"""The pragmas that a compiler with these options is known to ignore, or to obey."""

	def __init__(self, known: Dict[str, bool], compiler: Sequence[str], options: Sequence[str], language: str) -> None:
		self.known = known
		"""By pragma: whether it is ignored."""
		self.compiler = compiler
		self.options = options
		self.language = language
		self.has_new = False

	def find_obeyed(self, texts: Iterable[str]) -> List[str]:
		"""Those of these pragmas that the compiler does not ignore, or of which it does not tell."""
		wanted = list(dict.fromkeys(texts))
		new = sorted(text for text in wanted if text not in self.known)
		if new:
			ignored = self.ask(new)
			self.known.update((text, text in ignored) for text in new)
			self.has_new = True
		return [text for text in wanted if not self.known[text]]

	def ask(self, texts: Sequence[str]) -> FrozenSet[str]:
		"""Have the compiler read these pragmas, one on each line, and tell which it ignores."""
		lines = sorted(texts, key=lambda text: bool(OBSERVING.match(text)))
		content = "".join("#pragma %s\n" % text for text in lines)
		command = [*self.compiler, *self.options, "-Wunknown-pragmas", "-fsyntax-only", "-x", self.language, "-"]
		try:
			# in a folder of its own, as some options write files
			with tempfile.TemporaryDirectory(prefix="unity") as folder:
				done = subprocess.run(
					command,
					input=content.encode("latin-1", "replace"),
					stdout=subprocess.DEVNULL,
					stderr=subprocess.PIPE,
					timeout=SECONDS,
					check=False,
					env=dict(os.environ, LC_ALL="C"),
					cwd=folder,
				)
		except (OSError, subprocess.TimeoutExpired):
			return frozenset()
		said = done.stderr.decode("utf-8", "replace")
		return frozenset(lines[int(number) - 1] for number in IGNORED.findall(said) if int(number) <= len(lines))
