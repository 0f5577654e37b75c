"""What libc reads for languages and time zones is a fact where it is not the system's own."""

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
def comparison(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	return Facts.make(engine, tmp_path)


def make(comparison: Facts, code: str) -> None:
	comparison.write("words.h", INCLUDES)
	program(comparison, code, "tool", "-include", "words.h")


def catalog(words: Dict[str, str]) -> bytes:
	"""As msgfmt makes it."""
	pairs = sorted({"": "Content-Type: text/plain; charset=UTF-8\n", **words}.items())
	texts = [text.encode() for side in zip(*pairs) for text in side]
	at = 28 + 8 * len(texts)
	table, body = b"", b""
	for text in texts:
		table += struct.pack("<2I", len(text), at + len(body))
		body += text + b"\0"
	return struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, at) + table + body


def made(comparison: Facts, line: str, **env: str) -> str:
	"""By the program alone."""
	return comparison.run(line, False, **env).files["made"].decode()


WAYS = {
	"locale first": LOCALE + BIND,
	"locale last": BIND + LOCALE,
	"variable set by the program": LOCALE + BIND + 'setenv("LANGUAGE", "de_AT.UTF-8@euro", 1); ',
	"variable put by the program": LOCALE + BIND + 'putenv("LANGUAGE=de_AT"); ',
}


@pytest.mark.parametrize("way", WAYS)
def test_catalogs_of_a_program(way: str, comparison: Facts) -> None:
	"""One that comes, and one that changes."""
	make(comparison, WAYS[way] + SAY)
	comparison.check_until_hit("./tool", "made", LANGUAGE="fr:de")
	path = comparison.write("words/de/LC_MESSAGES/part.mo", "")
	for word in ("Wort", "Text"):
		path.write_bytes(catalog({"text": word}))
		assert comparison.check("./tool", "made", LANGUAGE="fr:de").startswith("miss")
		comparison.check_until_hit("./tool", "made", LANGUAGE="fr:de")
		assert made(comparison, "./tool", LANGUAGE="fr:de") == word


@pytest.mark.skipif(not SYSTEM.is_dir(), reason="needs the locale C.utf8 as a folder")
def test_locales_along_a_path(comparison: Facts) -> None:
	"""A locale that comes into a folder of LOCPATH."""
	make(
		comparison,
		'FILE *made = fopen("made", "w"); char *name = argc > 1 ? argv[1] : ""; '
		'fprintf(made, "%d", setlocale(LC_ALL, name) != 0); return 0;',
	)
	environ = {"LOCPATH": "none:locales", "LC_ALL": "xx_YY.UTF-8"}
	lines = ("./tool xx_YY.UTF-8", "./tool")
	for line in lines:
		comparison.check_until_hit(line, "made", **environ)
	shutil.copytree(SYSTEM, comparison.folder / "locales" / "xx_YY.utf8")
	for line in lines:
		assert comparison.check(line, "made", **environ).startswith("miss")
		assert made(comparison, line, **environ) == "1"


def zone(hours: int) -> bytes:
	"""A time zone without changes."""
	counts = struct.pack(">6I", 0, 0, 0, 0, 1, 4)
	return b"TZif" + bytes(16) + counts + struct.pack(">iBB", hours * 3600, 0, 0) + b"ZON\0"


@pytest.mark.parametrize("variables", [{"TZ": ":{comparison}/zone"}, {"TZ": "zone", "TZDIR": "{comparison}"}])
def test_time_zones_in_files(variables: Dict[str, str], comparison: Facts) -> None:
	make(
		comparison,
		"struct tm date = {.tm_year = 100, .tm_mday = 1}; "
		'FILE *made = fopen("made", "w"); '
		'fprintf(made, "%ld", (long)mktime(&date)); return 0;',
	)
	environ = {name: value.format(comparison=comparison.folder) for name, value in variables.items()}
	found = set()
	for hours in (1, 2):
		(comparison.folder / "zone").write_bytes(zone(hours))
		assert comparison.check("./tool", "made", **environ).startswith("miss")
		comparison.check_until_hit("./tool", "made", **environ)
		found.add(made(comparison, "./tool", **environ))
	assert len(found) == 2


def test_modules_that_convert(comparison: Facts) -> None:
	"""Lists of them are read where a variable says so; a folder of lists is too much to follow."""
	make(
		comparison,
		'void *iconv_open(const char *, const char *); iconv_open("UTF-16", "UTF-8"); fopen("made", "w"); return 0;',
	)
	comparison.check_until_hit("./tool", "made", GCONV_PATH="none:modules")
	comparison.write("modules/gconv-modules", "# none\n")
	assert comparison.check("./tool", "made", GCONV_PATH="none:modules").startswith("miss")
	comparison.check_until_hit("./tool", "made", GCONV_PATH="none:modules")
	comparison.write("modules/gconv-modules.d/more.conf", "# none\n")
	for _ in range(2):
		assert comparison.check("./tool", "made", GCONV_PATH="none:modules").startswith("miss")
	assert set(comparison.reasons()) == {"not observed"}
