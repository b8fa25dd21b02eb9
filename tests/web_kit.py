"""A real browser over a real server: Chromium by Playwright, signed in by a link; faults of a page fail its test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

import muster
from components import require
from live import PATIENCE, LiveServer

BUILT: Final = Path(muster.__file__).parent / "web_pages" / "index.html"
FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
# What a browser says of answers that a test asks for: a refusal is shown on the page, and is no fault of it.
_ANSWERED: Final = "Failed to load resource"


@contextmanager
def chromium() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    require("Chromium", found is not None, "Install Debian's package chromium.")
    require("the built web page", BUILT.is_file(), "Run `make web`.")
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def signed_in(browser: Browser, server: LiveServer, token: str | None = None, **options: Any) -> Iterator[Page]:
    """A page of a new browser profile, signed in by a one-time link. Ends with a look at what went wrong meanwhile."""
    with opened(browser, server, **options) as page:
        with server.http(token) as http:
            link = http.post("/v1/session/links").raise_for_status().json()["url"]
        page.goto(link)
        page.get_by_role("button", name="Sign out").wait_for()
        yield page


@contextmanager
def opened(browser: Browser, server: LiveServer, **options: Any) -> Iterator[Page]:
    """A page of a new profile that nobody is signed in at."""
    context = browser.new_context(base_url=server.url, **{"viewport": {"width": 1400, "height": 900}, **options})
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    wrong = watched(context, page, server)
    try:
        yield page
        assert not wrong, wrong
    finally:
        context.close()


def reads_well(browser: Browser, server: LiveServer, paths: dict[str, str], token: str | None = None) -> None:
    """Nothing serious is found by axe, and nothing is wider than the window: in light, in dark and on a phone.

    `paths`: each with a text that is there once the page is whole.
    """
    with signed_in(browser, server, token) as page:
        for path, text in paths.items():
            page.set_viewport_size({"width": 1400, "height": 900})
            page.emulate_media(color_scheme="light")
            page.goto(path)
            page.get_by_role("main").get_by_text(text).first.wait_for()
            shown_reads_well(page, path)


def shown_reads_well(page: Page, what: str) -> None:
    """The same of what the page shows now, such as a dialog. Leaves the window as it was."""
    before = page.viewport_size
    _is_sound(page, f"{what} in light", {})
    page.emulate_media(color_scheme="dark")
    _is_sound(page, f"{what} in dark", {"runOnly": ["color-contrast"]})
    page.set_viewport_size({"width": 360, "height": 740})
    _is_sound(page, f"{what} on a phone", {"rules": {"color-contrast": {"enabled": False}}})
    page.emulate_media(color_scheme="light")
    if before is not None:
        page.set_viewport_size(before)


def _is_sound(page: Page, shown: str, options: dict[str, Any]) -> None:
    """`options`: of axe, for a look that other rules than all are for."""
    violations = Axe().run(page, options=options).response["violations"]
    found = [one for one in violations if one["impact"] in ("serious", "critical")]
    assert not found, (shown, [(one["id"], one["nodes"][0]["html"]) for one in found])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), shown


def watched(context: BrowserContext, page: Page, server: LiveServer) -> list[str]:
    """Collects errors of the page's scripts, of its policy, and requests to anywhere else."""
    wrong: list[str] = []
    here = urlsplit(server.url).netloc

    def said(message: ConsoleMessage) -> None:
        if message.type == "error" and _ANSWERED not in message.text:
            wrong.append(message.text)

    def asked(request: Request) -> None:
        to = urlsplit(request.url)
        if to.scheme not in ("data", "blob") and to.netloc != here:
            wrong.append(f"a request to {request.url}")

    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    context.on("request", asked)
    return wrong
