"""What makes, copies and lists files and folders."""

from .command import Everyday
from .pieces import TEXT, TREE

COMMANDS = (
	Everyday("mkdir-p", "mkdir -p a/b/c", {}),
	Everyday("cp", "cp in out", TEXT),
	Everyday("cp-p", "cp -p in out", TEXT, sets_times=True),
	Everyday("cp-r", "cp -r sub copy", TREE),
	Everyday("cp-a", "cp -a sub copy", TREE, sets_times=True),
	Everyday("install", "install -m 755 in out", TEXT),
	Everyday("install-p", "install -p -m 644 in out", TEXT, sets_times=True),
	Everyday("install-d", "install -d a/b", {}),
	Everyday("ln-s", "ln -s in out", TEXT),
	Everyday("ln", "ln in out", TEXT),
	Everyday("mv", "mv in out", TEXT),
	Everyday("rm", "rm in", TEXT),
	Everyday("chmod", "chmod 755 in", TEXT),
	Everyday("touch", "touch out", {}),
	Everyday("touch-d", "touch -d 2020-01-01T00:00:00Z out", {}, sets_times=True),
	Everyday("truncate", "truncate -s 100 out", {}),
	Everyday("dd", "dd if=in of=out bs=64 status=none", TEXT),
	Everyday("mktemp", "mktemp out.XXXXXXXX", {}),
	Everyday("cat", "cat in other > out", {"other": "more\n", **TEXT}, "sh", also=("cat",)),
	Everyday("find", "find sub -name '*.c' > out", TREE, "sh", also=("find",)),
	Everyday("ls-l", "ls -l sub > out", TREE, "sh", also=("ls",)),
	Everyday("du", "du -a sub", TREE),
	Everyday("stat", "stat -c '%n %s %a %Y' in", TEXT),
	Everyday("file", "file in", TEXT),
	Everyday("readlink", "readlink -f sub/text", TREE),
)
