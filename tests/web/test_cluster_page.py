"""The cluster: a cell for each node, which opens it; drain, quarantine, release and check by role; live."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from live import PATIENCE, LiveServer, live_server
from web_kit import signed_in

expect.set_options(timeout=PATIENCE * 1000)  # a busy machine takes longer than the five seconds of Playwright

CONFIG = "nodes = 5\naccelerators = 'H100:4'\ncpus = 16\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("cluster") / "muster", config=CONFIG) as made:
        held = made.submit("sleep 3000", name="holder", gpus=2, cpus=1, hang="off")
        made.wait(held["id"], "running")
        with made.http() as root:
            root.put("/v1/projects/default/members/mia", json={"role": "member"}).raise_for_status()
        yield made


@pytest.fixture
def page(browser: Browser, cluster: LiveServer) -> Iterator[Page]:
    with signed_in(browser, cluster) as found:
        yield found


def map_of(page: Page) -> Locator:
    return page.get_by_role("application", name=re.compile(r"^Map of 5 nodes by pool"))


def test_every_node_is_a_cell_and_a_row_and_opens(page: Page) -> None:
    page.goto("/cluster")
    cells = map_of(page)
    box = cells.bounding_box()
    assert box is not None
    cells.hover(position={"x": 12, "y": 34})
    tip = page.get_by_role("status").filter(has_text="local-0")
    expect(tip).to_contain_text("2 of 4 H100 used")
    expect(tip).to_contain_text("holder-1")
    cells.focus()
    for _ in range(6):  # it stays on the last of the five
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("status").filter(has_text="local-4")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="local-4")).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="Table").click()
    expect(page.get_by_role("region", name="Nodes").get_by_role("link", name=re.compile("^local-"))).to_have_count(5)
    page.get_by_role("link", name="local-0").click()
    expect(page.get_by_role("link", name="holder-1")).to_be_visible()


def test_fragments_gangs_and_colours(page: Page) -> None:
    page.goto("/cluster")
    row = page.get_by_role("region", name="Figures").get_by_role("row").nth(1)
    expect(row).to_contain_text("H100")
    expect(row).to_contain_text("4 × 4, 5 × 2, 5 × 1")
    expect(row.get_by_role("img", name=re.compile("free on nodes that are partly used 2"))).to_be_visible()
    page.get_by_label("Colour by").select_option("owner")
    page.get_by_role("button", name=re.compile("^admin")).click()
    expect(page).to_have_url(re.compile(r"colour=owner.*mark=admin"))
    expect(page.get_by_text("1 of 5 nodes")).to_be_visible()
    found = Axe().run(page).response["violations"]
    assert not [one for one in found if one["impact"] in ("serious", "critical")]


def test_a_node_is_drained_with_a_reason_and_released(page: Page, cluster: LiveServer) -> None:
    page.goto("/cluster/local-3")
    page.get_by_role("button", name="Drain…").click()
    page.get_by_label("Why").fill("a fan is loud")
    page.get_by_role("button", name="Drain it").click()
    expect(page.get_by_role("definition").filter(has_text="draining")).to_contain_text("a fan is loud")
    expect(page.get_by_role("row").filter(has_text="a fan is loud")).to_contain_text("admin")
    page.get_by_role("link", name="Cluster").last.click()
    expect(page.get_by_text("out of service 1")).to_be_visible()
    cluster.post("/v1/nodes/local-2/health", {"health": "quarantined", "reason": "from elsewhere"})
    expect(page.get_by_text("out of service 2")).to_be_visible()
    cluster.post("/v1/nodes/local-2/health", {"health": "healthy"})
    page.goto("/cluster/local-3")
    page.get_by_role("button", name="Release…").click()
    page.get_by_role("button", name="Release it").click()
    expect(page.get_by_role("button", name="Drain…")).to_be_visible()
    assert {one["health"] for one in cluster.get("/v1/nodes")["nodes"]} == {"healthy"}


def test_a_node_is_checked(page: Page) -> None:
    page.goto("/cluster/local-4")
    page.get_by_role("button", name="Check now").click()
    expect(page.get_by_role("columnheader", name="What was found")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="checked").first).to_be_visible()


def test_a_member_looks_and_changes_nothing(browser: Browser, cluster: LiveServer) -> None:
    token = cluster.post("/v1/tokens", {"user": "mia"})["token"]
    with signed_in(browser, cluster, token) as page:
        page.goto("/cluster/local-0")
        expect(page.get_by_role("link", name="holder-1")).to_be_visible()
        for name in ("Drain…", "Quarantine…", "Release…", "Check now"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        page.goto("/cluster/nonesuch")
        expect(page.get_by_text("There is no node nonesuch.")).to_be_visible()
