"""Names that are read from sources, and how they are grouped: pure functions, without a build."""

import os
import random
from typing import Any, Dict, List, Sequence, Set, Tuple

import pytest

from waflib_extras.facts import stamps
from waflib_extras.unity import grouping, includes, memory, names, pragmas, seen


def left(text: str) -> Set[str]:
	"""The names that a text leaves, without kinds; those of a namespace with that before them."""
	found = [leaf.split(" ") for leaf in names.read_facts(text).leaves]
	return {space + "::" + name if space else name for _, space, name in found}


DECLARATIONS = {
	"static int a, *b = 0, c[3];": {"a", "b", "c"},
	'static const char *const words[] = { "one", "{" };': {"words"},
	"int f(int x) { int inside; return x; }": {"f"},
	"static Foo bar(Baz one, Qux two);": {"bar"},
	"static int (*handler)(int, char);": {"handler"},
	"typedef int (*callback)(void *);": {"callback"},
	"struct point { int x; struct { int y; } z; } origin;": {"point", "origin"},
	"struct later;": set(),
	"struct later *first(void) { return 0; }": {"first"},
	"enum { ONE, TWO = 2, THREE };": {"ONE", "TWO", "THREE"},
	"enum class color { red };": {"color"},
	"class A : public B<int> { void f(); };": {"A"},
	"A::A(int x) : a(x), b{2} { }": set(),
	"int A::get() const { return 1; }": set(),
	"namespace n { int x; namespace { int y; } }": {"n::x", "n::y"},
	"namespace a::b { class c {}; } int d;": {"a::b::c", "d"},
	"template <class T, int N = (1 > 2)> static T make(T t) { return t; }": {"make"},
	"std::map<int, std::vector<A> > table = { { 1, {} } };": {"table"},
	'extern "C" { int plain(void); }': {"plain"},
	"__attribute__((constructor)) static void start(void) { }": {"start"},
	"using number = int;": {"number"},
	"#if A\nint one(void) {\n#else\nint two(void) {\n#endif\nreturn 1; }\nint three;": {"one", "three"},
	"#if 0\nint gone(void) {\n#endif\nint here;": {"here"},
	"/* int a; */ // int b; \\\n int c;\nint d;": {"d"},
	'const char *s = "int x;"; char q = \'"\'; int after;': {"s", "q", "after"},
	'const char *r = R"(int x; " )"; int after;': {"r", "after"},
	"TEST(one, two) { int x; }": set(),
}


@pytest.mark.parametrize("text", DECLARATIONS)
def test_names_that_are_left(text: str) -> None:
	"""A declaration at the scope of a file or namespace leaves its names and no others."""
	found = left(text)
	if "#else" in text:
		assert found in (DECLARATIONS[text], DECLARATIONS[text] | {"two"})
	else:
		assert found == DECLARATIONS[text]


def test_what_is_not_understood_stands_alone() -> None:
	"""If the text alone is not enough, a source is alone, or nothing comes after it."""
	alone = ("int f(void) {", "#include NAME\n", "int x = __COUNTER__;", 'asm("nop");', "int f() <% %>", "#line 3\n")
	assert all(names.read_facts(text).alone for text in alone)
	assert names.read_facts("#define P(x) _Pragma(#x)\n").last


PACKED = "#pragma pack(push, 1)\n"
LEFT = {
	"#pragma pack(1)\n": ["pack(1)"],
	"#pragma pack( 1 ) // bytes\nint x;\n#pragma pack()\n": [],
	"#pragma pack(1)\n#if A\n#pragma pack()\n#endif\n": ["pack(1)", "pack()"],
	"#if A\n#pragma pack(1)\n#endif\nint x;\n#if A\n#pragma pack()\n#endif\n": [],
	PACKED: ["pack(push, 1)"],
	PACKED + "#pragma pack(2)\n#pragma pack(pop)\n": [],
	PACKED + "#if A\n#pragma pack(pop)\n#endif\n": ["pack(pop)"],
	"#if A\n" + PACKED + "#else\n#pragma pack(push, 8)\n#endif\nint x;\n#pragma pack(pop)\n": [],
	"#if A\n" + PACKED + "#else\n#pragma pack(1)\n#endif\nint x;\n#pragma pack(pop)\n": ["pack(1)"],
	"#pragma pack(pop)\n": ["pack(pop)"],
	'#pragma GCC optimize("O0")\n': ['GCC optimize("O0")'],
	'#pragma GCC push_options\n#pragma GCC optimize("O0")\n#pragma GCC pop_options\n': [],
	'#pragma GCC diagnostic ignored "-Wall"\n': ['GCC diagnostic ignored "-Wall"'],
	'#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored "-Wall"\n#pragma GCC diagnostic pop\n': [],
	'_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \\"-Wall\\"") _Pragma("GCC diagnostic pop")\n': [],
	'#define BYTES _Pragma("pack(1)")\n#pragma pack()\n': ["pack(1)", "pack()"],
	"#pragma GCC visibility push(hidden)\nint x;\n#pragma GCC visibility pop\n": [],
	"#pragma GCC visibility push(hidden)\nint x;\n": ["GCC visibility push(hidden)"],
	"#pragma GCC poison gets\n": ["GCC poison gets"],
	"#pragma STDC FP_CONTRACT OFF\n": ["STDC FP_CONTRACT OFF"],
	"#pragma warning(push)\n#pragma warning(disable : 4244)\n#pragma warning(pop)\n": [],
	"#pragma   warning ( disable : 4244 )\n": ["warning ( disable : 4244 )"],
	'#pragma once\n#pragma region x\n#pragma endregion\n#pragma message("x")\n#pragma comment(lib, "x")\n': [],
}


@pytest.mark.parametrize("text", LEFT)
def test_pragmas_that_are_left(text: str) -> None:
	"""A pragma stays in force after a file unless the file certainly restores what was before."""
	facts = names.read_facts(text)
	assert (facts.pragmas, facts.alone, facts.last) == (LEFT[text], "", "")
	assert not facts.prelude


def test_files_that_are_included_within_a_pragma() -> None:
	"""A header that is packed by one source only would be packed for all."""
	text = '#pragma pack(push, 1)\n#include "a.h"\n#pragma pack(pop)\n'
	assert names.read_facts(text).alone
	assert not names.read_facts(text.replace("pack", "warning")).alone
	assert names.read_facts('#pragma pack(1)\n#include "a.h"\n#pragma pack()\n').prelude[0] == "pragma pack(1)"


def test_a_compiler_tells_which_pragmas_it_ignores() -> None:
	"""It is asked for each pragma once; of what it does not say that it ignores it, it counts as obeyed."""
	texts = ["pack(1)", "warning(disable : 4244)", "STDC FENV_ACCESS ON", "GCC poison warning", "auto_inline(on)"]
	for compiler in ("gcc", "g++"):
		asked = pragmas.Pragmas({}, [compiler], ["-Wno-unknown-pragmas"], "c++" if compiler == "g++" else "c")
		asked.options = pragmas.choose_options(["-Wall", "-w", "-fdiagnostics-color=always", "-fPIC", "-o", "x"])
		assert asked.options == ["-fPIC"]
		assert asked.find_obeyed(texts) == ["pack(1)", "GCC poison warning"]
		asked.compiler = ["false"]
		assert asked.find_obeyed(texts) == ["pack(1)", "GCC poison warning"]
	assert pragmas.Pragmas({}, ["no such compiler"], [], "c").find_obeyed(texts) == texts
	assert pragmas.Pragmas({}, ["clang"], [], "c").find_obeyed(texts) == [texts[i] for i in (0, 2, 3)]


def test_guards() -> None:
	"""A header is read once if its guard holds all of it."""
	assert names.read_facts("/* x */\n#ifndef A_H\n#define A_H\nint a;\n#endif /* A_H */\n").guard == "A_H"
	assert names.read_facts("#if !defined(A_H)\n#define A_H\n#endif\n").guard == "A_H"
	assert names.read_facts("#pragma once\nint a;\n").guard
	assert not names.read_facts("#ifndef A_H\n#define A_H\n#endif\nint late;\n").guard
	assert not names.read_facts("#define A\nint a;\n").guard


# ---- cuts


def cut(files: Dict[str, int], most: int = 50) -> Set[Tuple[str, ...]]:
	"""The groups of files with these sizes, by name."""
	keys = sorted(files)
	weights = grouping.weigh([files[key] for key in keys], most)
	return {tuple(keys[i] for i in group) for group in grouping.cut(keys, weights)}


def random_files(draw: random.Random) -> Dict[str, int]:
	count = draw.randint(1, 400)
	return {"%s/%x.cpp" % (draw.choice("abc"), draw.getrandbits(40)): draw.randint(10, 30000) for _ in range(count)}


def test_cuts_keep_to_their_bounds() -> None:
	"""Each file is in one group, in order; a group has at most so many, and not too few if there are more."""
	draw = random.Random(1)
	for _ in range(200):
		files = random_files(draw)
		most = draw.choice((2, 5, 20, 50))
		groups = sorted(cut(files, most))
		assert [name for group in groups for name in group] == sorted(files)
		assert max(map(len, groups)) <= most
		assert len(groups) <= 1 + len(files) * 3 / most + sum(files.values()) * 4 / grouping.SMALL


def test_a_change_stays_where_it_is() -> None:
	"""To add, remove or edit one file makes one new group, rarely two."""
	draw = random.Random(2)
	new: List[int] = []
	for _ in range(600):
		files = random_files(draw)
		before = cut(files)
		name = draw.choice(sorted(files))
		kind = draw.choice(("add", "remove", "edit"))
		if kind == "add":
			files["%s/%x.cpp" % (draw.choice("abc"), draw.getrandbits(40))] = draw.randint(10, 30000)
		elif kind == "remove":
			del files[name]
		else:
			files[name] += draw.randint(-9, 400)
		new.append(len(cut(files) - before))
	assert sum(new) / len(new) < 1.3
	assert sum(count <= 2 for count in new) > 0.92 * len(new)


def test_cuts_are_the_same_everywhere() -> None:
	"""Groups depend on names and sizes, not on the machine or on earlier builds."""
	files = {"a/%d.cpp" % n: 1000 for n in range(100)}
	assert cut(files) == cut(dict(reversed(list(files.items()))))
	assert [len(group) for group in sorted(cut(files, 10), key=lambda group: sorted(files).index(group[0]))][
		:4
	] == SIZES


SIZES = [5, 7, 8, 4]


# ---- pieces


def sources(tmp_path: Any, files: Dict[str, str], system: Sequence[str] = ()) -> List[grouping.Source]:
	"""The sources among these files."""
	for name, text in files.items():
		(tmp_path / name).write_text(text)
	known_files = includes.KnownFiles()
	asked = pragmas.Pragmas({}, ["gcc"], [], "c++")
	finder = includes.Finder(
		known_files, includes.System(None, list(system)), [], str(tmp_path), str(tmp_path / "out"), [], {}, asked
	)
	return [finder.source(str(tmp_path / name), str(tmp_path)) for name in files if not name.endswith(".h")]


def test_pieces_are_those_that_do_not_notice_each_other(tmp_path: Any) -> None:
	"""Each source joins the first group that has nothing that it mentions; the rest is alone."""
	files = {
		"a.c": "static int one; int a(void) { return one; }",
		"b.c": "static int two; int b(void) { return two; }",
		"c.c": "static int one; int c(void) { return one; }",
		"d.c": "static int one, two; int d(void) { return one + two; }",
		"e.c": "int e(void) { return 1; }",
	}
	plan = grouping.plan(sources(tmp_path, files), [100] * 5, 50, False)
	assert [entry.members for entry in plan.entries] == [[0, 1, 4], [2], [3]]
	assert plan.reasons["3"].startswith("one, which ")
	away = grouping.plan(sources(tmp_path, files), [100] * 5, 50, False, away=[1])
	assert [entry.members for entry in away.entries] == [[0, 4], [1], [2], [3]]
	assert away.entries[0].anchor == plan.entries[0].anchor


ASKING = (
	"#ifndef TWO_H\n#define TWO_H\n#ifdef WIDE\ntypedef long Number;\n#else\ntypedef char Number;\n#endif\n#endif\n"
)
ONE = "#ifndef ONE_H\n#define ONE_H\n#define WIDE\n%s#endif\n"


@pytest.mark.parametrize(
	("one", "a", "b", "are_together"),
	[
		("", '#include "one.h"\n#include "two.h"\n', '#include "two.h"\n', False),
		("", '#include "two.h"\n', '#include "one.h"\n#include "two.h"\n', False),
		("", '#include "one.h"\n#include "two.h"\n', '#include "two.h"\n#include "one.h"\n', False),
		("", '#include "one.h"\n', '#include "two.h"\n#include "one.h"\n', False),
		('#include "two.h"\n', '#include "one.h"\n', '#include "two.h"\n', False),
		('#include "two.h"\n', '#include "one.h"\n', '#include "one.h"\n#include "two.h"\n', True),
		("", '#include "one.h"\n#include "two.h"\n', '#include "one.h"\n#include "two.h"\n', True),
		("", '#include "two.h"\n', '#include "two.h"\n', True),
	],
)
def test_a_header_that_asks_for_a_macro(tmp_path: Any, one: str, a: str, b: str, are_together: bool) -> None:
	"""A header that is read once for two sources must see the same macros before it in both."""
	files = {"two.h": ASKING, "one.h": ONE % one, "a.c": a, "b.c": b}
	plan = grouping.plan(sources(tmp_path, files), [100] * 2, 50, False)
	assert (len(plan.entries) == 1) == are_together
	assert are_together or "one.h" in plan.reasons["1"]


def test_a_header_that_includes_what_it_asks_for(tmp_path: Any) -> None:
	"""It means the same in all sources. What else they include, and in which order, does not matter."""
	files = {
		"two.h": '#ifndef TWO_H\n#define TWO_H\n#include "one.h"\nWIDE;\n#endif\n',
		"one.h": ONE % "",
		"a.c": '#include "one.h"\n#include "two.h"\n',
		"b.c": '#include "two.h"\n',
		"c.c": '#include "two.h"\n#include "one.h"\n',
	}
	plan = grouping.plan(sources(tmp_path, files), [100] * 3, 50, False)
	assert [entry.members for entry in plan.entries] == [[0, 1, 2]]


def test_a_header_that_asks_for_a_macro_of_the_system(tmp_path: Any) -> None:
	"""A header that is read once must see the same macros of the system's headers, too."""
	(tmp_path / "system").mkdir()
	(tmp_path / "system" / "wide.h").write_text("#define WIDE\n")
	files = {"two.h": ASKING, "a.c": '#include <wide.h>\n#include "two.h"\n', "b.c": '#include "two.h"\n'}
	files["c.c"] = files["a.c"]
	found = sources(tmp_path, files, [str(tmp_path / "system")])
	plan = grouping.plan(found, [100] * 3, 50, False)
	assert [entry.members for entry in plan.entries] == [[0, 2], [1]]


def test_what_runs_before_main_keeps_its_turn(tmp_path: Any) -> None:
	"""If a source that runs code is taken out, later ones are not put before it."""
	files = {"%s.cpp" % name: "static Registered %s(1);" % name for name in "abcd"}
	plan = grouping.plan(sources(tmp_path, files), [100] * 4, 50, True)
	assert [entry.members for entry in plan.entries] == [[0, 1, 2, 3]]
	plan = grouping.plan(sources(tmp_path, files), [100] * 4, 50, True, away=[1])
	assert [entry.members for entry in plan.entries] == [[0], [1], [2, 3]]


# ---- what is remembered


def test_records_are_whole_or_none(tmp_path: Any) -> None:
	"""A file that was cut or changed anywhere is not read."""
	path = str(tmp_path / "records")
	memory.write(path, {"a": [1, "\udcff"]})
	assert memory.read(path) == {"a": [1, "\udcff"]}
	with open(path, "rb") as f:
		content = f.read()
	for i in range(len(content)):
		for damaged in (content[:i], content[:i] + bytes((content[i] ^ 1,)) + content[i + 1 :]):
			with open(path, "wb") as f:
				f.write(damaged)
			assert memory.read(path) is None
	assert os.listdir(str(tmp_path)) == ["records"]


def test_a_stamp_that_is_not_to_be_trusted_has_the_file_read(tmp_path: Any) -> None:
	"""A file that was read just after a change is read once more; it counts as changed only if it is."""
	file, none = tmp_path / "a.h", str(tmp_path / "none.h")
	file.write_text("one")
	path = str(file)
	found = stamps.of_file(path)
	assert found is not None
	fresh = stamps.settle(found, found[stamps.CHANGED])
	assert stamps.is_unsettled(fresh) and not stamps.is_unsettled(found)
	old = found[stamps.CHANGED] + stamps.JUST_NOW_COARSE
	assert stamps.settle(found, old) == found

	def look(known: Any, digest: bytes, name: str = path) -> Tuple[List[str], Any]:
		seen_file = seen.SeenFile(name, known, digest)
		changed = memory.BuildMemory(str(tmp_path)).find_changed([seen_file])
		return [each.path for each in changed], seen_file.stamp

	digest = bytes.fromhex(seen.digest_of(path))
	while stamps.is_unsettled(stamps.settle(found)):
		assert look(fresh, digest) == ([], fresh) or not stamps.is_unsettled(stamps.settle(found))
	assert look(fresh, digest) == ([], found)
	assert look(found, b"") == ([], found)
	assert look(fresh, b"") == ([path], fresh)
	assert look(fresh, b"other") == ([path], fresh)
	assert look(found, digest, none) == ([none], found)
	assert look(None, digest, none) == ([], None)


def test_files_are_stored_once() -> None:
	"""Plans that depend on the same state of a file share it; another state of it is another file."""
	old, new = seen.SeenFile("a.h", [1, 2], b"old"), seen.SeenFile("a.h", [1, 3], b"new")
	files, packed = seen.pack({"one": [old, new], "two": [new], "none": []})
	assert files == [["a.h", [1, 2], b"old"], ["a.h", [1, 3], b"new"]]
	found = seen.unpack(files, packed)
	assert [file.digest for file in found["one"]] == [b"old", b"new"]
	assert found["two"] == found["one"][1:] and found["none"] == []
