"""Files that libc reads for languages and time zones are facts, unless they belong to the system."""

import pathlib
import shutil
import struct
from typing import Dict

import pytest
from test_cache_facts import Facts
from test_cache_unseen import program

INCLUDES = "#include <libintl.h>\n#include <locale.h>\n"
SAY = 'FILE *made = fopen("made", "w"); fputs(dgettext("part", "text"), made); return 0;'
LOCALE = 'setlocale(LC_ALL, "C.UTF-8"); '
BIND = 'bindtextdomain("part", "words"); '
SYSTEM = pathlib.Path("/usr/lib/locale/C.utf8")


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	return Facts.make(engine, tmp_path)


def make(sandbox: Facts, code: str) -> None:
	sandbox.write("words.h", INCLUDES)
	program(sandbox, code, "tool", "-include", "words.h")


def catalog(words: Dict[str, str]) -> bytes:
	"""A catalog such as msgfmt makes it."""
	pairs = sorted({"": "Content-Type: text/plain; charset=UTF-8\n", **words}.items())
	texts = [text.encode() for side in zip(*pairs) for text in side]
	at = 28 + 8 * len(texts)
	table, body = b"", b""
	for text in texts:
		table += struct.pack("<2I", len(text), at + len(body))
		body += text + b"\0"
	return struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, at) + table + body


def made(sandbox: Facts, line: str, **env: str) -> str:
	"""The output of the program alone."""
	return sandbox.run(line, False, **env).files["made"].decode()


WAYS = {
	"locale first": LOCALE + BIND,
	"locale last": BIND + LOCALE,
	"variable set by the program": LOCALE + BIND + 'setenv("LANGUAGE", "de_AT.UTF-8@euro", 1); ',
	"variable put by the program": LOCALE + BIND + 'putenv("LANGUAGE=de_AT"); ',
}


@pytest.mark.parametrize("way", WAYS)
def test_catalogs_of_a_program(way: str, sandbox: Facts) -> None:
	"""A catalog appears, and one changes."""
	make(sandbox, WAYS[way] + SAY)
	sandbox.check_until_hit("./tool", "made", LANGUAGE="fr:de")
	path = sandbox.write("words/de/LC_MESSAGES/part.mo", "")
	for word in ("Wort", "Text"):
		path.write_bytes(catalog({"text": word}))
		assert sandbox.check("./tool", "made", LANGUAGE="fr:de").startswith("miss")
		sandbox.check_until_hit("./tool", "made", LANGUAGE="fr:de")
		assert made(sandbox, "./tool", LANGUAGE="fr:de") == word


@pytest.mark.skipif(not SYSTEM.is_dir(), reason="needs the locale C.utf8 as a folder")
def test_locales_along_a_path(sandbox: Facts) -> None:
	"""A locale that comes into a folder of LOCPATH."""
	make(
		sandbox,
		'FILE *made = fopen("made", "w"); char *name = argc > 1 ? argv[1] : ""; '
		'fprintf(made, "%d", setlocale(LC_ALL, name) != 0); return 0;',
	)
	environ = {"LOCPATH": "none:locales", "LC_ALL": "xx_YY.UTF-8"}
	lines = ("./tool xx_YY.UTF-8", "./tool")
	for line in lines:
		sandbox.check_until_hit(line, "made", **environ)
	shutil.copytree(SYSTEM, sandbox.folder / "locales" / "xx_YY.utf8")
	for line in lines:
		assert sandbox.check(line, "made", **environ).startswith("miss")
		assert made(sandbox, line, **environ) == "1"


def zone(hours: int) -> bytes:
	"""A time zone without changes."""
	counts = struct.pack(">6I", 0, 0, 0, 0, 1, 4)
	return b"TZif" + bytes(16) + counts + struct.pack(">iBB", hours * 3600, 0, 0) + b"ZON\0"


@pytest.mark.parametrize("variables", [{"TZ": ":{sandbox}/zone"}, {"TZ": "zone", "TZDIR": "{sandbox}"}])
def test_time_zones_in_files(variables: Dict[str, str], sandbox: Facts) -> None:
	make(
		sandbox,
		"struct tm date = {.tm_year = 100, .tm_mday = 1}; "
		'FILE *made = fopen("made", "w"); '
		'fprintf(made, "%ld", (long)mktime(&date)); return 0;',
	)
	environ = {name: value.format(sandbox=sandbox.folder) for name, value in variables.items()}
	found = set()
	for hours in (1, 2):
		(sandbox.folder / "zone").write_bytes(zone(hours))
		assert sandbox.check("./tool", "made", **environ).startswith("miss")
		sandbox.check_until_hit("./tool", "made", **environ)
		found.add(made(sandbox, "./tool", **environ))
	assert len(found) == 2


def test_modules_that_convert(sandbox: Facts) -> None:
	"""Lists of them are read at a place that a variable names. A folder of lists is too much to follow."""
	make(
		sandbox,
		'void *iconv_open(const char *, const char *); iconv_open("UTF-16", "UTF-8"); fopen("made", "w"); return 0;',
	)
	sandbox.check_until_hit("./tool", "made", GCONV_PATH="none:modules")
	sandbox.write("modules/gconv-modules", "# none\n")
	assert sandbox.check("./tool", "made", GCONV_PATH="none:modules").startswith("miss")
	sandbox.check_until_hit("./tool", "made", GCONV_PATH="none:modules")
	sandbox.write("modules/gconv-modules.d/more.conf", "# none\n")
	for _ in range(2):
		assert sandbox.check("./tool", "made", GCONV_PATH="none:modules").startswith("miss")
	assert set(sandbox.reasons()) == {"not observed"}
