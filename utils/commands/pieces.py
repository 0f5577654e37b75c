"""Small files that several commands begin with."""

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
WORDS = "".join("%s %d %s\n" % (word, n % 5, "x" * (n % 7)) for n, word in enumerate(NUMBERS * 4))
TEXT = {"in": WORDS}
TREE = {"sub/a.c": "int a;\n", "sub/b.h": "int b;\n", "sub/deep/c.c": "int c;\n", "sub/text": WORDS}

HELLO = '#include <stdio.h>\n\nint main(void) {\n\tputs("hello");\n\treturn 0;\n}\n'
SQUARE = '#include "square.h"\n\nint square(int n) {\n\treturn n * n;\n}\n'
CUBE = '#include "square.h"\n\nint cube(int n) {\n\treturn n * square(n);\n}\n'
HEADER = "int square(int n);\nint cube(int n);\n"
MAIN = '#include "square.h"\n\nint main(void) {\n\treturn cube(2) - 8;\n}\n'
C = {"square.h": HEADER, "square.c": SQUARE, "cube.c": CUBE, "main.c": MAIN}
COPY = """\
#include <ctype.h>
#include <stdio.h>

int main(int argc, char **argv) {
	FILE *in = fopen(argv[1], "r"), *out = fopen(argv[2], "w");
	int c;
	if (argc < 3 || !in || !out)
		return 1;
	while ((c = getc(in)) != EOF)
		putc(toupper(c), out);
	return fclose(out) != 0;
}
"""
