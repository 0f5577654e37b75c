"""A real browser without a window: it shows pages as a person sees them, and nothing may come from another host."""

import pathlib
import shutil
from typing import Any, Callable, Iterator, List

import pytest

SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
LAUNCHED_AS_ROOT = ["--no-sandbox"]  # in containers there is no user to be sandboxed as
# no name of .example exists: here each leads to this machine, as an attacker's names may do
MISLED = ["--host-resolver-rules=MAP *.example 127.0.0.1"]
PICTURES = pathlib.Path(__file__).resolve().parent.parent / "docs" / "pictures"

MOMENT = 20000  # milliseconds, longer than any test needs on an idle machine


def wait(page: Any, selector: str, text: str = "") -> Any:
	"""The first element of a selector with a text in it, once it is seen: a page does what it is told when it can."""
	found = page.locator(selector, has_text=text).first
	found.wait_for()
	return found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
	"""The browser, started once for each worker."""
	playwright = pytest.importorskip("playwright.sync_api")
	program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
	if not program:
		pytest.skip("there is no browser to look at pages with: apt-get install chromium")
	with playwright.sync_playwright() as started:
		browser = started.chromium.launch(executable_path=program, headless=True, args=LAUNCHED_AS_ROOT + MISLED)
		yield browser
		browser.close()


@pytest.fixture
def look(chromium: Any) -> Iterator[Callable[..., Any]]:
	"""
	A function that opens an address and returns playwright's page: look(url, size="phone", dark=True).

	At the end of the test no page may have had an error in its scripts, or asked anybody but the address's own host.
	"""
	troubles: List[str] = []
	contexts = []

	def opened(url: str, size: str = "desktop", dark: bool = False, troubled: bool = False) -> Any:
		width, height = SIZES[size]
		context = chromium.new_context(
			viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
		)
		contexts.append(context)
		page = context.new_page()
		page.set_default_timeout(MOMENT)
		home = (
			url.split("?")[0].split("#")[0].rsplit("/", 1)[0]
			if url.startswith("file:")
			else "/".join(url.split("/")[:3])
		)
		if not troubled:
			page.on("pageerror", lambda error: troubles.append("script: %s" % error))
			page.on("console", lambda said: said.type == "error" and troubles.append("console: %s" % said.text))
		page.on(
			"request",
			lambda asked: asked.url.startswith((home, "data:", "blob:")) or troubles.append("asked %s" % asked.url),
		)
		page.goto(url)
		return page

	yield opened
	for context in contexts:
		context.close()
	assert not troubles, troubles
