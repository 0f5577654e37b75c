"""Files that are replaced as a whole, so that a reader finds the old content or the new one."""

import contextlib
import os


def replace(path: str, content: bytes, mode: int = 0o666) -> None:
	"""Give a file this content. If that fails, the file stays as it was, and nothing is left beside it."""
	fresh = "%s.%d" % (path, os.getpid())
	with contextlib.suppress(OSError):
		os.unlink(fresh)  # a killed process has left it; a pipe would block us, and a link lead elsewhere
	try:
		with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as f:
			f.write(content)
		os.replace(fresh, path)
	except BaseException:
		with contextlib.suppress(OSError):
			os.unlink(fresh)
		raise
