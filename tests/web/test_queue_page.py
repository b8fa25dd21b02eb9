"""The queue: order, reasons, starts, holders; priority and stop by role; what-if; filters in the address; length."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from live import PATIENCE, LiveServer, live_server, until
from web_kit import signed_in

expect.set_options(timeout=PATIENCE * 1000)  # a busy machine takes longer than the five seconds of Playwright

# Two nodes: the first job holds one of them, so that gangs of two wait.
CONFIG = "nodes = 2\naccelerators = 'H100:4'\ncpus = 16\n"
GANG = {"num_nodes": 2, "gpus": 4, "cpus": 1, "max_duration": "1h"}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("queue") / "muster", config=CONFIG) as made:
        held = made.submit("sleep 3000", name="holder", gpus=4, cpus=1, max_duration="2h", hang="off", priority=95)
        made.wait(held["id"], "running")
        for name in ("first", "second"):
            made.submit("true", name=name, **GANG)
        with made.http() as root:
            root.put("/v1/projects/default/members/vera", json={"role": "viewer"}).raise_for_status()
        yield made


@pytest.fixture
def page(browser: Browser, line: LiveServer) -> Iterator[Page]:
    with signed_in(browser, line) as found:
        yield found


def test_who_waits_is_in_order_with_why_when_and_who_holds_it(page: Page, line: LiveServer) -> None:
    page.goto("/queue")
    rows = page.get_by_role("region", name="Jobs in their order").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("first-")
    expect(rows.nth(1)).to_contain_text("held by holder-1")
    expect(rows.nth(2)).to_contain_text("goes first in 'default'")
    expect(rows.nth(1).get_by_role("img", name=re.compile("^starts in about"))).to_be_visible()
    rows.nth(2).get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"job=second-3"))
    panel = page.get_by_role("complementary", name="Why second-3 waits")
    expect(panel.get_by_text("place 2 in default")).to_be_visible()
    expect(panel.get_by_role("table").get_by_role("link", name="holder-1")).to_be_visible()
    expect(panel.get_by_role("listitem").filter(has_text="first-2")).to_be_visible()
    expect(panel.get_by_text(re.compile("holder-1 to end, in .* at the latest"))).to_be_visible()
    expect(panel.get_by_role("img", name=re.compile("^starts in about"))).to_be_visible()
    found = Axe().run(page).response["violations"]
    assert not [one for one in found if one["impact"] in ("serious", "critical")]
    page.go_back()
    expect(panel).to_have_count(0)


def test_a_smaller_gang_would_start_at_once(page: Page) -> None:
    page.goto("/queue?job=second-3")
    page.get_by_label("Nodes").fill("1")
    page.get_by_role("button", name="Predict").click()
    expect(page.get_by_text("It would start at once")).to_be_visible()
    expect(page).to_have_url(re.compile(r"num_nodes=1"))
    page.get_by_role("link", name="Edit and submit it so").click()
    expect(page.get_by_label("Job file (YAML)")).to_have_value(re.compile("name: second"))
    expect(page.get_by_label("num nodes")).to_have_value("1")


def test_a_priority_that_an_admin_gives_moves_the_job_and_says_why(page: Page, line: LiveServer) -> None:
    page.goto("/queue?job=second-3")
    page.get_by_role("button", name="Priority…").click()
    page.get_by_role("button", name="high (75)").click()
    page.get_by_label("Why", exact=True).fill("the review is tomorrow")
    page.get_by_role("button", name="Set the priority").click()
    rows = page.get_by_role("region", name="Jobs in their order").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("second-3")
    expect(rows.nth(1).get_by_role("cell", name="75")).to_be_visible()
    events = line.get("/v1/events", job="second-3", kind="job.priority")["events"]
    assert [one["data"]["reason"] for one in events] == ["the review is tomorrow"]
    line.post("/v1/jobs/second-3/priority", {"priority": "normal"})
    expect(rows.nth(1)).to_contain_text("first-2")


def test_a_viewer_sees_the_queue_and_no_buttons(browser: Browser, line: LiveServer) -> None:
    token = line.post("/v1/tokens", {"user": "vera"})["token"]
    with signed_in(browser, line, token) as page:
        page.goto("/queue?job=first-2")
        panel = page.get_by_role("complementary", name="Why first-2 waits")
        expect(panel.get_by_text("place 1 in default")).to_be_visible()
        expect(panel.get_by_role("button")).to_have_count(1)  # that closes it


def test_filters_are_in_the_address(page: Page) -> None:
    page.goto("/queue")
    page.get_by_label("Phase").select_option("running")
    expect(page).to_have_url(re.compile(r"phase=running"))
    expect(page.get_by_role("link", name="holder-1")).to_be_visible()
    page.get_by_label("User").fill("nobody")
    expect(page.get_by_text("There is no such job.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"user=nobody"))
    page.reload()
    expect(page.get_by_text("There is no such job.")).to_be_visible()
    page.get_by_role("button", name="Only mine").click()
    expect(page.get_by_role("link", name="holder-1")).to_be_visible()


def test_a_long_queue_is_read_page_by_page_and_a_job_leaves_it(page: Page, line: LiveServer) -> None:
    many = {"jobs": [{"spec": {"name": f"many-{n}", "run": "true", "workdir": "/", **GANG}} for n in range(150)]}
    last = line.post("/v1/jobs/batch", many)["jobs"][-1]["id"]
    page.goto("/queue")
    expect(page.get_by_text("152 jobs queued")).to_be_visible()
    box = page.get_by_role("region", name="Jobs in their order")

    def at_the_end() -> bool:
        box.evaluate("box => box.scrollTop = box.scrollHeight")
        return page.get_by_role("link", name=last).count() > 0

    until(at_the_end, "the last job")
    page.get_by_role("link", name=last).click()
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("button", name="Stop it").click()
    assert line.wait(last)["phase"] == "stopped"
    expect(page.get_by_text("151 jobs queued")).to_be_visible()
