"""``wafd serve`` as a shared store: by its own protocol, and by the other protocols that it speaks."""

import pathlib
import signal
from typing import Any

import pytest
from cache_support import COMPILERS
from serve_support import OTHER, TOKEN, write_tokens
from tier_support import LINE, PATIENT, Machine, Make, shared

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a compiler")
ONE, TWO = "1" * 20, "2" * 20


@pytest.fixture
def server(serve: Any, tmp_path: pathlib.Path) -> Any:
	"""A server with a token that may write, and one that may not."""
	lines = [f"ci write - {TOKEN}", f"dev read - {OTHER}", f"one write one {ONE}", f"two write two {TWO}"]
	tokens = write_tokens(tmp_path / "tokens", *lines)
	return serve("--tokens", str(tokens))


def address(server: Any, scheme: str, token: str, rest: str = "") -> str:
	host, port = server.address
	return f"{scheme}://{token}@{host}:{port}{rest}{PATIENT}"


def write_source(machine: Machine, is_large: bool) -> None:
	if is_large:
		machine.write_noise()
	else:
		machine.write("x.c", "int f;\n")


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(
	("scheme", "login", "rest"),
	[
		("tcp", "{}", ""),
		("redis", ":{}", ""),
		("http", "any:{}", "/folder"),
		("http", "any:{}", "/|layout=bazel"),
	],
)
def test_what_one_machine_compiled_another_one_hits(
	machine: Make, server: Any, scheme: str, login: str, rest: str, is_large: bool
) -> None:
	"""A read-only client has hits as well, and writes nothing."""
	first = machine(address(server, scheme, login.format(TOKEN), rest))
	second = machine(address(server, scheme, login.format(OTHER), rest))
	write_source(first, is_large)
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit") and f"it came from {scheme}://" in said
	assert (remote["hits"], remote["errors"], remote["uploads"]) == (1, {}, 0)


def test_another_namespace_has_nothing_of_it(machine: Make, server: Any) -> None:
	"""The server is the same."""
	first, second = (machine(address(server, "tcp", *login)) for login in ((ONE, "/one"), (TWO, "/two")))
	first.write("x.c", "int f;\n")
	said, remote = shared(first, second, LINE)
	assert "does not have it" in said and remote["errors"] == {}


def test_what_was_uploaded_outlives_the_server(machine: Make, server: Any) -> None:
	"""The server is killed, and started again elsewhere."""
	first = machine(address(server, "tcp", TOKEN))
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	first.until_uploaded()
	server.again(signal.SIGKILL)
	second = machine(address(server, "tcp", OTHER))
	assert second.same(LINE).startswith("hit")
