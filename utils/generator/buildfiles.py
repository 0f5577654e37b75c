"""The text of the build files: for Waf, CMake, ninja, make, and for no build system at all."""

from typing import Callable, Dict, List, NamedTuple, Sequence

from . import VERSION, piece
from .plan import BUILD_FILES, SUFFIX, Plan


class Compiler(NamedTuple):
	"""How one language is called by the build systems."""

	name: str  # ninja's variable, and the end of Waf's tool
	variable: str  # of the environment
	flags_variable: str
	cmake: str
	suffix: str
	command: str
	flags: str


def compilers(plan: Plan) -> List[Compiler]:
	"""The compilers that a project needs, the one that links first."""
	cxx, cc, flags = (" ".join(text.split()) for text in (plan.cxx, plan.cc, plan.flags))
	known = {
		"c": Compiler("c", "CC", "CFLAGS", "C", SUFFIX["c"], cc, flags),
		"c++": Compiler("cxx", "CXX", "CXXFLAGS", "CXX", SUFFIX["c++"], cxx, flags),
	}
	return [known[language] for language in plan.languages()]


def made_by(plan: Plan) -> str:
	return "made by genbench %s: %s" % (VERSION, plan.summary())


def libraries_to_link(plan: Plan, form: str) -> List[str]:
	"""The libraries in the order in which a linker needs them: users before what they use."""
	return [form % lib for lib in reversed(range(plan.libs))]


def wscript_text(plan: Plan) -> str:
	defaults = []
	for compiler in compilers(plan):
		defaults.append((compiler.variable, compiler.command))
		if compiler.flags:
			defaults.append((compiler.flags_variable, compiler.flags))
	source = "'lib_%d/class_%d%s' % (i, j, ('.cpp', '.c')[(i + j) % 2])"
	if plan.language != "both":
		source = "'lib_%%d/class_%%d%s' %% (i, j)" % SUFFIX[plan.language]
	names = {
		"made_by": made_by(plan),
		"version": VERSION,
		"variables": ", ".join("%s, %s" % (c.variable, c.flags_variable) for c in compilers(plan)),
		"tools": " ".join("compiler_" + compiler.name for compiler in compilers(plan)),
		"defaults": "\n".join("\tconf.environ.setdefault(%r, %r)" % default for default in defaults),
		"libs": str(plan.libs),
		"classes": str(plan.classes),
		"source": source,
		"suffix": SUFFIX[plan.languages()[0]],
	}
	text = piece.load("build/wscript")
	if plan.program:
		text += piece.load("build/wscript_program")
	return piece.fill(text, names)


def cmake_text(plan: Plan) -> str:
	lines = ["# " + made_by(plan), "cmake_minimum_required(VERSION 3.10)"]
	for compiler in compilers(plan):
		for variable, value in ((compiler.variable, compiler.command), (compiler.flags_variable, compiler.flags)):
			if value:
				lines += ["if(NOT DEFINED ENV{%s})" % variable, '\tset(ENV{%s} "%s")' % (variable, value), "endif()"]
	lines += ["project(genbench LANGUAGES %s)" % " ".join(compiler.cmake for compiler in compilers(plan))]
	for lib in range(plan.libs):
		lines += ["", "add_library(lib_%d STATIC" % lib]
		lines += ["\t" + unit.source for unit in plan.library(lib)]
		lines += [")", "target_include_directories(lib_%d PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})" % lib]
	if plan.program:
		lines += ["", "add_executable(checksum"] + ["\t" + source for source in plan.program_sources()] + [")"]
		lines += ["target_include_directories(checksum PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})"]
		lines += ["target_link_libraries(checksum PRIVATE"]
		lines += ["\t" + name for name in libraries_to_link(plan, "lib_%d")] + [")"]
	return "\n".join(lines) + "\n"


def ninja_text(plan: Plan, folder: str = "out-ninja") -> str:
	"""Build.ninja; with another `folder`, a file for ``ninja -f`` that builds there."""
	text = "# %s\nninja_required_version = 1.5\nfolder = %s\nbuilddir = $folder\n" % (made_by(plan), folder)
	for compiler in compilers(plan):
		text += "\n" + piece.fill(piece.load("build/ninja_compile"), compiler._asdict())
	# Response files, as a shell's command may not be longer than 128 KiB and a library of some thousand files is.
	link = piece.fill(piece.load("build/ninja_link"), {"linker": compilers(plan)[0].name})
	lines = ["%s\n%s\n" % (text, link)]

	def objects(sources: Sequence[str]) -> str:
		for source in sources:
			rule = "c" if source.endswith(".c") else "cxx"
			lines.append("build $folder/%s.o: %s %s\n" % (source, rule, source))
		return " ".join("$folder/%s.o" % source for source in sources)

	for lib in range(plan.libs):
		held = objects([unit.source for unit in plan.library(lib)])
		lines.append("build $folder/liblib_%d.a: ar %s\n" % (lib, held))
	if plan.program:
		held = objects(plan.program_sources())
		used = " ".join(libraries_to_link(plan, "$folder/liblib_%d.a"))
		lines.append("build $folder/checksum: link %s %s\n" % (held, used))
	return "".join(lines)


def makefile_text(plan: Plan) -> str:
	text = piece.fill(piece.load("build/make_head"), {"made_by": made_by(plan)})
	for compiler in compilers(plan):
		# It asks for the origin of CXX and CC, as `?=` would leave make's own default in place.
		text += "\n" + piece.fill(piece.load("build/make_compile"), compiler._asdict())
	library = piece.fill(piece.load("build/make_library"), {"folders": " ".join(plan.source_folders())})
	lines = ["%s\n%s" % (text, library)]

	def objects(sources: Sequence[str], folder: str) -> None:
		lines.append("objects := $(patsubst %%,$(out)/%%.o,%s)\n" % " ".join(sources))
		lines.append("$(objects): | $(out)/%s\n" % folder)

	for lib in range(plan.libs):
		lines.append("\n")
		objects([unit.source for unit in plan.library(lib)], "lib_%d" % lib)
		lines.append("all: $(out)/liblib_%d.a\n$(out)/liblib_%d.a: $(objects)\n" % (lib, lib))
	if plan.program:
		lines.append("\n")
		objects(plan.program_sources(), "program")
		used = " ".join(libraries_to_link(plan, "$(out)/liblib_%d.a"))
		linker = compilers(plan)[0]
		lines.append("all: $(out)/checksum\n$(out)/checksum: $(objects) %s\n" % used)
		lines.append("\t$(%s) $(%s) -o $@ $^\n" % (linker.variable, linker.flags_variable))
	lines.append("\n-include $(wildcard $(out)/*/*.d)\n")
	return "".join(lines)


def commands_text(plan: Plan, folder: str = "out-xargs") -> str:
	"""One command per source, of words that need no shell; the folders below `folder` must be there when they run."""
	start = {each.suffix: ("%s %s" % (each.command, each.flags)).strip() for each in compilers(plan)}
	lines = []
	for source in plan.sources():
		suffix = source[source.rindex(".") :]
		lines.append("%s -I. -c %s -o %s/%s.o\n" % (start[suffix], source, folder, source))
	return "".join(lines)


TEXTS: Dict[str, Callable[[Plan], str]] = {
	"waf": wscript_text,
	"cmake": cmake_text,
	"ninja": ninja_text,
	"make": makefile_text,
}


def build_file_texts(plan: Plan) -> Dict[str, str]:
	return {BUILD_FILES[name]: TEXTS[name](plan) for name in plan.build_files}
