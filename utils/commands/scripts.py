"""Interpreters and their scripts."""

from .command import Everyday
from .pieces import TEXT

PERL = 'open(my $in, "<", "in"); open(my $out, ">", "out"); print $out uc while <$in>;\n'
PERL_TEMP = """\
use File::Temp qw(tempfile);
my ($f, $name) = tempfile(DIR => ".", UNLINK => 1);
print $f "one\\n";
close $f;
open(my $in, "<", $name);
open(my $out, ">", "out");
print $out uc while <$in>;
"""
PYTHON = 'with open("in") as f, open("out", "w") as g:\n\tg.write(f.read().upper())\n'
PYTHON_RANDOM = """\
import os
import random
import tempfile

random.seed(7)
with tempfile.TemporaryDirectory() as folder:
	path = os.path.join(folder, "one")
	with open(path, "w") as f:
		f.write("%d" % random.randrange(1000))
	with open(path) as f, open("out", "w") as g:
		g.write(f.read())
"""
PYTHON_JSON = 'import json\nwith open("out", "w") as f:\n\tjson.dump({"a": [1, 2]}, f)\n'
NODE = 'const fs = require("fs");\nfs.writeFileSync("out", fs.readFileSync("in", "utf8").toUpperCase());\n'
LUA = 'local out = io.open("out", "w")\nfor line in io.lines("in") do out:write(line:upper(), "\\n") end\nout:close()\n'
TCL = "set in [open in]\nset out [open out w]\nputs $out [string toupper [read $in]]\nclose $out\n"
SQL = "create table one (name text, number int);\ninsert into one values ('a', 1), ('b', 2);\n"

COMMANDS = (
	Everyday("perl", "perl make.pl", {"make.pl": PERL, **TEXT}),
	Everyday("perl-e", "perl -ne 'print if /e/' in", TEXT),
	Everyday("perl-temp", "perl make.pl", {"make.pl": PERL_TEMP}),
	Everyday("python3", "python3 make.py", {"make.py": PYTHON, **TEXT}),
	Everyday("python3-c", "python3 -c 'print(2 ** 100)'", {}),
	Everyday("python3-json", "python3 make.py", {"make.py": PYTHON_JSON}),
	Everyday("python3-random", "python3 make.py", {"make.py": PYTHON_RANDOM}),
	Everyday("python3-compileall", "python3 -m compileall -q make.py", {"make.py": PYTHON}),
	Everyday("node", "node make.js", {"make.js": NODE, **TEXT}),
	Everyday("lua5.3", "lua5.3 make.lua", {"make.lua": LUA, **TEXT}),
	Everyday("luac5.3", "luac5.3 -o make.luac make.lua", {"make.lua": LUA}),
	Everyday("tclsh", "tclsh make.tcl", {"make.tcl": TCL, **TEXT}),
	Everyday("sqlite3", "sqlite3 out.db '.read in.sql'", {"in.sql": SQL}),
)
