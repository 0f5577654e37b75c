"""rustc's compiles are cached by what they are seen to do: crates, procedural macros, links."""

import pathlib
import shutil
import subprocess
import time
from typing import Dict

import pytest
from cache_support import PATIENCE
from test_cache_facts import Facts
from test_cache_proofs import prove, wait

pytestmark = [pytest.mark.timeout(4 * PATIENCE), pytest.mark.xdist_group("rust")]

HASH = "-0123456789abcdef"
CRATE = "--crate-type lib --emit=dep-info,metadata,link -C extra-filename=%s --out-dir deps" % HASH
USES = "--extern one=deps/libone%s.rlib -L dependency=deps" % HASH
ONE = "{rustc} --crate-name one %s one.rs" % CRATE
TWO = "{rustc} --crate-name two %s %s two.rs" % (CRATE, USES)
MACRO = (
	"{rustc} --crate-name mac --crate-type proc-macro -C extra-filename=%s --out-dir deps --extern proc_macro mac.rs"
	% HASH
)
APP = (
	"{rustc} --crate-name app --emit=dep-info,link --out-dir . --extern mac=deps/libmac%s.so -L dependency=deps app.rs"
	% HASH
)
FILES = {
	"one.rs": "pub fn one() -> u32 { 1 }\n",
	"two.rs": 'pub fn two() -> u32 { one::one() + 1 }\npub const SAYS: Option<&str> = option_env!("SAYS");\n',
	"app.rs": 'fn main() { println!("{}", mac::tell!()); }\n',
	"secret.txt": "first",
	"deps/README": "",
}
START = "use proc_macro::TokenStream;\n#[proc_macro]\npub fn tell(_: TokenStream) -> TokenStream {\n"
END = '\n\tformat!("\\"{}\\"", text).parse().unwrap()\n}\n'
RAW = """
	let (path, mut text) = (b"secret.txt\\0", [0u8; 64]);
	let call = |number: usize, a: usize, b: usize, c: usize| unsafe {
		let result: usize;
		std::arch::asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c,
			out("rcx") _, out("r11") _);
		result
	};
	let file = call(2, path.as_ptr() as usize, 0, 0);
	let size = call(0, file, text.as_mut_ptr() as usize, 64);
	let text = String::from_utf8(text[..size].to_vec()).unwrap();
"""
WAYS = {
	"plainly": "%s",
	"in a thread": "let text = std::thread::spawn(|| {%s text}).join().unwrap();",
	"with blocked signals": """
	extern "C" {
		fn sigfillset(set: *mut u64) -> i32;
		fn pthread_sigmask(how: i32, set: *const u64, old: *mut u64) -> i32;
	}
	let mut all = [0u64; 16];
	unsafe { sigfillset(all.as_mut_ptr()); pthread_sigmask(0, all.as_ptr(), std::ptr::null_mut()); }
	%s
""",
	"after it has taken the guard away": """
	extern "C" { fn prctl(option: i32, a: usize, b: usize, c: usize, d: usize) -> i32; }
	unsafe { prctl(59, 0, 0, 0, 0); }
	%s
""",
	"in a thread of C's": """
	extern "C" fn begin(place: *mut u8) -> i32 {
		%s
		unsafe { *(place as *mut String) = text; }
		0
	}
	extern "C" {
		fn thrd_create(thread: *mut usize, function: extern "C" fn(*mut u8) -> i32, argument: *mut u8) -> i32;
		fn thrd_join(thread: usize, result: *mut i32) -> i32;
	}
	let (mut text, mut thread) = (String::new(), 0);
	unsafe {
		thrd_create(&mut thread, begin, &mut text as *mut String as *mut u8);
		thrd_join(thread, std::ptr::null_mut());
	}
""",
	"in a fork": """
	extern "C" {
		fn fork() -> i32;
		fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
		fn _exit(status: i32) -> !;
	}
	unsafe {
		let child = fork();
		if child == 0 {
			%s
			std::fs::write("told", text).unwrap();
			_exit(0);
		}
		waitpid(child, std::ptr::null_mut(), 0);
	}
	let text = std::fs::read_to_string("told").unwrap();
	std::fs::remove_file("told").unwrap();
""",
}
BODIES = {
	"nothing": 'let text = "said";',
	"a file": 'let text = std::fs::read_to_string("secret.txt").unwrap();',
	"a variable": 'let text = std::env::var("SAYS").unwrap_or_default();',
	"the time": (
		"let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);\n"
		"\tlet text = (now.unwrap().as_secs() / 86400).to_string();"
	),
	"chance": (
		"use std::hash::BuildHasher;\n"
		"\tlet text = std::collections::hash_map::RandomState::new().hash_one(1).to_string();"
	),
	"the age of a file": (
		'let at = std::fs::metadata("own").map(|m| m.modified().unwrap()).ok();\n'
		'\tstd::fs::write("own", "").unwrap();\n\tlet text = at.map(|_| "again").unwrap_or("new");'
	),
}


@pytest.fixture(scope="module")
def rustc() -> str:
	proxy = shutil.which("rustc")
	if not proxy:
		pytest.skip("there is no rustc")
	asked = subprocess.run([proxy, "--print", "sysroot"], capture_output=True, text=True, check=True, timeout=PATIENCE)
	return str(pathlib.Path(asked.stdout.strip()) / "bin" / "rustc")


class Rust(Facts):
	"""A folder of crates."""

	rustc = ""

	def words(self, line: str) -> str:
		return line.replace("{rustc}", self.rustc)

	def compile(self, line: str, **env: str) -> str:
		"""Compile through wafcc and plainly, and compare. What was made stays. Returns the verdict."""
		plain = self.run(self.words(line), False, **env)
		before = self.look()
		done = self.run_argv([self.wafcc, *self.words(line).split()], False, **env)
		verdict = self.last()
		made = {name: text for name, text in self.look().items() if before.get(name) != text or name in plain.files}
		assert (done.returncode, done.stdout, done.stderr) == (plain.status, plain.stdout, plain.stderr), verdict
		assert made == plain.files, verdict
		time.sleep(0.1)  # what was written just before a command is not trusted
		return verdict

	def compile_until_hit(self, line: str) -> None:
		"""On a busy machine, the end of a traced process may be noticed too late, and a result is not stored."""
		deadline = time.monotonic() + PATIENCE
		verdict = ""
		while not verdict.startswith("hit"):
			assert time.monotonic() < deadline, verdict
			verdict = self.compile(line)

	def last(self) -> str:
		told = subprocess.run(
			[self.wafcc, "--explain"], env=self.environ, capture_output=True, text=True, timeout=PATIENCE, check=True
		)
		lines = told.stdout.splitlines()
		return lines[0].partition(": ")[2] + "".join(line for line in lines[1:2] if line.startswith(" "))

	def forget(self, *names: str) -> None:
		"""Remove what was made, but not from the cache."""
		for name in self.look():
			if name not in FILES and name not in names and not name.endswith(".rs"):
				(self.folder / name).unlink()


@pytest.fixture
def rust(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path, rustc: str) -> Rust:
	sandbox = Rust.make(engine, tmp_path, **FILES)
	assert isinstance(sandbox, Rust)
	sandbox.rustc = rustc
	time.sleep(0.1)
	return sandbox


def write_macro(rust: Rust, body: str) -> None:
	rust.write("mac.rs", "extern crate proc_macro;\n" + START + "\t" + body + END)
	time.sleep(0.1)
	plain = rust.run_argv(rust.words(MACRO).split(), False)
	assert plain.returncode == 0, plain.stderr
	time.sleep(0.1)


def test_crates_are_hits(rust: Rust) -> None:
	"""Also those that use others, in a folder in which further crates come and go."""
	assert "not stored" not in rust.compile(ONE)
	assert "not stored" not in rust.compile(TWO)
	rust.forget()
	assert rust.compile(ONE).startswith("hit")
	rust.write("deps/libother-fedcba9876543210.rlib", "no crate")
	time.sleep(0.1)
	assert rust.compile(TWO).startswith("hit")


def test_a_crate_that_is_used_counts(rust: Rust) -> None:
	rust.compile(ONE)
	rust.compile(TWO)
	rust.write("one.rs", "pub fn one() -> u64 { 1 }\n")
	time.sleep(0.1)
	assert rust.compile(ONE).startswith("miss")
	assert rust.compile(TWO, SAYS="").startswith("miss")
	rust.write("one.rs", FILES["one.rs"])
	time.sleep(0.1)
	assert rust.compile(ONE).startswith("hit")
	assert rust.compile(TWO).startswith("hit")


def test_another_candidate_for_a_crate_counts(rust: Rust) -> None:
	"""A file of the same beginning is one that rustc might take."""
	rust.compile(ONE)
	rust.compile(TWO)
	shutil.copy(rust.folder / ("deps/libone%s.rlib" % HASH), rust.folder / ("deps/libone%s.x.rlib" % HASH))
	time.sleep(0.1)
	verdict = rust.compile(TWO)
	assert verdict.startswith("miss") and "deps has changed" in verdict


def test_variables_count_if_they_are_asked_for(rust: Rust) -> None:
	rust.compile(ONE)
	rust.compile(TWO)
	assert rust.compile(TWO, UNUSED="x").startswith("hit")
	assert rust.compile(TWO, SAYS="hello").startswith("miss")
	assert rust.compile(TWO, SAYS="hello").startswith("hit")


def test_messages_come_again(rust: Rust) -> None:
	"""As cargo asks for them. A compile that fails is not kept."""
	rust.write("one.rs", "pub fn one() -> u32 { let unused = 1; 1 }\n")
	time.sleep(0.1)
	line = ONE.replace("--emit", "--error-format=json --json=diagnostic-rendered-ansi,artifacts --emit")
	assert "not stored" not in rust.compile(line)
	assert rust.compile(line).startswith("hit")
	rust.write("one.rs", 'pub fn one() -> u32 { "" }\n')
	time.sleep(0.1)
	assert "it failed" in rust.compile(line)


def test_a_missing_module_counts(rust: Rust) -> None:
	rust.write("one.rs", "mod more;\npub use more::one;\n")
	rust.write("more/mod.rs", FILES["one.rs"])
	time.sleep(0.1)
	rust.compile(ONE)
	assert rust.compile(ONE).startswith("hit")
	(rust.folder / "more/mod.rs").rename(rust.folder / "more.rs")
	time.sleep(0.1)
	assert rust.compile(ONE).startswith("miss")


def is_not_believed(told: str, rust: Rust) -> None:
	"""Compile a macro and its user: a macro may do anything, so nothing is stored without a second run."""
	write_macro(rust, BODIES[told])
	rust.run_argv([rust.wafcc, *rust.words(APP).split()], False)
	assert "not stored: it runs the procedural macro" in rust.last()


def test_a_macro_is_not_believed(rust: Rust) -> None:
	"""Not even one that looks whether it has run before."""
	is_not_believed("the age of a file", rust)


@pytest.mark.parametrize(
	("told", "is_proved"),
	[("nothing", True), ("a file", True), ("a variable", True), ("the time", False), ("chance", False)],
)
def test_a_second_run_proves_a_macro(told: str, is_proved: bool, rust: Rust) -> None:
	is_not_believed(told, rust)
	rust.forget("deps/libmac%s.so" % HASH)
	prove(rust)
	line = [rust.wafcc, *rust.words(APP).split()]
	first = rust.run_argv(line, False)
	assert first.returncode == 0, first.stderr
	told_of = wait(rust)
	assert (told_of["proved"], told_of["refuted"]) == ((1, 0) if is_proved else (0, 1)), (told_of, rust.last())
	rust.run_argv(line, False)
	assert rust.last().startswith("hit" if is_proved else "miss")
	rust.write("secret.txt", "second")
	time.sleep(0.1)
	rust.run_argv(line, False, SAYS="other")
	said = subprocess.run([rust.folder / "app"], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
	shown: Dict[str, str] = {"nothing": "said", "a file": "second", "a variable": "other"}
	assert said.strip() == shown.get(told, said.strip())


@pytest.mark.parametrize("way", WAYS)
def test_a_macro_with_system_calls_of_its_own(way: str, rust: Rust) -> None:
	"""The kernel reports them, so nothing is stored, and the compile goes on."""
	prove(rust)
	write_macro(rust, WAYS[way] % RAW)
	for text in ("second", "third"):
		rust.write("secret.txt", text)
		time.sleep(0.1)
		done = rust.run_argv([rust.wafcc, *rust.words(APP).split()], False)
		assert done.returncode == 0, done.stderr
		assert "system calls of its own" in rust.last()
		said = subprocess.run([rust.folder / "app"], capture_output=True, text=True, timeout=PATIENCE, check=True)
		assert said.stdout.strip() == text


REFUSING = r"""
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **argv) {
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 59, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof program / sizeof *program, program};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 1;
	return execv(argv[1], argv + 1);
}
"""


def test_the_second_witness_where_the_kernel_has_no_guard(rust: Rust) -> None:
	"""As before Linux 5.11: rustc is traced. Crates are hits, and macros are proved, too."""
	source = rust.folder.parent / "refusing.c"
	source.write_text(REFUSING)
	refusing = str(source.with_suffix(""))
	subprocess.run(["gcc", "-o", refusing, str(source)], check=True, timeout=PATIENCE)
	subprocess.run(
		[refusing, rust.engine, "start"], env=rust.environ, check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
	)
	prove(rust)
	rust.compile_until_hit(ONE)
	rust.compile_until_hit(TWO)
	rust.write("deps/libother-fedcba9876543210.rlib", "no crate")
	time.sleep(0.1)
	assert rust.compile(TWO).startswith("hit")
	rust.write("one.rs", "pub fn one() -> u64 { 1 }\n")
	time.sleep(0.1)
	rust.compile(ONE)
	assert rust.compile(TWO, SAYS="").startswith("miss")
	for told, is_proved in (("a file", True), ("the time", False)):
		(rust.folder / "app").unlink(missing_ok=True)
		write_macro(rust, BODIES[told])
		before = wait(rust)
		rust.run_argv([rust.wafcc, *rust.words(APP).split()], False)
		after = wait(rust)
		assert after["proved"] - before["proved"] == is_proved, (told, rust.last())
		assert after["refuted"] - before["refuted"] == (not is_proved), (told, rust.last())
