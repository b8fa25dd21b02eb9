"""Signing in through a real provider's own page, which is another site than the server."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from live import PATIENCE, live_server
from oidc_kit import oidc_server


def test_the_button_leads_to_the_provider_and_back_to_the_page(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "muster"
    with oidc_server() as provider, live_server(home, config=provider.config(home, name="The Company")) as server:
        provider.account("s-ada", email="ada@example.org", email_verified=True)
        context = browser.new_context(base_url=server.url)
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        page.goto("/queue?q=1")
        page.get_by_role("link", name="Sign in with The Company").click()
        page.get_by_label("Account").fill("s-ada")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("muster project member PROJECT ada@example.org member")).to_be_visible()
        with server.http() as root:
            root.put("/v1/projects/default/members/ada@example.org", json={"role": "member"})
        page.get_by_role("link", name="To the sign-in page").click()
        page.get_by_role("link", name="Sign in with The Company").click()  # the provider knows who it is
        expect(page.get_by_text("ada@example.org").first).to_be_visible()
        page.goto("/queue?q=1")
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("link", name="Sign in with The Company").click()
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()
        expect(page).to_have_url(re.compile(r"/queue\?q=1$"))
        page.evaluate("location.assign('/sign-in#began=made-up&page=/runs')")
        expect(page.get_by_role("alert")).to_be_visible()
        page.goto("/queue")
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()
        context.close()
