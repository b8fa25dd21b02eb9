"""The page of data sets, and `muster data`: versions, who read and wrote them, what came of it, who sees nothing."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import Browser, Page, expect

from live import LiveServer, call_muster, until
from web_kit import reads_well, signed_in

PREPARE = """
from muster import runtime

runtime.data("raw/pages", "2026-01", digest="sha256:" + "ab" * 32, rows=1000, bytes=4096)
runtime.data("clean", "1", role="output", digest="sha256:" + "cd" * 32, rows=900)
"""


@pytest.fixture(scope="module")
def runs(server: LiveServer) -> tuple[str, str]:
    """One run that makes a data set of another, and one that reads it."""
    (server.home / "prepare.py").write_text(PREPARE)
    made = server.submit("python prepare.py", name="prepare", kind="data")["id"]
    read = server.submit("true", name="reads", data=["clean@1"])["id"]
    for run in (made, read):
        server.wait(run, "succeeded")
    until(lambda: len(server.get("/v1/data", contains="clean")["data"]) == 1, "the data set")
    return made, read


def test_data_sets_have_versions_users_and_what_came_of_them(page: Page, runs: tuple[str, str]) -> None:
    made, read = runs
    page.goto("/data?contains=clean")
    row = page.get_by_role("region", name="Data sets").get_by_role("row").filter(has_text="clean")
    expect(row).to_contain_text("cdcdcdcdcdcd")
    expect(row).to_contain_text("900")
    row.get_by_role("link", name="clean").click()
    expect(page).to_have_url("/data/clean")
    used = page.get_by_role("region", name="Used by", exact=True).get_by_role("row")
    expect(used.filter(has_text=made)).to_contain_text("wrote it")
    expect(used.filter(has_text=read)).to_contain_text("read it")
    page.get_by_role("region", name="Versions", exact=True).get_by_role("link", name="1", exact=True).click()
    expect(page).to_have_url("/data/clean%401")
    source = page.get_by_role("region", name="Made from").get_by_role("link", name="data:raw/pages@2026-01")
    expect(page.get_by_role("region", name="What came of it").get_by_role("link", name=read)).to_be_visible()
    source.click()
    expect(page.get_by_role("heading", name="raw/pages@2026-01")).to_be_visible()
    expect(page.get_by_role("region", name="Used by", exact=True)).to_contain_text("abababababab")
    page.get_by_role("region", name="Used by", exact=True).get_by_role("link", name=made).click()
    expect(page.get_by_role("heading", name="prepare")).to_be_visible()


def test_the_command_line_lists_and_shows_them(server: LiveServer, runs: tuple[str, str]) -> None:
    env = {**os.environ, "MUSTER_HOME": str(server.home), "COLUMNS": "200"}
    listed = call_muster("data", "--contains", "raw/", env=env).stdout
    assert all(word in listed for word in ("raw/pages", "2026-01", "1,000", "abababababab"))
    shown = call_muster("data", "clean", env=env).stdout
    assert all(run in shown for run in runs)
    assert "wrote" in shown
    assert call_muster("data", "none", env=env).returncode == 1


def test_who_is_in_no_project_sees_no_data_and_what_to_do(browser: Browser, server: LiveServer) -> None:
    server.post("/v1/projects", {"name": "apart"})
    with server.http() as root:
        root.put("/v1/projects/apart/members/new", json={"role": "viewer"}).raise_for_status()
        token = root.post("/v1/tokens", json={"user": "new"}).json()["token"]
    with server.http(token) as http:
        assert http.get("/v1/data").json() == {"data": [], "more": False}
        assert http.get("/v1/data/clean").status_code == 404
    with signed_in(browser, server, token) as page:
        page.goto("/data")
        expect(page.get_by_text("No run has named a data set")).to_be_visible()
        page.goto("/data/clean")
        expect(page.get_by_role("alert").first).to_contain_text("There is no data set 'clean'")


def test_data_reads_well(browser: Browser, server: LiveServer, runs: tuple[str, str]) -> None:
    reads_well(browser, server, {"/data": "clean", "/data/clean": "What came of it"})
