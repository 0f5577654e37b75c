"""Version control, CMake, Rust, Java, and programs that are linked statically."""

from .command import Everyday
from .pieces import COPY, TEXT, TREE

COMMIT = "git init -q . && git add . && git -c user.name=a -c user.email=a@example.org commit -q -m one"
VERSION_CONTROL = (
	Everyday("git-archive", "git archive -o out.tar HEAD", TREE, setup=COMMIT),
	Everyday("git-hash-object", "git hash-object in", TEXT),
	Everyday("git-hash-object-w", "git hash-object -w other", {**TEXT, "other": "x\n"}, setup="git init -q ."),
	Everyday("git-rev-parse", "git rev-parse HEAD > out", TREE, "sh", setup=COMMIT, also=("git",)),
	Everyday("git-describe", "git describe --always --dirty > out", TREE, "sh", setup=COMMIT, also=("git",)),
	Everyday("git-log", "git log --stat > out", TREE, "sh", setup=COMMIT, also=("git",)),
	Everyday("git-diff", "git diff", TREE, setup=COMMIT + " && echo more >> sub/a.c"),
	Everyday("git-add", "git add in", TEXT, setup="git init -q ."),
)

SCRIPT = 'file(READ in text)\nstring(TOUPPER "${text}" text)\nfile(WRITE out "${text}")\n'
CMAKE = (
	Everyday("cmake-copy", "cmake -E copy in out", TEXT),
	Everyday("cmake-copy-directory", "cmake -E copy_directory sub copy", TREE),
	Everyday("cmake-tar", "cmake -E tar cf out.tar sub", TREE),
	Everyday("cmake-touch", "cmake -E touch out", {}),
	Everyday("cmake-make-directory", "cmake -E make_directory a/b", {}),
	Everyday("cmake-sha256sum", "cmake -E sha256sum in", TEXT),
	Everyday("cmake-create-symlink", "cmake -E create_symlink in out", TEXT),
	Everyday("cmake-script", "cmake -P make.cmake", {"make.cmake": SCRIPT, **TEXT}),
)

RUST = {"one.rs": "pub fn one() -> u32 {\n\t1\n}\n"}
MAIN = {"main.rs": 'fn main() {\n\tprintln!("hello");\n}\n'}
JAVA = {"Hello.java": 'class Hello {\n\tpublic static void main(String[] a) { System.out.println("hello"); }\n}\n'}
LANGUAGES = (
	Everyday("rustc", "rustc -o app main.rs", MAIN, also=("cc",)),
	Everyday(
		"rustc-rlib",
		"rustc --crate-name one --crate-type rlib --emit link --out-dir . one.rs",
		RUST,
		is_compile=True,
	),
	Everyday("javac", "javac Hello.java", JAVA),
	# the dates in it have two seconds
	Everyday("jar", "jar cf out.jar Hello.class", JAVA, setup="javac Hello.java", also=("javac",), again=2.1),
)

GO = """\
package main

import (
	"bytes"
	"os"
)

func main() {
	text, _ := os.ReadFile(os.Args[1])
	os.WriteFile(os.Args[2], bytes.ToUpper(text), 0o644)
}
"""
SOURCE = {"copy.c": COPY, **TEXT}
STATIC = (
	Everyday("static-c", "./copy in out", SOURCE, setup="gcc -O1 -static -o copy copy.c", also=("gcc",)),
	Everyday("static-musl", "./copy in out", SOURCE, setup="musl-gcc -O1 -static -o copy copy.c", also=("musl-gcc",)),
	Everyday("static-go", "./copy in out", {"copy.go": GO, **TEXT}, setup="go build -o copy copy.go", also=("go",)),
	Everyday(
		"static-in-script", "./copy in one && ./copy one two", SOURCE, "sh", "gcc -static -o copy copy.c", also=("gcc",)
	),
)
