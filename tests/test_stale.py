"""The tool `stale`: what it removes at the end of a build, and what it keeps."""

import os
import pathlib
import shutil
from typing import Any, List, Set

import pytest
import wafx_support

COPY = "\tbld(rule='cp ${SRC} ${TGT}', source='%s', target='%s')\n"
HEAD = """\
import os
from waflib import Task

def options(opt):
	opt.load('stale')
	opt.add_option('--more', action='store_true')
	LOAD_OPTIONS

def configure(conf):
	LOAD_CONFIGURE
	pass

"""


def script(*lines: str, tools: str = "") -> str:
	"""A wscript with this `build`."""
	text = HEAD.replace("LOAD_OPTIONS", "opt.load(%r)" % tools if tools else "")
	text = text.replace("LOAD_CONFIGURE", "conf.load(%r)" % tools if tools else "")
	return text + "def build(bld):\n" + "".join("\t%s\n" % line for line in lines or ("pass",))


def copies(*names: str) -> List[str]:
	"""Rules that each copy a.txt to a target."""
	return ["bld(rule='cp ${SRC} ${TGT}', source='a.txt', target=%r)" % name for name in names]


def lay_out(project: Any, *lines: str, **kw: str) -> pathlib.Path:
	return project({"wscript": script(*lines, **kw), "a.txt": "some text\n"})


def rewrite(folder: pathlib.Path, *lines: str, **kw: str) -> None:
	(folder / "wscript").write_text(script(*lines, **kw))


def there(folder: pathlib.Path) -> Set[str]:
	"""The files and links below a folder, without those of Waf."""
	found = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
	names = {str(path.relative_to(folder)) for path in found}
	return {n for n in names if not n.startswith((".", "c4che")) and "/." not in n and n != "config.log"}


def lines_of(done: Any) -> List[str]:
	return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("stale: ")]


def test_file_that_is_not_made_any_more(waf: Any, project: Any) -> None:
	"""It is removed with the folder that it leaves empty, in one line; a file that no build has made stays."""
	folder = lay_out(project, *copies("one", "deep/er/two", "deep/three"))
	assert lines_of(waf(folder, "configure", "build")) == []
	(folder / "build" / "mine").write_text("not of a build")
	rewrite(folder, *copies("deep/three"))
	assert lines_of(waf(folder, "build")) == ["stale: 2 files removed: deep/er/two, one"]
	assert there(folder / "build") == {"deep/three", "mine"}
	assert not (folder / "build" / "deep" / "er").exists()
	assert lines_of(waf(folder, "build")) == []


def test_many_files_are_counted(waf: Any, project: Any) -> None:
	"""A line names three files; -v names all."""
	folder = lay_out(project, *copies("a1", "a2", "a3", "a4", "b"))
	waf(folder, "configure", "build")
	rewrite(folder, *copies("b"))
	dry = waf(folder, "build", "--stale=dry")
	assert lines_of(dry) == ["stale: 4 files would be removed: a1, a2, a3, and 1 more (-v names them)"]
	assert "stale: 4 files removed: a1, a2, a3, a4" in waf(folder, "build", "-v").stdout


def test_renamed_source(waf: Any, project: Any) -> None:
	"""The object of a source that was renamed is removed, and the program is linked without it."""
	folder = lay_out(project, "bld.program(source=bld.path.ant_glob('*.c'), target='app')", tools="compiler_c")
	(folder / "main.c").write_text("int one(void);\nint main(void) { return one(); }\n")
	(folder / "one.c").write_text("int one(void) { return 0; }\n")
	waf(folder, "configure", "build")
	(folder / "one.c").rename(folder / "other.c")
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: one.c.1.o"]
	assert there(folder / "build") == {"app", "main.c.1.o", "other.c.1.o"}


@pytest.mark.parametrize("tools", ["compiler_c", "compiler_c prefork wafcc"])
def test_header_without_its_generator(waf: Any, project: Any, engine: str, tools: str) -> None:
	"""A generated header is removed with its generator, though a source still reads it: the next build fails."""
	program = "bld.program(source='main.c', target='app', includes='.')"
	generator = "bld(rule='echo 1 > ${TGT}', target='gen.h', ext_out=['.h'])"
	folder = lay_out(project, program, generator, tools=tools)
	(folder / "main.c").write_text("int main(void) { return\n#include <gen.h>\n; }\n")
	waf(folder, "configure", "build")
	rewrite(folder, program, tools=tools)
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: gen.h"]
	assert "gen.h" in waf(folder, "build", status=1).stderr
	rewrite(folder, program, generator, tools=tools)
	waf(folder, "build")
	assert "gen.h" in there(folder / "build")


MAKER = """
class writer(Task.Task):
	def run(self):
		self.outputs[0].write('x')

class maker(Task.Task):
	'''Makes tasks that no task generator lists, and writes a file that it declares late.'''
	def make(self):
		words = self.inputs[0].read().split()
		self.more_tasks = []
		for word in words:
			task = writer(env=self.env, generator=self.generator)
			task.set_outputs(self.generator.path.find_or_declare(word))
			self.more_tasks.append(task)
	def runnable_status(self):
		status = super().runnable_status()
		if status == Task.SKIP_ME:
			self.make()
		return status
	def run(self):
		self.make()
		late = self.generator.path.find_or_declare('late')
		late.write('y')
		self.set_outputs(late)
"""


def test_tasks_that_are_made_during_the_build(waf: Any, project: Any) -> None:
	"""Their files stay when they are up to date, and so does one that a task declares when it runs only."""
	folder = lay_out(project)
	text = script("tg = bld(); tg.post()", "tg.create_task('maker', bld.path.find_node('a.txt'))")
	(folder / "wscript").write_text(text.replace("\ndef build", MAKER + "\ndef build"))
	waf(folder, "configure", "build")
	everything = {"some", "text", "late"}
	assert there(folder / "build") == everything
	assert lines_of(waf(folder, "build")) == []
	assert there(folder / "build") == everything
	(folder / "a.txt").write_text("some other\n")
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: text"]
	assert there(folder / "build") == {"some", "other", "late"}
	rewrite(folder, *copies("some"))
	assert lines_of(waf(folder, "build")) == ["stale: 2 files removed: late, other"]


def test_groups_that_are_posted_late(waf: Any, project: Any) -> None:
	"""Each group counts, whether it is posted when the one before it is done, or at once."""
	for mode in ("POST_LAZY", "POST_AT_ONCE"):
		first = ["from waflib import Build", "bld.post_mode = Build.%s" % mode, *copies("one", "two")]
		folder = project({"wscript": script(*first, "bld.add_group()", *copies("three", "four")), "a.txt": "x"}, mode)
		waf(folder, "configure", "build")
		rewrite(folder, *first, "bld.add_group()", *copies("four"))
		assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: three"]
		assert there(folder / "build") == {"one", "two", "four"}


VARIANTS = """
from waflib.Build import BuildContext
class debug(BuildContext):
	cmd = 'build_debug'
	variant = 'debug'
class other(BuildContext):
	cmd = 'other'
"""


def test_variants_and_other_commands(waf: Any, project: Any) -> None:
	"""A variant has a record of its own, and so has another command that builds into the same folder."""
	lines = ["if bld.cmd == 'other':", *("\t" + line for line in copies("mine")), "else:"]
	folder = lay_out(project, *lines, *("\t" + line for line in copies("one", "two")))
	(folder / "wscript").write_text((folder / "wscript").read_text() + VARIANTS)
	assert lines_of(waf(folder, "configure", "build", "build_debug", "other", "build")) == []
	rewrite(folder, *lines, *("\t" + line for line in copies("two")))
	(folder / "wscript").write_text((folder / "wscript").read_text() + VARIANTS)
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: one"]
	assert there(folder / "build") == {"two", "mine", "debug/one", "debug/two"}
	assert lines_of(waf(folder, "build_debug")) == ["stale: 1 file removed: debug/one"]
	told = waf(folder, "stale").stdout.splitlines()
	assert told[:3] == ["build: 1 file", "other: 1 file", "build_debug: 1 file"]


@pytest.mark.parametrize("how", [["--targets=two"], ["step", "--files=two"], ["--stale=off"]])
def test_partial_build_removes_nothing(waf: Any, project: Any, how: List[str]) -> None:
	"""A build of some targets, a step, and one that begins in a folder below remove nothing."""
	folder = lay_out(project, *copies("one", "two"))
	waf(folder, "configure", "build")
	rewrite(folder, *copies("two", "three"))
	assert lines_of(waf(folder, *(how if how[0] == "step" else ["build", *how]))) == []
	assert there(folder / "build") >= {"one", "two"}
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: one"]


def test_build_from_a_folder_below_removes_nothing(waf: Any, project: Any) -> None:
	"""Waf builds only what is declared there."""
	folder = lay_out(project, "bld.recurse('sub')", *copies("one"))
	(folder / "sub").mkdir()
	(folder / "sub" / "wscript").write_text("def build(bld):\n\tbld(rule='echo > ${TGT}', target='below')\n")
	waf(folder, "configure", "build")
	rewrite(folder, "bld.recurse('sub')", *copies("two"))
	assert lines_of(waf(folder / "sub", "build")) == []
	assert there(folder / "build") == {"one", "sub/below"}
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: one"]


@pytest.mark.parametrize("options", [[], ["-k"]])
def test_failed_build_removes_nothing(waf: Any, project: Any, options: List[str]) -> None:
	"""What a failed build has made is known to the next one."""
	folder = lay_out(project, *copies("one"))
	waf(folder, "configure", "build")
	rewrite(folder, *copies("two"), "bld.add_group()", "bld(rule='false', target='never')")
	assert lines_of(waf(folder, "build", *options, status=1)) == []
	assert there(folder / "build") == {"one", "two"}
	rewrite(folder, *copies("three"))
	assert lines_of(waf(folder, "build")) == ["stale: 2 files removed: one, two"]


def test_output_that_was_edited_is_kept(waf: Any, project: Any) -> None:
	"""It is named once, and is the user's from then on."""
	folder = lay_out(project, *copies("one", "two"))
	waf(folder, "configure", "build")
	(folder / "build" / "one").write_text("by hand")
	rewrite(folder, *copies("two"))
	assert lines_of(waf(folder, "build")) == ["stale: 1 file kept, since not as the build has made it: one"]
	assert lines_of(waf(folder, "build")) == []
	assert (folder / "build" / "one").read_text() == "by hand"


def test_output_that_is_a_source_now_is_kept(waf: Any, project: Any) -> None:
	"""This holds in the build folder and for a file that was generated among the sources, and is read there."""
	made = "bld(rule='cp ${SRC} ${TGT}', source='a.txt', target=[bld.path.make_node(%r)])"
	folder = lay_out(project, *copies("one"), made % "grown.txt", made % "gone.txt")
	waf(folder, "configure", "build")
	use = "bld(rule='cat ${SRC} > ${TGT}', source=['grown.txt', bld.bldnode.find_node('one')], target='two')"
	rewrite(folder, use)
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: %s/gone.txt" % folder]
	assert there(folder / "build") == {"one", "two"}
	assert (folder / "grown.txt").exists()
	rewrite(folder, *copies("two"))
	assert lines_of(waf(folder, "build")) == []


@pytest.mark.parametrize("tools", ["compiler_c", "compiler_c prefork wafcc"])
def test_generated_header_that_became_a_source_is_kept(waf: Any, project: Any, engine: str, tools: str) -> None:
	"""Among the sources, a file that only a scan or the engine has found is kept."""
	program = "bld.program(source='main.c', target='app', includes='.')"
	made = "bld(rule='echo 0 > ${TGT}', target=[bld.path.make_node('gen.h')], ext_out=['.h'])"
	folder = lay_out(project, program, made, tools=tools)
	(folder / "main.c").write_text("int main(void) { return\n#include <gen.h>\n; }\n")
	waf(folder, "configure", "build")
	rewrite(folder, program, tools=tools)
	assert lines_of(waf(folder, "build")) == []
	assert (folder / "gen.h").exists()


INSTALLED = ["bld.install_files('${PREFIX}/share/%s', 'a.txt')", "bld.symlink_as('${PREFIX}/lib/%s', 'a.txt')"]


def test_installed_files(waf: Any, project: Any, tmp_path: pathlib.Path) -> None:
	"""Only `waf install` removes them, only in the same destdir, with links and folders of its own."""
	here, there_ = tmp_path / "here", tmp_path / "there"
	folder = lay_out(project, INSTALLED[0] % "old", INSTALLED[1] % "old.so", INSTALLED[0] % "new")
	for place in (here, there_):
		(place / "usr" / "lib").mkdir(parents=True)
		waf(folder, "configure", "install", "--prefix=/usr", "--destdir=%s" % place)
	(here / "usr" / "share" / "old" / "admin").write_text("not ours")
	rewrite(folder, (INSTALLED[0] % "new").replace(")", ", name='it')"))
	for words in (["build"], ["install", "--targets=it"]):
		assert lines_of(waf(folder, *words, "--destdir=%s" % here)) == []
	wanted = "stale: 2 installed files removed: {0}/usr/lib/old.so, {0}/usr/share/old/a.txt".format(here)
	assert lines_of(waf(folder, "install", "--destdir=%s" % here)) == [wanted]
	assert there(here) == {"usr/share/old/admin", "usr/share/new/a.txt"}
	assert (here / "usr" / "lib").is_dir()
	assert there(there_) == {"usr/share/old/a.txt", "usr/share/new/a.txt", "usr/lib/old.so"}
	assert "installed" in lines_of(waf(folder, "install", "--destdir=%s" % there_))[0]
	assert (there_ / "usr" / "lib").is_dir() and not (there_ / "usr" / "share" / "old").exists()


def test_installed_files_that_are_not_ours(waf: Any, project: Any, tmp_path: pathlib.Path) -> None:
	"""A file that was there before, or was edited since, stays; `uninstall` forgets."""
	options = ["--destdir=%s" % (tmp_path / "root"), "--prefix=/usr"]
	before, edited = (tmp_path / "root" / "usr" / "share" / name / "a.txt" for name in ("before", "edited"))
	before.parent.mkdir(parents=True)
	folder = lay_out(project, *(INSTALLED[0] % name for name in ("before", "edited", "left", "new")))
	shutil.copy2(str(folder / "a.txt"), str(before))
	waf(folder, "configure", "install", *options)
	edited.write_text("other txt\n")
	waf(folder, "install", *options)
	rewrite(folder, INSTALLED[0] % "left", INSTALLED[0] % "new")
	kept = "stale: 1 installed file kept, since not as the build has made it: %s" % edited
	assert lines_of(waf(folder, "install", *options)) == [kept]
	assert before.exists() and edited.exists()
	rewrite(folder, INSTALLED[0] % "new")
	assert lines_of(waf(folder, "uninstall", *options)) == []
	assert lines_of(waf(folder, "install", *options)) == []
	assert (tmp_path / "root" / "usr" / "share" / "left" / "a.txt").exists()


def test_dry_run(waf: Any, project: Any, tmp_path: pathlib.Path) -> None:
	"""It names what would go, as often as it is asked, and removes nothing; nor does it forget anything."""
	options = ["--destdir=%s" % (tmp_path / "root"), "--prefix=/usr"]
	folder = lay_out(project, *copies("one", "two"), INSTALLED[0] % "old", INSTALLED[0] % "new")
	waf(folder, "configure", "install", *options)
	rewrite(folder, *copies("two"), INSTALLED[0] % "new")
	wanted = [
		"stale: 1 file would be removed: one",
		"stale: 1 installed file would be removed: %s/root/usr/share/old/a.txt" % tmp_path,
	]
	for _ in range(2):
		assert lines_of(waf(folder, "install", "--stale=dry", *options)) == wanted
	done = lines_of(waf(folder, "install", *options))
	assert done == [line.replace("would be removed", "removed") for line in wanted]


def test_damaged_record(waf: Any, project: Any) -> None:
	"""One line says so, nothing is removed, and the record begins anew."""
	folder = lay_out(project, *copies("one", "two", "three"))
	waf(folder, "configure", "build")
	path = folder / "build" / ".lock-waf-stale"
	path.write_bytes(path.read_bytes()[:-5])
	rewrite(folder, *copies("two", "three"))
	damaged = "stale: %s is damaged, or of another version: it begins anew" % path
	assert lines_of(waf(folder, "build")) == [damaged]
	rewrite(folder, *copies("three"))
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: two"]
	assert there(folder / "build") == {"one", "three"}
	path.unlink()
	path.mkdir()
	assert lines_of(waf(folder, "build")) == ["stale: %s: Is a directory: nothing is removed" % path]


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("chattr"), reason="root may remove anything")
def test_file_that_cannot_be_removed(waf: Any, project: Any) -> None:
	"""The build succeeds with a warning, and the next one tries again."""
	folder = lay_out(project, *copies("deep/one", "two"))
	waf(folder, "configure", "build")
	rewrite(folder, *copies("two"))
	place = folder / "build" / "deep"
	lock, unlock = ("chattr +i %s", "chattr -i %s") if os.geteuid() == 0 else ("chmod 555 %s", "chmod 755 %s")
	if os.system(lock % place) != 0:
		pytest.skip("this file system has no immutable folders")
	try:
		(line,) = lines_of(waf(folder, "build"))
	finally:
		os.system(unlock % place)
	assert line.startswith("stale: 1 file not removed: ") and line.endswith("; the next one tries again: deep/one")
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: deep/one"]


def test_builds_with_different_options_in_turn(waf: Any, project: Any) -> None:
	"""Each removes what only the other makes, and makes its own again; with off it is left alone."""
	folder = lay_out(project, *copies("one"), "if bld.options.more:", "\t" + copies("two")[0])
	(folder / "wscript").write_text((folder / "wscript").read_text().replace("bld.options", "Options.options"))
	(folder / "wscript").write_text("from waflib import Options\n" + (folder / "wscript").read_text())
	waf(folder, "configure", "build", "--more")
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: two"]
	waf(folder, "build", "--more")
	assert there(folder / "build") == {"one", "two"}
	assert lines_of(waf(folder, "build", "--stale=off")) == []
	assert there(folder / "build") == {"one", "two"}


def test_clean_and_copied_folders(waf: Any, project: Any, tmp_path: pathlib.Path) -> None:
	"""After `waf clean` nothing is told; a build in a copy of the project does not touch the original."""
	folder = lay_out(project, *copies("one", "two"))
	waf(folder, "configure", "build")
	copy = tmp_path / "copy"
	shutil.copytree(str(folder), str(copy), symlinks=True)
	rewrite(copy, *copies("two"))
	assert lines_of(waf(copy, "configure", "build")) == []
	assert there(folder / "build") == {"one", "two"}
	rewrite(folder, *copies("two"))
	assert lines_of(waf(folder, "clean", "build")) == []


UNITY = "bld.program(source=bld.path.ant_glob('*.c'), target='app', features='unity')"


@pytest.mark.parametrize(
	"tools", ["prefork wafcc", "large unity", "batch prefork", "unity large prefork wafcc resident"]
)
def test_beside_other_tools(waf: Any, project: Any, engine: str, tools: str) -> None:
	"""Builds with our other tools have the files of a build from nothing, also when a source has gone."""
	folder = lay_out(
		project, UNITY.replace("unity", "c") if "unity" not in tools else UNITY, tools="compiler_c " + tools
	)
	for name in ("one", "two", "three"):
		(folder / (name + ".c")).write_text("int %s(void) { return 0; }\n" % name)
	(folder / "main.c").write_text("int main(void) { return 0; }\n")
	options = ["--batch=4"] if "batch" in tools else []
	if "resident" in tools:
		options.append("--no-resident")
	assert lines_of(waf(folder, "configure", "build", *options)) == []
	before = there(folder / "build")
	assert lines_of(waf(folder, "build", *options)) == []
	assert there(folder / "build") == before
	(folder / "three.c").unlink()
	told = lines_of(waf(folder, "build", *options))
	# a batch of unity keeps its name
	assert told == ([] if "unity" in tools else ["stale: 1 file removed: three.c.1.o"])
	left = there(folder / "build")
	assert not any("three" in name for name in left)
	shutil.rmtree(str(folder / "build"))
	waf(folder, "configure", "build", *options)
	assert there(folder / "build") == left


def test_waf20(waf: Any, project: Any, waf20: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""Waf 2.0 gives the same, also for installed files."""
	options = ["--destdir=%s" % (tmp_path / "root"), "--prefix=/usr"]
	folder = lay_out(project, *copies("one", "two"), INSTALLED[0] % "old", INSTALLED[0] % "new")
	waf(folder, "configure", "install", *options, wafdir=waf20)
	rewrite(folder, *copies("two"), INSTALLED[0] % "new")
	assert lines_of(waf(folder, "install", *options, wafdir=waf20)) == [
		"stale: 1 file removed: one",
		"stale: 1 installed file removed: %s/root/usr/share/old/a.txt" % tmp_path,
	]


def test_loaded_in_build(waf: Any, project: Any) -> None:
	"""`bld.load('stale')`, as for the tool of Waf's own of this name, is enough."""
	text = "import waflib_extras\ndef configure(conf):\n\tpass\ndef build(bld):\n\tbld.load('stale')\n"
	folder = project({"wscript": text + "".join(COPY % ("a.txt", name) for name in ("one", "two")), "a.txt": "x"})
	waf(folder, "configure", "build")
	(folder / "wscript").write_text(text + COPY % ("a.txt", "two"))
	assert lines_of(waf(folder, "build")) == ["stale: 1 file removed: one"]


def test_wafx(project: Any, waf_sources: pathlib.Path, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""With `wafx`, a project that knows nothing of the tool has it, and its saved options have none of ours."""
	text = "def configure(conf):\n\tpass\ndef build(bld):\n\tpass\n"
	folder = project({"wscript": text + "".join(COPY % ("a.txt", name) for name in ("one", "two")), "a.txt": "x"})
	shutil.copy(str(wafx_support.pack_waf(waf_sources, tmp_path / "packed")), str(folder / "waf"))
	own = wafx_support.Own(folder, tmp_path / "cache")
	own.wafx("--with=stale", "./waf", "configure", "build")
	(folder / "wscript").write_text(text + COPY % ("a.txt", "two"))
	assert lines_of(own.wafx("--with=stale", "./waf", "build", "--stale=dry")) == [
		"stale: 1 file would be removed: one"
	]
	assert lines_of(own.wafx("--with=stale", "./waf", "build")) == ["stale: 1 file removed: one"]
	assert there(folder / "build") == {"two"}


def test_command_without_a_build_folder(waf: Any, project: Any) -> None:
	"""One line says what to do first."""
	done = waf(lay_out(project), "stale", status=1)
	assert "stale: there is no build folder: run waf configure first" in done.stderr
