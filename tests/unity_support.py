"""A project of sources that would change each other's meaning if they were simply concatenated."""

from typing import Dict, List

GUARDED = "#ifndef {0}_H\n#define {0}_H\n{1}\n#endif\n"

# each pair is of sources in C or C++: both define "int NAME_a(void)" and "int NAME_b(void)", which are printed
PAIRS: Dict[str, List[str]] = {
	"static_functions": [
		"static int twice(int x) { return 2 * x; }\nint F(void) { return twice(4); }",
		"static int twice(int x) { return 20 * x; }\nint F(void) { return twice(4); }",
	],
	"static_variables": [
		"static int kept = 1;\nint F(void) { return kept; }",
		"static int kept = 2;\nint F(void) { return kept; }",
	],
	"tentative_definitions": [
		"static int slot;\nint F(void) { slot = 7; return slot; }",
		"static int slot;\nint F(void) { return slot; }",
	],
	"types": [
		"struct point { char x; };\nint F(void) { return sizeof(struct point); }",
		"struct point { char x[40]; };\nint F(void) { return sizeof(struct point); }",
	],
	"typedefs": [
		"typedef char unit;\nint F(void) { return sizeof(unit); }",
		"typedef double unit;\nint F(void) { return sizeof(unit); }",
	],
	"enumerators": [
		"enum { FIRST = 3 };\nint F(void) { return FIRST; }",
		"enum { FIRST = 4 };\nint F(void) { return FIRST; }",
	],
	"macros_left": [
		"#define MODE 1\nint F(void) { return MODE; }",
		"#ifdef MODE\nint F(void) { return 100; }\n#else\nint F(void) { return 2; }\n#endif",
	],
	"macros_if_there_are_none": [
		"#ifndef LIMIT\n#define LIMIT 10\n#endif\nint F(void) { return LIMIT; }",
		"#ifndef LIMIT\n#define LIMIT 20\n#endif\nint F(void) { return LIMIT; }",
	],
	"macros_like_functions": [
		"#define half(x) ((x) / 2 + 100)\nint F(void) { return half(8); }",
		"static int half(int x) { return x / 2; }\nint F(void) { return half(8); }",
	],
	"macros_before_includes": [
		'#define WANT_WIDE\n#include "switched.h"\nint F(void) { return sizeof(switched); }',
		'#include "switched.h"\nint F(void) { return sizeof(switched); }',
	],
	"macros_of_a_header": [
		'#include "tracing.h"\nint F(void) { return TRACING; }',
		"#ifdef TRACING\nint F(void) { return 100; }\n#else\nint F(void) { return 5; }\n#endif",
	],
	"macros_taken_away": [
		'#include "limit.h"\n#undef MOST\n#define MOST 3\nint F(void) { return MOST; }',
		'#include "limit.h"\nint F(void) { return MOST; }',
	],
	"macros_of_the_system": [
		"#include <limits.h>\nint F(void) { return INT_MAX > 1; }",
		"#ifdef INT_MAX\nint F(void) { return 100; }\n#else\nint F(void) { return 6; }\n#endif",
	],
	"features": [
		'#include "features_on.h"\n#include <stdio.h>\nint F(void) { return 1; }',
		"#include <features.h>\n#ifdef __USE_GNU_ONLY_HERE\nint F(void) { return 100; }\n#else\n"
		"int F(void) { return 2; }\n#endif",
	],
	"guards": [
		'#include "copied_1.h"\nint F(void) { return COPIED; }',
		'#include "copied_2.h"\nint F(void) { return COPIED; }',
	],
	"pragmas": [
		"#pragma pack(1)\nstruct packed_a { char c; int i; };\nint F(void) { return sizeof(struct packed_a); }",
		"struct packed_b { char c; int i; };\nint F(void) { return sizeof(struct packed_b); }",
	],
	"pragmas_of_a_header": [
		'#include "packing.h"\nint F(void) { return 1; }',
		"struct packed_d { char c; int i; };\nint F(void) { return sizeof(struct packed_d); }",
	],
	"counters_of_a_header": [
		'#include "counted.h"\nint F(void) { counted++; return counted; }',
		'#include "counted.h"\nint F(void) { counted++; return counted; }',
	],
	"counters_in_a_function_of_a_header": [
		'#include "next.h"\nint F(void) { return next_number(); }',
		'#include "next.h"\nint F(void) { return next_number(); }',
	],
	"counter_macro": [
		"int F(void) { return __COUNTER__; }",
		"int F(void) { return __COUNTER__ + __COUNTER__; }",
	],
	"include_level": [
		"int F(void) { return __INCLUDE_LEVEL__; }",
		"int F(void) { return __LINE__ + __INCLUDE_LEVEL__; }",
	],
	"x_macros": [
		'#define ITEM(x) + 1\nint F(void) { return 0\n#include "items.inc"\n; }\n#undef ITEM',
		'#define ITEM(x) + x\nint F(void) { return 0\n#include "items.inc"\n; }\n#undef ITEM',
	],
	"text_included_twice": [
		'#include "table.inc"\nint F(void) { return table[0]++; }',
		'#include "table.inc"\nint F(void) { return table[0]; }',
	],
	"made_by_macros": [
		'#include "making.h"\nMAKE(hidden, 11)\nint F(void) { return hidden(); }',
		'#include "making.h"\nMAKE(hidden, 12)\nint F(void) { return hidden(); }',
	],
	"file_names": [
		"static int sum(const char *s) { int n = 0; while (*s) n += *s++; return n; }\n"
		"int F(void) { return sum(__FILE__) + __LINE__; }",
		"static int sum(const char *s) { int n = 0; while (*s) n += *s++; return n; }\n"
		"int F(void) { return sum(__FILE__) + __LINE__; }",
	],
}

PAIRS_CXX: Dict[str, List[str]] = {
	"anonymous_namespaces": [
		"namespace { int value() { return 1; } }\nint F() { return value(); }",
		"namespace { int value() { return 2; } }\nint F() { return value(); }",
	],
	"anonymous_and_global": [
		"namespace { int depth = 3; }\nint F() { return depth; }",
		"extern int depth_of_all;\nnamespace deep { int depth = 5; }\nint F() { using namespace deep; return depth; }",
	],
	"better_overloads": [
		"static int pick(int) { return 100; }\nint F() { return pick(1); }",
		"static int pick(long) { return 2; }\nint F() { return pick(1); }",
	],
	"better_overloads_of_a_header": [
		'#include "picking.h"\nint F() { return choose(1); }',
		"static int choose(long) { return 2; }\nint F() { return choose(1); }",
	],
	"overloads_without_a_header": [
		"int settle(int) { return 100; }\nint F() { return settle(1); }",
		'#include "settling.h"\nint F() { return settle(1); }',
	],
	"greedy_operators": [
		'#include "greedy.h"\nint F() { return 1; }',
		'#include "plain.h"\nint F() { return plain() << 3; }',
	],
	"operators": [
		'#include "plain.h"\nstatic int operator<<(Plain, long) { return 100; }\nint F() { return plain() << 3L; }',
		'#include "plain.h"\nint F() { return plain() << 3L; }',
	],
	"using_namespaces": [
		"namespace wide { inline int area(int) { return 100; } }\nusing namespace wide;\nint F() { return area(1); }",
		"static int area(long) { return 2; }\nint F() { return area(1); }",
	],
	"using_declarations": [
		'#include "spaces.h"\nusing outer::name;\nint F() { return name(1); }',
		'#include "spaces.h"\nstatic int name(long) { return 2; }\nint F() { return name(1); }',
	],
	"aliases": [
		'#include "spaces.h"\nnamespace o = outer;\nint F() { return o::name(1); }',
		"namespace o { inline int name(int) { return 3; } }\nint F() { return o::name(1); }",
	],
	"constants": [
		"const int SIZE = 3;\nint F() { return SIZE; }",
		"const int SIZE = 4;\nint F() { return SIZE; }",
	],
	"templates": [
		"template <class T> static int width(T) { return sizeof(T); }\nint F() { return width('c'); }",
		"static int width(int) { return 77; }\nint F() { return width('c'); }",
	],
	"order_before_main": [
		'#include "started.h"\nstatic Started first(1);\nint F() { return started_sum; }',
		'#include "started.h"\nstatic Started second(2);\nint F() { return started_sum; }',
	],
	"order_before_main_again": [
		'#include "started.h"\n#define PRELUDE 1\n#include "heeds_prelude.h"\nstatic Started third(3);\n'
		"int F() { return started_sum; }",
		'#include "started.h"\nstatic Started fourth(4);\nint F() { return started_sum; }',
	],
}

IN_BOTH = (
	"static_variables",
	"macros_left",
	"pragmas",
	"counters_of_a_header",
	"made_by_macros",
	"file_names",
	"features",
)
"""Sources in C that are compiled as C++ as well."""

HEADERS = {
	"switched.h": GUARDED.format(
		"SWITCHED", "#ifdef WANT_WIDE\ntypedef double switched;\n#else\ntypedef char switched;\n#endif"
	),
	"tracing.h": GUARDED.format("TRACING_", "#define TRACING 3"),
	"limit.h": GUARDED.format("LIMIT_", "#define MOST 30"),
	"features_on.h": GUARDED.format("FEATURES_ON", "#define _GNU_SOURCE 1\n#define __USE_GNU_ONLY_HERE 1"),
	"copied_1.h": GUARDED.format("COPIED_", "#define COPIED 1"),
	"copied_2.h": GUARDED.format("COPIED_", "#define COPIED 2"),
	"packing.h": GUARDED.format("PACKING", "#pragma pack(1)\nstruct packed_c { char c; int i; };"),
	"counted.h": GUARDED.format("COUNTED", "static int counted;"),
	"next.h": GUARDED.format("NEXT", "static int next_number(void) { static int n; return ++n; }"),
	"items.inc": "ITEM(1) ITEM(2) ITEM(3)\n",
	"table.inc": "static int table[1];\n",
	"making.h": GUARDED.format("MAKING", "#define MAKE(name, x) static int name(void) { return x; }"),
	"picking.h": GUARDED.format("PICKING", "inline int choose(int) { return 100; }"),
	"settling.h": GUARDED.format("SETTLING", "inline int settle(long) { return 2; }"),
	"greedy.h": GUARDED.format("GREEDY", "template <class A> int operator<<(A, int) { return 100; }"),
	"plain.h": GUARDED.format(
		"PLAIN",
		"struct Plain { operator int() const { return 1; } };\ninline Plain plain() { return Plain(); }",
	),
	"spaces.h": GUARDED.format("SPACES", "namespace outer { inline int name(int) { return 100; } }"),
	"started.h": GUARDED.format(
		"STARTED", "extern int started_sum;\nstruct Started { Started(int n) { started_sum = started_sum * 10 + n; } };"
	),
	"heeds_prelude.h": GUARDED.format("HEEDS", "#ifdef PRELUDE\nenum { heeded = 1 };\n#endif"),
}

WSCRIPT = """\
def options(opt):
	opt.load('compiler_c compiler_cxx unity')
def configure(cnf):
	cnf.load('compiler_c compiler_cxx')
def build(bld):
	bld.load('unity')
	bld.program(
		source = ['main.cpp', 'sum.cpp'] + bld.path.ant_glob('pairs/*.c pairs/*.cpp'),
		includes = 'include', target = 'app', %s)
"""


def conflicts(attributes: str = "") -> Dict[str, str]:
	"""The files of the project."""
	files = {"wscript": WSCRIPT % attributes, "sum.cpp": "extern int started_sum;\nint started_sum;\n"}
	files.update(("include/" + name, text) for name, text in HEADERS.items())
	calls = []
	for suffix, pairs in (("c", PAIRS), ("cpp", {**{name: PAIRS[name] for name in IN_BOTH}, **PAIRS_CXX})):
		for name, texts in pairs.items():
			for letter, text in zip("ab", texts):
				function = "%s_%s_%s" % (suffix, name, letter)
				calls.append(function)
				if suffix == "c":
					text = text.replace("F(void)", function + "(void)")
				else:
					text = 'extern "C" int %s();\n' % function + text.replace("F()", function + "()").replace(
						"F(void)", function + "()"
					)
				files["pairs/%s_%s.%s" % (name, letter, suffix)] = text + "\n"
	declared = "".join('extern "C" int %s();\n' % call for call in calls)
	printed = "".join('\tstd::printf("%s %%d\\n", %s());\n' % (call, call) for call in calls)
	files["main.cpp"] = "#include <cstdio>\n%sint main() {\n%s}\n" % (declared, printed)
	return files


# ---- sources as those of an old game


GAME_COMMON = """\
#pragma once
#ifndef GAME_COMMON
#define GAME_COMMON
#ifdef _MSC_VER
#pragma warning(disable : 4244)
#endif
#pragma warning(disable : 4305) // shortened constants
#pragma warning( disable : 4514 )
#pragma intrinsic(memset)
#pragma inline_depth(32)
#pragma auto_inline(on)
#pragma region entities
#include "packet.h"
struct Entity { int health; virtual int Think(); virtual ~Entity() {} };
typedef Entity *(*Maker)();
struct Field { const char *name; int offset; };
void Register(const char *name, Maker maker);
#define LINK_ENTITY_TO_CLASS(name, type) extern "C" Entity *name(); Entity *name() { return new type; }
#define DEFINE_FIELD(type, field) { #field, sizeof(type) }
#pragma endregion
#endif
"""
GAME_PACKET = """\
#ifndef PACKET
#define PACKET
#pragma pack(push, 1)
struct Packet { char kind; int value; };
#pragma pack(pop)
#pragma pack(1)
struct Header { char kind; short length; };
#pragma pack()
#endif
"""
GAME_SOURCE = """\
#include "common.h"
#pragma optimize("", off)
#define SF_START_ON %(n)d
class Monster%(n)d : public Entity { int Think(); static Field m_Data[]; };
LINK_ENTITY_TO_CLASS(monster_%(n)d, Monster%(n)d)

Field Monster%(n)d::m_Data[] = { DEFINE_FIELD(Monster%(n)d, health) };
static const int table_%(n)d[] = { 1, 2, %(n)d };
int Monster%(n)d::Think() { return health + SF_START_ON + table_%(n)d[2] + m_Data[0].offset; }
#pragma optimize("", on)
"""
GAME_MAIN = """\
#include "common.h"
#include <cstdio>
int Entity::Think() { return health; }
struct Loose { char kind; int value; };
%s
int main() { std::printf("%%d %%d %%d\\n", (int)sizeof(Packet), (int)sizeof(Header), (int)sizeof(Loose));
%s
return 0; }
"""


def game(count: int = 30) -> Dict[str, str]:
	"""A program in the style of an old game: pragmas of another compiler, packed structures, macros that register."""
	names = ["monster_%d" % n for n in range(count)]
	files = {"dlls/%s.cpp" % name: GAME_SOURCE % {"n": n} for n, name in enumerate(names)}
	files["dlls/main.cpp"] = GAME_MAIN % (
		"\n".join('extern "C" Entity *%s();' % name for name in names),
		"\n".join('std::printf("%%d\\n", (%s())->Think());' % name for name in names),
	)
	files["common/common.h"] = GAME_COMMON
	files["common/packet.h"] = GAME_PACKET
	files["wscript"] = (
		"def options(opt):\n\topt.load('compiler_cxx unity')\n"
		"def configure(cnf):\n\tcnf.load('compiler_cxx')\n"
		"def build(bld):\n\tbld.load('unity')\n"
		"\tbld.program(source=bld.path.ant_glob('dlls/*.cpp'), includes='common', target='app')\n"
	)
	return files
