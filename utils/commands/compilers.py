"""Compilers and linkers, and what looks into objects."""

from .command import Everyday
from .pieces import HELLO, C

CXX = {"a.cc": "#include <string>\n#include <vector>\nint f(std::vector<std::string> v) { return int(v.size()); }\n"}
FORTRAN = {"a.f90": "subroutine a(n)\n  integer :: n\n  n = n + 1\nend subroutine\n"}
NASM = {"a.asm": "section .text\nglobal one\none:\n\tnop\n"}
ASSEMBLER = {"a.s": "\t.text\n\t.globl one\none:\n\tnop\n"}
OBJECTS = "gcc -O1 -c main.c square.c cube.c"
PROGRAM = OBJECTS + " && gcc -o app main.o square.o cube.o"
GCC = ("gcc",)

COMMANDS = (
	Everyday("gcc-c", "gcc -O1 -c square.c -o square.o", C, is_compile=True),
	Everyday("gcc-c-g", "gcc -O2 -g -MD -c square.c -o square.o", C, is_compile=True),
	Everyday("gcc-S", "gcc -O1 -S square.c -o square.s", C),
	Everyday("gcc-E", "cc -E square.c -o square.i", C),
	Everyday("cpp", "cpp square.c square.i", C),
	Everyday("g++-c", "g++ -O1 -c a.cc -o a.o", CXX, is_compile=True),
	Everyday("clang-c", "clang -O1 -c square.c -o square.o", C, is_compile=True),
	Everyday("clang++-c", "clang++ -O1 -c a.cc -o a.o", CXX, is_compile=True),
	Everyday("gfortran-c", "gfortran -c a.f90 -o a.o", FORTRAN),
	Everyday("nasm", "nasm -f elf64 -o a.o a.asm", NASM),
	Everyday("as", "as -o a.o a.s", ASSEMBLER),
	Everyday("gcc-link", "gcc -o app main.o square.o cube.o", C, setup=OBJECTS),
	Everyday("gcc-all", "gcc -O1 -o app main.c square.c cube.c", C),
	Everyday("gcc-shared", "gcc -shared -o libx.so square.o cube.o", C, setup="gcc -fPIC -c square.c cube.c"),
	Everyday("gcc-static", "gcc -static -o hello hello.c", {"hello.c": HELLO}),
	Everyday("clang-link", "clang -o app main.o square.o cube.o", C, setup=OBJECTS, also=GCC),
	Everyday("musl-gcc-c", "musl-gcc -O1 -c hello.c -o hello.o", {"hello.c": HELLO}, is_compile=True),
	Everyday("musl-gcc-link", "musl-gcc -static -o hello hello.c", {"hello.c": HELLO}),
	Everyday("ar", "ar rcs libx.a square.o cube.o", C, setup=OBJECTS, also=GCC),
	Everyday("ar-D", "ar rcsD libx.a square.o cube.o", C, setup=OBJECTS, also=GCC),
	Everyday("ranlib", "ranlib libx.a", C, setup=OBJECTS + " && ar rcS libx.a square.o cube.o", also=("gcc", "ar")),
	Everyday("ld-r", "ld -r -o all.o square.o cube.o", C, setup=OBJECTS, also=GCC),
	Everyday("strip", "strip -o small app", C, setup=PROGRAM, also=GCC),
	Everyday("strip-in-place", "strip app", C, setup=PROGRAM, also=GCC),
	Everyday("objcopy", "objcopy -O binary -j .text square.o square.bin", C, setup=OBJECTS, also=GCC),
	Everyday("nm", "nm square.o > symbols", C, "sh", setup=OBJECTS, also=("gcc", "nm")),
	Everyday("objdump", "objdump -d square.o", C, setup=OBJECTS, also=GCC),
	Everyday("readelf", "readelf -a square.o", C, setup=OBJECTS, also=GCC),
	Everyday("size", "size app", C, setup=PROGRAM, also=GCC),
	Everyday("strings", "strings app", C, setup=PROGRAM, also=GCC),
)
