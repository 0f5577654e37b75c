"""A writer of a shared store can make no file that is not declared. With trusted keys, he can only cause misses."""

import os
import pathlib
import shutil
import subprocess
from typing import Dict, Iterator, Tuple

import pytest
from cache_support import COMPILERS, PATIENCE
from forge_support import KINDS, MISSING, Shop, forge
from tier_support import LINE, Machine, Make

pytestmark = [
	pytest.mark.skipif(not COMPILERS, reason="needs a compiler"),
	pytest.mark.skipif(bool(MISSING), reason=str(MISSING)),
]
each_kind = pytest.mark.parametrize("shop", KINDS, indirect=True)
redis_alone = pytest.mark.parametrize("shop", ["redis"], indirect=True)
EVIL = "int evil;\n"
UNDECLARED = "it names an output that is not declared"
NO_FILE = "an output of it is no file"
LACKING = "it lacks an output that is declared"
SOURCE = "it does not depend on the command's source"
DEPENDENCIES = "a dependency file of it has more than names of files"


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Shop]:
	opened, program = KINDS[request.param]
	if program and not shutil.which(program):
		pytest.skip("apt-get install " + os.path.basename(program))
	with opened(tmp_path) as shop:
		yield shop


def fill(first: Machine, shop: Shop, line: str = LINE) -> str:
	"""Let a machine store a valid compile there, and return its key."""
	before, uploads = set(shop.keys()), first.remote()["uploads"]
	first.until_hit(line)
	first.until_uploaded(uploads + 1)
	(key,) = set(shop.keys()) - before
	return key


def victim(machine: Make, shop: Shop, **variables: str) -> Machine:
	"""Another machine, with files that an attacker would like to write."""
	made = machine(shop.read_only)
	made.environ.update(variables)
	for name in (".git/hooks/README", "build/c4che/keep", "other.c"):
		made.write(name, "mine\n")
	return made


def refusal(made: Machine, line: str = LINE) -> Tuple[str, Dict[str, int]]:
	"""A compile must give the same as without us. Returns why nothing was used for it."""
	said = made.same(line)
	remote = made.remote()
	assert remote["hits"] == 0, said
	return said, remote["refused"]


FORGED = {
	"names": [
		([["file", ".git/hooks/pre-commit", EVIL]], UNDECLARED),
		([["file", "build/c4che/_cache.py", EVIL]], UNDECLARED),
		([["file", "x.c", EVIL]], UNDECLARED),
		([["file", "X.o", EVIL]], UNDECLARED),
		([["file", "../outside", EVIL]], UNDECLARED),
		([["file", "build/../x.c", EVIL]], UNDECLARED),
		([["file", "/tmp/wafcc-forged", EVIL]], UNDECLARED),
		([["file", "/proc/self/cwd/x.c", EVIL]], UNDECLARED),
		([["numbered", "7", EVIL]], UNDECLARED),
	],
	"outputs": [
		([["twice"]], "it names an output twice"),
		([["no outputs"]], LACKING),
		([["no outputs"], ["file", "x.o", EVIL]], UNDECLARED),
		([["no outputs"], ["no facts"]], LACKING),
		([["no facts"]], SOURCE),
		([["dated", "4102444800"]], "it sets the time of an output"),
		([["dated", "1"]], "it sets the time of an output"),
		([["took", "18446744073709551615"]], "it claims too much"),
		([["link", "d", ".git/hooks"], ["file", "d/pre-commit", EVIL]], NO_FILE),
		([["link", "x.o", ".git/hooks/pre-commit"]], NO_FILE),
	],
	"claims": [
		([["folder", "d"]], NO_FILE),
		([["exit", "1"]], "it is of a command that failed"),
		([["size", "99999999999"]], "it claims too much"),
		(
			[["size", "5"], ["lose", "blobs"], ["no outputs"], ["main", EVIL], ["size", "5"]],
			"a blob is not as large as it says",
		),
		([["no outputs"], ["program", "x", EVIL]], "it makes a program of what is none"),
		([["stderr", "\x1b]0;owned\x07"]], "it would control the terminal"),
	],
	"words": [
		([["stderr", "blob", "x" * 5000 + "\x1b[2J"]], "it would control the terminal"),
		([["stdout", "\x9b2J"]], "it would control the terminal"),
		([["depends", "/proc/kcore"]], "it depends on files of the kernel"),
		([["depends", "/usr/../proc/kcore"]], "it depends on files of the kernel"),
		([["cut", "40"]], "it is no entry"),
		([["bend", "0"]], "it is no entry"),
	],
}


@redis_alone
@pytest.mark.parametrize("what", FORGED)
def test_an_entry_makes_what_is_declared_or_nothing(machine: Make, shop: Shop, what: str) -> None:
	"""No other file is touched, the compile gives the right result, and the reason is counted and told."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	key = fill(first, shop)
	value = shop.take(key)
	for acts, why in FORGED[what]:
		second = victim(machine, shop)
		before = second.look()
		shop.put(key, forge(key, value, acts))
		said, refused = refusal(second)
		assert said.startswith("miss") and refused == {why: 1}, acts
		assert f"has it, which is refused: {why}" in said, acts
		assert second.look() == before, acts
		assert not pathlib.Path("/tmp/wafcc-forged").exists() and not (second.folder.parent / "outside").exists(), acts
		shown = second.ask("--show-stats", "-v")
		assert "Refused:" in shown and why in shown, acts


@each_kind
def test_every_kind_of_store_is_held_to_what_is_declared(machine: Make, shop: Shop) -> None:
	"""Entries: one names a hook, one lacks its object, one was cut, and one has another blob."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	key = fill(first, shop)
	value = shop.take(key)
	for acts, why in (
		([["file", ".git/hooks/pre-commit", EVIL]], {UNDECLARED: 1}),
		([["no outputs"]], {LACKING: 1}),
		([["cut", "50"]], {"it is no entry": 1}),
	):
		second = victim(machine, shop)
		before = second.look()
		shop.put(key, forge(key, value, acts))
		said, refused = refusal(second)
		assert said.startswith("miss") and refused == why
		assert second.look() == before
	shop.put(key, forge(key, value, []))
	assert victim(machine, shop).same(LINE).startswith("hit"), "what was not forged is a hit"


@each_kind
def test_the_entry_of_another_command_is_not_taken(machine: Make, shop: Shop) -> None:
	"""All that the other command depends on is here, too, and its outputs have the same numbers."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	first.write("y.c", "int g;\n")
	key = fill(first, shop)
	another = fill(first, shop, LINE.replace("x.", "y."))
	moved = forge(another, shop.take(another), [])
	del moved["bundle"]
	shop.put(key, forge(key, moved, []))
	said, refused = refusal(victim(machine, shop))
	assert said.startswith("miss") and refused == {SOURCE: 1}


@redis_alone
def test_a_source_by_another_name_is_still_the_source(machine: Make, shop: Shop) -> None:
	"""Links lead to it, or it is a device."""
	first, second = machine(shop.address), machine(shop.read_only)
	first.write("x.c", "int f;\n")
	first.write("sub/y.c", "")
	(first.folder / "link.c").symlink_to("x.c")
	(first.folder / "way").symlink_to(".")
	for source in ("link.c", "sub/../x.c", "way/x.c", "/dev/null"):
		line = f"{COMPILERS[0]} -x c -c {source} -o x.o"
		fill(first, shop, line)
		assert second.same(line).startswith("hit"), source


@redis_alone
def test_a_dependency_file_has_only_names(machine: Make, shop: Shop) -> None:
	"""Makefiles include it, so that anything else would be done by the next build."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	line = f"{LINE} -MMD"
	key = fill(first, shop, line)
	value = shop.take(key)
	for text, is_refused in (
		("wafcc-target.o: x.c\n", False),
		("wafcc-target.o: x.c ; touch owned\n", True),
		("wafcc-target.o: x.c $(shell touch owned)\n", True),
		("wafcc-target.o: x.c\n\ttouch owned\n", True),
		("include owned.mk:\n", True),
	):
		second = victim(machine, shop)
		shop.put(key, forge(key, value, [["drop", "1"], ["numbered", "1", text]]))
		said = second.same(line)
		assert said.startswith("miss" if is_refused else "hit"), (text, said)
		assert second.remote()["refused"] == ({DEPENDENCIES: 1} if is_refused else {}), text


def make_key(at: Machine, name: str) -> Tuple[str, str]:
	"""A private key's file, and the public key."""
	path = at.folder.parent / name
	done = subprocess.run(
		[at.wafcc, "--new-signing-key", str(path)], env=at.environ, capture_output=True, text=True, timeout=PATIENCE
	)
	assert done.returncode == 0, done.stderr
	assert path.stat().st_mode & 0o7777 == 0o600
	secret = path.read_text().split("ed25519-secret:")[1].strip()
	assert secret not in done.stdout + done.stderr
	return str(path), done.stdout.strip()


@each_kind
def test_only_what_a_trusted_key_has_signed_is_taken(machine: Make, shop: Shop) -> None:
	"""In every kind of store, entries are refused if unsigned, signed by an unknown key, changed, moved or cut."""
	first = machine(shop.address)
	private, public = make_key(first, "ours.key")
	stranger, other = make_key(first, "theirs.key")
	first.environ["WAFCC_SIGNINGKEY"] = private
	first.write("x.c", "int f;\n")
	first.write("y.c", "int g;\n")
	key = fill(first, shop)
	another = fill(first, shop, LINE.replace("x.", "y."))
	value = shop.take(key)
	assert victim(machine, shop).same(LINE).startswith("hit"), "who trusts everybody takes what is signed"
	assert victim(machine, shop, WAFCC_TRUSTEDKEYS=f"{other} {public}").same(LINE).startswith("hit")
	moved = forge(another, shop.take(another), [])
	if "bundle" in value:
		# the bundle of one key with the entry of another: its own check is made anew
		moved = forge(key, {"entry": moved["entry"]}, [])
	for forged, trusted, why in (
		(forge(key, value, []), other, "signed by a key that is not trusted"),
		(forge(key, value, [["sign", stranger]]), public, "signed by a key that is not trusted"),
		(forge(key, value, [["exit", "0"]]), public, "not signed"),
		(forge(key, value, [["no outputs"], ["main", EVIL]]), public, "not signed"),
		(forge(key, value, [["tamper"]]), public, "its signature is wrong"),
		(forge(key, value, [["bend", "70"]]), public, "its signature is wrong"),
		(forge(key, value, [["cut", "200"]]), public, "its signature is wrong"),
		(forge(key, value, [["cut", "60"]]), public, "not signed"),
		(moved, public, "its signature is wrong"),
	):
		second = victim(machine, shop, WAFCC_TRUSTEDKEYS=trusted)
		shop.put(key, forged)
		said, refused = refusal(second)
		assert said.startswith("miss") and refused == {why: 1} and why in said


@redis_alone
def test_an_old_entry_that_is_signed_says_only_what_was_true(machine: Make, shop: Shop) -> None:
	"""An old entry that is put back is compared with the present files."""
	first = machine(shop.address)
	private, public = make_key(first, "ours.key")
	first.environ["WAFCC_SIGNINGKEY"] = private
	header = first.write("f.h", "int f;\n")
	first.write("x.c", '#include "f.h"\n')
	key = fill(first, shop)
	old = forge(key, shop.take(key), [])
	header.write_text("int other;\n")
	second = victim(machine, shop, WAFCC_TRUSTEDKEYS=public)
	shop.put(key, old)
	said = second.same(LINE)
	assert said.startswith("miss") and "has it, but f.h has changed" in said
	header.write_text("int f;\n")
	assert victim(machine, shop, WAFCC_TRUSTEDKEYS=public).same(LINE).startswith("hit")


@redis_alone
def test_what_was_taken_before_keys_were_named_is_not_taken_any_more(machine: Make, shop: Shop) -> None:
	"""An entry of others stays one in the local store; results that were compiled here are used as usual."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	fill(first, shop)
	_, public = make_key(first, "ours.key")
	second = victim(machine, shop)
	assert second.same(LINE).startswith("hit") and second.same(LINE).startswith("hit")
	second.ask("--set-config", f"trusted_keys={public}")
	assert "not signed" in second.same(LINE)
	second.until_hit(LINE)


@redis_alone
def test_what_a_later_store_has_signed_the_earlier_ones_get_signed(
	machine: Make, shop: Shop, tmp_path: pathlib.Path
) -> None:
	"""A reader passes it on unchanged."""
	first = machine(shop.address)
	private, public = make_key(first, "ours.key")
	first.environ["WAFCC_SIGNINGKEY"] = private
	first.write("x.c", "int f;\n")
	key = fill(first, shop)
	with KINDS["room"][0](tmp_path) as near:
		second = machine(f"{near.address} {shop.read_only}")
		assert second.same(LINE).startswith("hit")
		second.until_uploaded()
		assert near.take(key)["entry"] == forge(key, shop.take(key), [])["entry"]
		third = victim(machine, near, WAFCC_TRUSTEDKEYS=public)
		assert third.same(LINE).startswith("hit")


@redis_alone
def test_mistakes_in_keys_are_named_and_nothing_is_taken_or_given(
	machine: Make, shop: Shop, tmp_path: pathlib.Path
) -> None:
	"""One line names the thing and the remedy."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	fill(first, shop)
	keys = tmp_path / "keys"
	for trusted, words in (
		(str(keys), f"open {keys}"),
		("ed25519:12", "64 hexadecimal digits"),
		("keys", "the absolute path of a file of keys"),
	):
		second = victim(machine, shop, WAFCC_TRUSTEDKEYS=trusted)
		said, refused = refusal(second)
		assert words in said and refused == {"the trusted keys cannot be used": 1}
	for name, value in (("trusted_keys", "ed25519:12"), ("signing_key", "here"), ("signing_key", str(keys))):
		done = subprocess.run(
			[second.wafcc, "--set-config", f"{name}={value}"],
			env=second.environ,
			capture_output=True,
			text=True,
			timeout=PATIENCE,
		)
		assert done.returncode != 0 and name in done.stderr and len(done.stderr.splitlines()) == 1
	private, _ = make_key(first, "ours.key")
	os.chmod(private, 0o644)
	third = machine(shop.address)
	third.environ["WAFCC_SIGNINGKEY"] = private
	third.write("x.c", "int other;\n")
	third.until_hit(LINE)
	remote = third.remote()
	assert remote["uploads"] == 0 and set(remote["uploads_dropped"]) == {"the signing key cannot be used"}


def test_a_key_is_never_overwritten(machine: Make) -> None:
	"""The mistake is reported."""
	at = machine("")
	private, public = make_key(at, "ours.key")
	before = pathlib.Path(private).read_bytes()
	done = subprocess.run(
		[at.wafcc, "--new-signing-key", private], env=at.environ, capture_output=True, text=True, timeout=PATIENCE
	)
	assert done.returncode == 1 and "there already" in done.stderr and len(done.stderr.splitlines()) == 1
	assert pathlib.Path(private).read_bytes() == before and public.startswith("ed25519:")


def archive(at: Machine, *options: str, name: str = "libx.a", status: int = 0) -> str:
	"""Make an archive by its facts, and return the verdict about it."""
	argv = [at.wafcc, "run", *options, "--", "ar", "rcs", "libx.a", "x.o"]
	(at.folder / "libx.a").unlink(missing_ok=True)
	done = subprocess.run(argv, cwd=at.folder, env=at.environ, stdin=subprocess.DEVNULL, timeout=PATIENCE)
	assert done.returncode == status and (at.folder / "libx.a").exists()
	return at.explain(at.folder / name)


def share_archive(machine: Make, shop: Shop) -> None:
	"""Let a machine store a valid archive there."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	subprocess.run([*LINE.split()], cwd=first.folder, check=True)
	while not archive(first).startswith("hit"):
		pass
	first.until_uploaded()


@redis_alone
def test_a_command_without_declared_outputs_takes_nothing(machine: Make, shop: Shop) -> None:
	"""With exactly the declared outputs it is a hit, with others not; the local store serves it in any case."""
	share_archive(machine, shop)
	second = machine(shop.read_only)
	for options in (["--output=libx.a"], ["--output", str(second.folder / "libx.a")], ["--output=./libx.a"]):
		assert archive(machine(shop.read_only), *options).startswith("hit"), options
	said = archive(second)
	assert said.startswith("miss") and "the command's outputs are not declared" in said
	assert second.remote()["refused"] == {"the command's outputs are not declared": 1}
	while not archive(second).startswith("hit"):
		pass
	for options, why in (
		(["--output=LIBX.A"], UNDECLARED),
		(["--output=libx.a", "--output=index"], LACKING),
		(["--output=sub/libx.a"], UNDECLARED),
	):
		third = machine(shop.read_only)
		assert archive(third, *options).startswith("miss"), options
		assert third.remote()["refused"] == {why: 1}


@redis_alone
def test_what_was_taken_for_declared_outputs_is_not_used_without(machine: Make, shop: Shop) -> None:
	"""An entry that came with a declaration is still one of others in the local store."""
	share_archive(machine, shop)
	second = machine(shop.read_only)
	assert archive(second, "--output=libx.a").startswith("hit")
	assert archive(second, "--output=libx.a").startswith("hit")
	assert archive(second).startswith("miss")


@redis_alone
def test_an_entry_by_facts_makes_only_what_is_declared(machine: Make, shop: Shop) -> None:
	"""Other spellings, and missing declarations, do not help."""
	share_archive(machine, shop)
	(key,) = shop.keys()
	value = shop.take(key)
	for acts, why in (
		([["file", ".git/hooks/pre-commit", EVIL]], UNDECLARED),
		([["file", "/tmp/wafcc-forged", EVIL]], UNDECLARED),
		([["no outputs"]], LACKING),
		([["link", "build/lib", "../.git/hooks"], ["file", "build/lib/libx.a", EVIL]], NO_FILE),
		([["file", "build/../libx.a", EVIL]], "it names an output twice"),
		([["main", EVIL]], UNDECLARED),
	):
		second = victim(machine, shop)
		shop.put(key, forge(key, value, acts))
		before = second.look()
		before.pop("libx.a", None)
		assert archive(second, "--output=libx.a").startswith("miss")
		assert second.remote()["refused"] == {why: 1}
		after = second.look()
		after.pop("libx.a")
		assert after == before


@redis_alone
def test_a_link_declares_its_output(machine: Make, shop: Shop) -> None:
	"""Links declare it with ``-o``, so they are shared as before if facts are on."""
	line = f"{COMPILERS[0]} main.c -o prog"
	first, second = machine(shop.address), machine(shop.read_only)
	first.write("main.c", "int main(void) { return 0; }\n")
	for each in (first, second):
		each.environ["WAFCC_FACTS"] = "1"
	first.until_hit(line)
	first.until_uploaded()
	assert second.same(line).startswith("hit")


@redis_alone
def test_links_on_the_way_that_are_ours_are_followed(machine: Make, shop: Shop) -> None:
	"""A build folder elsewhere, a checkout behind a link: the object is where the compiler would put it."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	elsewhere = first.folder.parent / "elsewhere"
	elsewhere.mkdir()
	(first.folder / "build").symlink_to(elsewhere)
	line = LINE.replace("x.o", "build/x.o")
	first.until_hit(line)
	first.until_uploaded()
	second = machine(shop.read_only)
	argv = [second.wafcc, *line.split()]
	subprocess.run(argv, cwd=second.folder, env=second.environ, check=True, timeout=PATIENCE)
	assert second.remote()["hits"] == 1 and (elsewhere / "x.o").is_file()


@redis_alone
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of somebody else")
def test_links_of_other_users_are_not_followed(machine: Make, shop: Shop) -> None:
	"""The compiler may follow links; entries of others are not written there."""
	first = machine(shop.address)
	first.write("x.c", "int f;\n")
	(first.folder / "build").mkdir()
	line = LINE.replace("x.o", "build/x.o")
	first.until_hit(line)
	first.until_uploaded()
	second = machine(shop.read_only)
	elsewhere = first.folder.parent / "elsewhere"
	elsewhere.mkdir()
	(first.folder / "build").rmdir()
	(first.folder / "build").symlink_to(elsewhere)
	os.chown(first.folder / "build", 65534, 65534, follow_symlinks=False)
	argv = [second.wafcc, *line.split()]
	subprocess.run(argv, cwd=second.folder, env=second.environ, check=True, timeout=PATIENCE)
	remote = second.remote()
	assert "somebody else's link is on the way to an output" in remote["refused"]
	assert second.explain(first.folder / "build" / "x.o").startswith("miss")
