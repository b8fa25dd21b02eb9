"""A browser for each file of these tests, and one server for all; each test has a profile of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from live import LiveServer, live_server
from web_kit import chromium, signed_in


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its file: Playwright's event loop would be in the way of tests that run one of their own."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("web") / "muster") as found:
        yield found


@pytest.fixture
def page(browser: Browser, server: LiveServer) -> Iterator[Page]:
    """Signed in as the administrator."""
    with signed_in(browser, server) as found:
        yield found
