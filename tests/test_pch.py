"""The tool `pch`: headers that the project names, and those that it finds by itself."""

import json
import pathlib
import shutil
import subprocess
from typing import Any, Dict, List

import pytest
from conftest import on_cpython

from waflib_extras.pch import record, weighing

HEAD = """\
def options(opt):
	opt.load('compiler_c compiler_cxx pch')

def configure(conf):
	conf.load('compiler_c compiler_cxx pch')
	conf.env.append_value('CXXFLAGS', '-O0')

def build(bld):
"""
STANDARD = "#include <map>\n#include <string>\n#include <vector>\n"
BODY = "int f%s() { return sizeof(std::map<std::string, std::vector<int>>) + %d; }\n"
ONCE = "from waflib_extras.pch import trial\ntrial.TIMES = 1\n"
"""For a wscript: each trial runs once, not three times. What the headers gain is far more than such times vary."""
COMPILERS = pytest.mark.parametrize("compiler", ["gcc", "clang"])


def find_compiler(name: str) -> Dict[str, str]:
	"""The variables with which Waf chooses a compiler."""
	names = {"gcc": ("gcc", "g++"), "clang": ("clang", "clang++")}[name]
	if not all(map(shutil.which, names)):
		pytest.skip("there is no " + names[1])
	return {"CC": names[0], "CXX": names[1]}


def build_lines(done: Any) -> List[str]:
	"""The commands that have compiled something."""
	return [line for line in (done.stdout + done.stderr).splitlines() if " runner " in line and "'-c'" in line]


def count_compiled(done: Any) -> int:
	return done.stdout.count("Compiling ") + done.stderr.count("Compiling ")


def run(folder: pathlib.Path) -> str:
	return subprocess.run([str(folder / "build" / "app")], check=True, capture_output=True, text=True).stdout


# ---- headers that pay

ODD = {
	"defines.cpp": "#define _GNU_SOURCE 1\n" + STANDARD,
	"braces.cpp": 'extern "C" {\n' + STANDARD + "}\n",
	"pragma.cpp": "#pragma pack(2)\n" + STANDARD,
	"python.cpp": "#if __has_include(<Python.h>)\n#include <Python.h>\n#endif\n" + STANDARD,
	"other.cpp": "#include <cstddef>\n",
}
"""Sources that may not begin after the headers of the others."""


def lay_out(project: Any, odd: bool = False) -> pathlib.Path:
	files = {"src/f%d.cpp" % i: '#include "own.h"\n' + STANDARD + BODY % (i, i) for i in range(6)}
	files["src/own.h"] = "#ifndef OWN\n#define OWN\n#include <string>\nint own();\n#endif\n"
	files["wscript"] = ONCE + HEAD + "\tbld.stlib(source=bld.path.ant_glob('src/*.cpp'), target='all')\n"
	if odd:
		files.update({"src/" + name: text + "int %s;\n" % name[:-4] for name, text in ODD.items()})
	return pathlib.Path(project(files))


def read_objects(folder: pathlib.Path) -> Dict[str, bytes]:
	return {path.name: path.read_bytes() for path in (folder / "build" / "src").glob("*.o")}


@on_cpython
def test_headers_that_pay(waf: Any, project: Any) -> None:
	"""They are found, and each source that they would change is left as it is, with a reason."""
	folder = lay_out(project, odd=True)
	found = waf(folder, "configure", "pch", "-v", env=find_compiler("gcc"), tools="")
	said = found.stdout + found.stderr
	assert "pch: all (11 C++ sources): 6 begin after 3 headers: " in said, said
	assert "the same objects" in said
	assert "defines.cpp: it defines _GNU_SOURCE before it reads <" in said
	assert "braces.cpp: braces.cpp includes headers within braces" in said
	assert "pragma.cpp: it has #pragma pack(2) before it reads <" in said
	assert "python.cpp: it reads <Python.h> first" in said
	assert "other.cpp: it does not read <" in said
	content = json.loads((folder / "build" / "pch.json").read_text())
	weighed = content["targets"]["all cxx"]["weighed"]
	assert set(weighed["headers"]) == {"map", "string", "vector"}
	assert weighed["users"] == 6 and weighed["same"] == weighed["tried"] == 3
	assert not list((folder / "build").rglob("*.o"))


@on_cpython
def test_automatic_headers(waf: Any, project: Any) -> None:
	"""With --pch=auto they are used, no object differs, and a build without the option compiles nothing anew."""
	folder = lay_out(project)
	environ = find_compiler("gcc")
	first = waf(folder, "configure", "build", "--pch=auto", "-v", "--no-prefork", env=environ, tools="prefork")
	assert "6 begin after 3 headers" in first.stdout + first.stderr
	begun = [line for line in build_lines(first) if "'-include'" in line]
	assert len(begun) == 6
	objects = read_objects(folder)
	assert count_compiled(waf(folder, "build", "--pch=auto")) == 0
	assert count_compiled(waf(folder, "build")) == 0
	# an edit is looked at before the source is compiled
	(folder / "src" / "f0.cpp").write_text("#define _GNU_SOURCE 1\n" + STANDARD + BODY % (0, 0))
	again = waf(folder, "build", "--pch=auto", "-v", "--no-prefork", tools="prefork")
	assert ["'-include'" in line for line in build_lines(again)] == [False]
	shutil.rmtree(folder / "build")
	(folder / "src" / "f0.cpp").write_text('#include "own.h"\n' + STANDARD + BODY % (0, 0))
	assert "pch" not in waf(folder, "configure", "build", "--pch=off", env=environ).stdout
	assert read_objects(folder) == objects


@on_cpython
def test_waf_2_0(waf: Any, project: Any, waf20: pathlib.Path) -> None:
	folder = lay_out(project)
	done = waf(folder, "configure", "build", "--pch=auto", env=find_compiler("gcc"), wafdir=waf20)
	assert "6 begin after 3 headers" in done.stdout + done.stderr
	assert list((folder / "build").rglob("*.gch"))
	assert count_compiled(waf(folder, "build", wafdir=waf20)) == 0


@on_cpython
def test_automatic_headers_with_the_cache(waf: Any, project: Any) -> None:
	"""They go together with the engine and its cache."""
	folder = lay_out(project)
	tools = "prefork wafcc"
	waf(folder, "configure", "build", "--pch=auto", env=find_compiler("gcc"), tools=tools)
	objects = read_objects(folder)
	assert count_compiled(waf(folder, "build", "--pch=auto", tools=tools)) == 0
	assert count_compiled(waf(folder, "build", tools=tools)) == 0
	path = folder / "src" / "f1.cpp"
	path.write_text(path.read_text() + "int more;\n")
	assert count_compiled(waf(folder, "build", "--pch=auto", tools=tools)) == 1
	changed = read_objects(folder)
	assert [name for name in objects if objects[name] != changed[name]] == ["f1.cpp.1.o"]


@on_cpython
def test_nothing_pays(waf: Any, project: Any) -> None:
	"""Cheap headers are left alone, and options that read a file first."""
	sources = {"a%d.c" % i: "#include <stddef.h>\nint a%d;\n" % i for i in range(6)}
	sources.update({"b%d.cpp" % i: STANDARD + BODY % (i, i) for i in range(6)})
	body = "\tbld.objects(source=bld.path.ant_glob('*.c'), target='cheap')\n"
	body += "\tbld.objects(source=bld.path.ant_glob('*.cpp'), target='first', cxxflags=['-include', 'stddef.h'])\n"
	folder = project({"wscript": HEAD + body, **sources})
	done = waf(folder, "configure", "pch", env=find_compiler("gcc"))
	said = done.stdout + done.stderr
	assert "pch: cheap (6 C sources): nothing pays: the headers that its sources share take " in said
	assert "pch: first (6 C++ sources): nothing pays: its options have -include" in said


# ---- headers that the project names


def declare(project: Any, form: str) -> pathlib.Path:
	body = {
		"use": "\tbld(features='cxx pch', name='heavy', target='heavy', headers='a.h', includes='ext')\n"
		"\tbld.program(source='main.cpp more.cpp', target='app', includes='ext', use='heavy')\n",
		"own": "\tbld(features='cxx cxxprogram pch', source='main.cpp more.cpp', target='app', headers='a.h',"
		" includes='ext')\n",
	}[form].replace("'ext'", "bld.path.parent.abspath() + '/ext'")
	outside = project({"far.h": "#define FAR 1\n"}, name="ext")
	assert outside.is_dir()
	return pathlib.Path(
		project(
			{
				"wscript": HEAD + body,
				"a.h": "#ifndef A\n#define A\n#include <far.h>\n#include <cstdio>\n"
				"int more();\n#define NEAR 1\n#endif\n",
				# no include: the option is what brings the header
				"main.cpp": 'int main() { std::printf("%d%d%d", NEAR, FAR, more()); }\n',
				"more.cpp": "int more() { return NEAR; }\n",
			}
		)
	)


@pytest.mark.parametrize(
	("form", "tools", "compiler"),
	[
		pytest.param("use", "", "gcc", marks=on_cpython),
		pytest.param("own", "", "clang", marks=on_cpython),
		pytest.param("use", "prefork wafcc", "clang", marks=on_cpython),
		("own", "prefork wafcc", "gcc"),
	],
)
def test_declared_headers(waf: Any, project: Any, form: str, tools: str, compiler: str) -> None:
	"""Both forms of Waf's own tool; sources follow the headers, which no include of theirs names."""
	folder = declare(project, form)
	waf(folder, "configure", "build", env=find_compiler(compiler), tools=tools)
	assert run(folder) == "111"
	assert len(list((folder / "build").rglob("*.?ch"))) == 1
	assert count_compiled(waf(folder, "build", tools=tools)) == 0
	header = folder / "a.h"
	header.write_text(header.read_text().replace("NEAR 1", "NEAR 22"))
	waf(folder, "build", tools=tools)
	assert run(folder) == "22122"
	# only its time changes: clang would refuse what it has precompiled
	header.touch()
	path = folder / "more.cpp"
	path.write_text(path.read_text() + "int another;\n")
	count = count_compiled(waf(folder, "build", tools=tools))
	# clang looks at the times of headers: the cache may have its users run again
	assert count == 1 or (tools and compiler == "clang" and count == 2)
	assert run(folder) == "22122"


@on_cpython
@COMPILERS
def test_header_from_outside_changes(waf: Any, project: Any, compiler: str) -> None:
	"""Waf does not know it, and gcc would not look at it again: the header is precompiled anew."""
	folder = declare(project, "use")
	waf(folder, "configure", "build", env=find_compiler(compiler))
	(folder.parent / "ext" / "far.h").write_text("#define FAR 3\n")
	path = folder / "main.cpp"
	path.write_text(path.read_text() + "int another;\n")
	waf(folder, "build")
	assert run(folder) == "131"


@on_cpython
def test_without(waf: Any, project: Any) -> None:
	"""Neither --without-pch nor --pch=off precompiles anything; two targets of one name are a mistake."""
	folder = declare(project, "own")
	for name in ("main.cpp", "more.cpp"):
		path = folder / name
		path.write_text('#include "a.h"\n' + path.read_text())
	environ = find_compiler("gcc")
	for options in (["configure", "--without-pch", "build"], ["configure", "build", "--pch=off"]):
		shutil.rmtree(folder / "build", ignore_errors=True)
		waf(folder, *options, env=environ)
		assert run(folder) == "111" and not list((folder / "build").rglob("*.gch"))
	script = folder / "wscript"
	script.write_text(script.read_text() + "\tbld(features='cxx pch', name='app', headers='a.h')\n")
	failed = waf(folder, "configure", "build", env=environ, status=1)
	assert "two targets with precompiled headers are named 'app'" in failed.stderr
	assert "Traceback" not in failed.stderr


# ---- what must not fail a build


@on_cpython
def test_a_failure_leaves_a_plain_build(waf: Any, project: Any) -> None:
	"""A compiler makes no precompiled header: the build goes well without."""
	folder = lay_out(project)
	wrapper = project({"g++": '#!/bin/sh\ncase "$*" in *pch/all*) exit 1;; esac\nexec g++ "$@"\n'}, name="bin") / "g++"
	wrapper.chmod(0o755)
	environ = find_compiler("gcc")
	environ["CXX"] = str(wrapper)
	done = waf(folder, "configure", "build", "--pch=auto", env=environ)
	assert "could not be made: sources are compiled without it" in done.stdout + done.stderr
	assert len(read_objects(folder)) == 6


@pytest.mark.parametrize(
	"damaged", ["", "{", "[]", '{"format": 1, "targets": []}', '{"format": 1, "targets": {"all cxx": {}}}']
)
def test_a_damaged_record(tmp_path: pathlib.Path, damaged: str) -> None:
	"""It counts as empty, and the next target that is weighed replaces it."""
	path = tmp_path / "pch.json"
	path.write_text(damaged)
	known = record.Record(str(tmp_path))
	assert not known.entries
	weighed = weighing.refuse(5, "a test")
	known.put("all cxx", "digest", weighed)
	again = record.Record(str(tmp_path))
	assert again.find("all cxx", "digest", 5) == weighed
	assert again.find("all cxx", "another", 5) is None and again.find("all cxx", "digest", 11) is None
