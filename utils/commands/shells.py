"""Shells, and programs that call others."""

from .command import Everyday
from .pieces import HELLO, TEXT, WORDS, C

SCRIPT = """\
set -e
total=0
while read -r word number rest; do
	total=$((total + number))
done < in
echo "$total" > total
sort in | head -n 3 > first
"""
PROGRAM = "#!/bin/bash\n" + SCRIPT
MAKEFILE = """\
all: upper counted sorted
upper: in
	tr a-z A-Z < in > upper
counted: in
	wc -l < in > counted
sorted: in
	sort in > sorted
"""
COMPILING = """\
app: main.o cube.o square.o
	gcc -o app main.o cube.o square.o
%.o: %.c square.h
	gcc -O1 -c $< -o $@
"""
NINJA = "rule upper\n  command = tr a-z A-Z < $in > $out\nbuild out: upper in\n"
# without what caches say to themselves
OWN = "-e ^CCACHE -e ^FB_ -e ^FIREBUILD -e ^SCCACHE -e ^WAF -e ^XDG_ -e ^_="

COMMANDS = (
	Everyday("bash-script", "bash build.sh", {"build.sh": SCRIPT, **TEXT}, also=("sort", "head")),
	Everyday("bash-program", "./build.sh", {"build.sh": PROGRAM, **TEXT}, also=("bash", "sort", "head")),
	Everyday("bash-loop", "for i in 1 2 3; do echo number $i > out$i; done", {}, shell="bash"),
	Everyday("sh-script", "sh build.sh", {"build.sh": SCRIPT, **TEXT}, also=("sort", "head")),
	Everyday("sh-loop", "for i in 1 2 3; do echo number $i > out$i; done", {}, shell="sh"),
	Everyday("sh-redirect", "cat in > out", TEXT, shell="sh", also=("cat",)),
	Everyday("sh-two", "sort in > sorted && wc -l sorted > counted", TEXT, shell="sh", also=("sort", "wc")),
	Everyday("make-targets", "make -s", {"Makefile": MAKEFILE, **TEXT}, also=("sort", "tr", "wc")),
	Everyday("make-parallel", "make -s -j2", {"Makefile": MAKEFILE, **TEXT}, also=("sort", "tr", "wc")),
	Everyday("make-compiling", "make -s", {"Makefile": COMPILING, **C}, also=("gcc",)),
	Everyday("make-implicit", "make hello.o", {"hello.c": HELLO}, also=("cc",)),
	Everyday("ninja", "ninja --quiet", {"build.ninja": NINJA, **TEXT}, also=("tr",)),
	Everyday("date", "date +%s.%N > out", {}, shell="sh", also=("date",)),
	Everyday("env", "env | grep -v %s | sort > out" % OWN, {}, shell="sh", also=("env", "grep", "sort")),
	Everyday("printf", "printf '%s\\n' one two > out", {}, shell="sh"),
	Everyday("seq", "seq 100 > out", {}, shell="sh", also=("seq",)),
	Everyday("xargs", "cut -d' ' -f1 in | xargs -n 4 echo > out", {"in": WORDS}, shell="sh", also=("cut", "xargs")),
	Everyday("bc", "echo 2^100 | bc > out", {}, shell="sh", also=("bc",)),
)
