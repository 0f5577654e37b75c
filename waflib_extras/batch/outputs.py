"""
Handles what a call for several tasks has made and written: it is moved to its place, shown, or removed.

It knows nothing of how a call is made.
"""

import os
import shutil
import sys
from typing import List

from waflib import Build, Context, Logs

from .membership import Member

FOLDERS = ".batch-"
"""The prefix of the folders of calls, in the build folder."""
NAMES = "names"
"""The file in such a folder with the paths that its call may write in the build folder itself."""


def accept(crew: List[Member], made: List[List[str]], doubted: List[Member]) -> None:
	"""Move the outputs of a call to their places. Outputs of tasks that are done again are removed."""
	for member, paths in zip(crew, made):
		if member in doubted:
			remove(paths)
		else:
			for path, node in zip(paths, member.task.outputs):
				os.replace(path, node.abspath())
			member.record()


def find_doubted(crew: List[Member], made: List[List[str]], code: int, text: bytes) -> List[Member]:
	"""The tasks that have to be done again alone after a call with this status and output."""
	keeps = not code or (code > 0 and crew[0].plan.keeps)
	doubted = []
	for member, paths in zip(crew, made):
		is_named = code != 0 and any(os.fsencode(path) in text for path in member.plan.paths)
		if not keeps or is_named or not all(map(os.path.isfile, paths)):
			doubted.append(member)
	# the call has failed, and no message names a task: any of them may be the reason
	return doubted if doubted or not code else list(crew)


def show(bld: Build.BuildContext, said: List[bytes]) -> None:
	"""Write the output of a command, as ``Context.exec_command`` does."""
	for data, stream, level, word in zip(said, (sys.stdout, sys.stderr), ("debug", "error"), ("out", "err")):
		if data:
			text = data.decode(getattr(Context, "default_encoding", "utf-8"), errors="replace")
			if bld.logger:
				getattr(bld.logger, level)("%s: %s" % (word, text))
			else:
				Logs.info(text, extra={"stream": stream, "c1": ""})


def write_names(folder: str, paths: List[str]) -> None:
	"""Note which paths the call may write, for the next build in case that this one is killed."""
	with open(os.path.join(folder, NAMES), "wb") as f:
		f.write(b"\0".join(os.fsencode(os.path.relpath(path, os.path.dirname(folder))) for path in paths))


def remove(paths: List[str]) -> None:
	for path in paths:
		try:
			os.remove(path)
		except OSError:
			continue


def sweep(build: str) -> None:
	"""Remove what killed builds have left."""
	for name in os.listdir(build):
		if name.startswith(FOLDERS):
			folder = os.path.join(build, name)
			try:
				with open(os.path.join(folder, NAMES), "rb") as f:
					remove([os.path.join(build, os.fsdecode(path)) for path in f.read().split(b"\0") if path])
			except OSError:
				pass
			shutil.rmtree(folder, ignore_errors=True)
