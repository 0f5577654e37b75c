"""Archives and compressed files."""

from .command import Everyday
from .pieces import TEXT, TREE

ZIPPED = "zip -q -r in.zip sub && rm -r sub"
COMMANDS = (
	Everyday("tar-c", "tar cf out.tar sub", TREE),
	Everyday("tar-cz", "tar czf out.tar.gz sub", TREE, also=("gzip",)),
	Everyday("tar-c-sorted", "tar --sort=name --mtime=@0 --owner=0 --group=0 -cf out.tar sub", TREE),
	Everyday("tar-t", "tar tf in.tar", TREE, setup="tar cf in.tar sub"),
	Everyday("tar-x", "tar xf in.tar", TREE, setup="tar cf in.tar sub && rm -r sub", sets_times=True),
	Everyday("zip", "zip -q out.zip in", TEXT),
	Everyday("zip-r", "zip -q -r out.zip sub", TREE),
	Everyday("unzip", "unzip -q in.zip", TREE, setup=ZIPPED, also=("zip",), sets_times=True),
	Everyday("gzip-k", "gzip -k in", TEXT, sets_times=True),
	Everyday("gzip-n", "gzip -n -c in > out.gz", TEXT, "sh", also=("gzip",)),
	Everyday("gunzip", "gzip -d in.gz", TEXT, setup="gzip in", sets_times=True),
	Everyday("bzip2-k", "bzip2 -k in", TEXT, sets_times=True),
	Everyday("xz-k", "xz -k in", TEXT, sets_times=True),
	Everyday("zstd", "zstd -q in -o out.zst", TEXT, sets_times=True),
	Everyday("lz4", "lz4 -q in out.lz4", TEXT),
)
