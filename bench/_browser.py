"""A browser for measurements: Debian's Chromium by Playwright, the page's own clock, the browser's own trace."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
PATIENCE: Final = 600_000  # ms
_FRAMES: Final = "disabled-by-default-devtools.timeline.frame"


@contextmanager
def chromium() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise SystemExit("There is no Chromium: install Debian's package chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, muster: httpx.Client | None = None) -> Iterator[Page]:
    """A page of a new profile, with nothing in its cache; signed in at a Muster server."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        if muster is not None:
            page.goto(muster.post("/v1/session/links").raise_for_status().json()["url"])
            page.get_by_role("button", name="Sign out").wait_for()
        yield page
    finally:
        context.close()


def load_ms(page: Page, address: str, shown: str) -> float:
    """From the beginning of the navigation until what this selector means is visible."""
    page.goto("about:blank")
    page.goto(address, wait_until="commit")
    return _until(page, shown)


def first_paint_ms(page: Page) -> float:
    """Of the page that is open: when it first showed any content."""
    paints = page.evaluate("performance.getEntriesByType('paint').map(one => [one.name, one.startTime])")
    return float(dict(paints)["first-contentful-paint"])


def _until(page: Page, shown: str) -> float:
    """Looked at in every frame, so that the answer does not depend on how fast Playwright asks."""
    look = """shown => new Promise(done => {
        const look = () => {
            const found = [...document.querySelectorAll(shown)].some(one => one.getClientRects().length);
            if (found) requestAnimationFrame(() => done(performance.now()));
            else requestAnimationFrame(look);
        };
        look();
    })"""
    return float(page.evaluate(look, shown))


def frames_per_second(browser: Browser, page: Page, seconds: float = 3.0) -> float:
    """Frames that the browser drew, by its trace, while what is below the middle of the page was scrolled."""
    page.mouse.move(700, 600)
    browser.start_tracing(page=page, categories=[_FRAMES])
    begun = page.evaluate("performance.now()")
    while page.evaluate("performance.now()") - begun < 1000 * seconds:
        page.mouse.wheel(0, 160)
        page.wait_for_timeout(8)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    times = sorted(one["ts"] for one in events if one["name"] == "DrawFrame")
    return round((len(times) - 1) * 1e6 / (times[-1] - times[0]), 1) if len(times) > 2 else 0.0


def percentile(found: list[float], part: float) -> float:
    ordered = sorted(found)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1)


def summed_up(found: list[float]) -> dict[str, Any]:
    return {"p50_ms": percentile(found, 0.5), "p95_ms": percentile(found, 0.95), "loads": len(found)}
