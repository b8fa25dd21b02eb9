"""The frame of the pages: signing in and out, keys, what is said when the server is away, and what axe finds."""

from __future__ import annotations

import re
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from live import LiveServer, live_server
from web_kit import opened, signed_in, watched

TRAIN = """
from muster import runtime

for step in range(1, 101):
    runtime.report(step=step, loss=3 / step, total=100)
"""


def test_a_stranger_is_asked_to_sign_in_and_a_token_does(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server) as page:
        page.goto("/queue")
        expect(page.get_by_text("muster open")).to_be_visible()
        page.get_by_label("or sign in with a token").fill("mst_0123_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("The token is not valid")
        page.get_by_label("or sign in with a token").fill(server.token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_text("muster open")).to_be_visible()


def test_a_link_works_once_and_leaves_the_address(browser: Browser, server: LiveServer) -> None:
    with server.http() as http:
        link = http.post("/v1/session/links", json={"page": "/runs"}).json()["url"]
    with opened(browser, server) as page:
        page.goto(link)
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        assert page.url == f"{server.url}/runs"
    with opened(browser, server) as page:
        page.goto(link)
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_the_cluster_in_one_bar_needs_no_list_of_nodes(page: Page, server: LiveServer) -> None:
    (pool,) = server.get("/v1/capacity")["pools"]
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url.removeprefix(server.url)))
    page.goto("/")
    cluster = page.get_by_role("region", name="Cluster")
    expect(cluster).to_contain_text(f"{pool['pool']}: {pool['accelerator'] or 'CPUs'}")
    expect(cluster.get_by_role("img")).to_be_visible()
    assert "/v1/capacity" in asked
    assert not [url for url in asked if url.startswith("/v1/nodes")]


def test_the_first_load_is_small(page: Page, server: LiveServer) -> None:
    page.goto("/")
    expect(page.get_by_role("region", name="Cluster").get_by_role("img").first).to_be_visible()
    sent = page.evaluate("""
        performance.getEntriesByType("resource").filter(one => one.name.includes("/assets/"))
            .reduce((sum, one) => sum + one.encodedBodySize, 0)
    """)
    assert 20_000 < sent < 150_000  # bytes, compressed


def test_my_runs_and_what_failed_are_on_the_first_page(page: Page, server: LiveServer) -> None:
    (server.home / "train.py").write_text(TRAIN)
    good = server.submit("python train.py", name="good")["id"]
    bad = server.submit("exit 3", name="bad")["id"]
    expect(page.get_by_role("link", name=good).first).to_be_visible()
    server.wait(good)
    server.wait(bad)
    expect(page.get_by_role("img", name=re.compile("^loss, last 0.03"))).to_be_visible()
    expect(page.get_by_text("ended with exit code 3")).to_be_visible()


def test_keys_open_pages_and_find_runs(page: Page, server: LiveServer) -> None:
    found = server.submit("true", name="findable")["id"]
    server.wait(found)
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page).to_have_url(re.compile("/queue$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("g q")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.get_by_role("combobox", name="Search").fill("findab")
    expect(page.get_by_role("option", name=found)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/runs/{found}$"))
    page.go_back()
    expect(page).to_have_url(re.compile("/queue$"))


def test_a_killed_server_is_said_and_the_page_catches_up(browser: Browser, tmp_path: Path) -> None:
    with live_server(tmp_path / "muster", config="port = 0\n") as server:
        port = int(server.url.rpartition(":")[2])
        server.options = ("--port", str(port))
        with signed_in(browser, server) as page:
            server.kill()
            expect(page.get_by_text("The server does not answer").first).to_be_visible()
            server.start()
            late = server.submit("sleep 60", name="late")["id"]
            expect(page.get_by_role("link", name=late).first).to_be_visible()
            expect(page.get_by_text("The server does not answer")).to_have_count(0)
            server.post(f"/v1/jobs/{late}/stop")
            server.wait(late)


def test_two_tabs_show_the_same_and_are_signed_out_together(browser: Browser, server: LiveServer) -> None:
    """What is done in one is seen in the other, which hears of it by its own stream."""
    with signed_in(browser, server) as first:
        job = server.submit("sleep 600", name="two-tabs")["id"]
        second = first.context.new_page()
        wrong = watched(first.context, second, server)
        for tab in (first, second):
            tab.goto(f"/runs/{job}")
            expect(tab.get_by_role("region", name="State")).to_contain_text("running")
        first.get_by_role("button", name="Stop", exact=True).click()
        first.get_by_role("dialog").get_by_label("Kill it now").check()
        first.get_by_role("dialog").get_by_role("button", name="Stop it").click()
        expect(second.get_by_role("region", name="State")).to_contain_text("stopped")
        second.get_by_role("button", name="Sign out").click()
        expect(first.get_by_label("or sign in with a token")).to_be_visible()
        first.get_by_label("or sign in with a token").fill(server.token)
        first.get_by_role("button", name="Sign in").click()
        expect(second.get_by_role("button", name="Sign out")).to_be_visible()
        assert not wrong, wrong


def test_a_tab_whose_code_is_gone_is_loaded_again(browser: Browser, server: LiveServer) -> None:
    """As after an upgrade of the server: the code that the tab would load has another name now."""
    refused: list[str] = []

    def refuse_once(route: Route) -> None:
        route.continue_() if refused else route.abort()
        refused.append(route.request.url)

    with signed_in(browser, server) as page:
        page.get_by_role("heading", name="Home").wait_for()
        page.route("**/assets/Queue-*.js", refuse_once)
        page.get_by_role("link", name="Queue", exact=True).click()
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()
        expect(page).to_have_url(f"{server.url}/queue")
        page.route("**/assets/Policy-*.js", lambda route: route.abort())  # and where that does not help, it says so
        page.get_by_role("link", name="Policy", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("Failed to fetch")


def test_nothing_serious_is_in_the_way_of_anybody(browser: Browser, server: LiveServer) -> None:
    for options in ({}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}}):
        with signed_in(browser, server, **options) as page:
            page.get_by_role("heading", name="Home").wait_for()
            found = Axe().run(page).response["violations"]
            assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
