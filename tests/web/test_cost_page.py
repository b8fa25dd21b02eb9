"""The page of costs: what finished jobs cost, opened to its entries; a budget and a grant; and a token of finance."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from live import LiveServer, live_server, until
from web_kit import reads_well, signed_in

BOOK = "currency: USD\npools: {local: {accelerator: 3600}}"  # a second costs one


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    config = "accelerators = 'H100:2'\ncpus = 8\n"
    with live_server(tmp_path_factory.mktemp("money") / "muster", config=config) as made, made.http() as root:
        root.put("/v1/cost/prices", json={"text": BOOK}).raise_for_status()
        root.post("/v1/projects", json={"name": "vision"}).raise_for_status()
        root.post("/v1/queues", json={"name": "of-vision", "project": "vision"}).raise_for_status()
        spec = {"retry": {"max_restarts": 0}, "resources": {"accelerators": 1}}
        for run, more in (("true", {}), ("false", {"project": "vision", "queue": "of-vision"})):
            made.submit(run, **spec, **more)
        until(lambda: len([one for one in rows(made, "run") if one["entries"]]) == 2, "the charges")
        yield made


def rows(shop: LiveServer, by: str) -> list[dict[str, int]]:
    return list(shop.get("/v1/cost", by=by)["rows"])


@pytest.fixture
def page(browser: Browser, shop: LiveServer) -> Iterator[Page]:
    with signed_in(browser, shop) as found:
        yield found


def test_a_figure_opens_to_the_entries_that_it_is_made_of(page: Page) -> None:
    page.goto("/cost")
    total = page.get_by_role("region", name="Total in USD")
    expect(total).to_contain_text("Wasted")
    expect(page.get_by_role("row").filter(has_text="vision").first).to_be_visible()
    page.get_by_label("Group by").select_option("user")
    expect(page).to_have_url(re.compile(r"by=user"))
    page.get_by_role("row").filter(has_text="admin").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="Entries of user admin")).to_be_visible()
    expect(page.get_by_text("in 2 entries")).to_be_visible()
    expect(page.get_by_role("cell", name=re.compile(r"× 1 accelerator × 3,600.00 an hour")).first).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Group by")).to_have_value("user")
    page.get_by_role("button", name="Last month").click()
    expect(page.get_by_text("Nothing was charged in this period")).to_be_visible()


def test_prices_are_shown(page: Page) -> None:
    page.goto("/cost?tab=prices")
    expect(page.get_by_role("table", name="Prices").get_by_role("row").filter(has_text="local")).to_contain_text(
        "3,600.00 USD"
    )
    expect(page.get_by_text("currency: USD")).to_be_visible()


def test_a_budget_is_set_shown_as_a_bar_and_granted_more(page: Page) -> None:
    page.goto("/cost?tab=budgets")
    page.get_by_role("button", name="Set a budget…").click()
    dialog = page.get_by_role("dialog", name="Set a budget")
    dialog.get_by_label("Name").fill("of-vision")
    dialog.get_by_label("Project").select_option("vision")
    dialog.get_by_label("Amount").fill("0.01 USD")
    dialog.get_by_role("button", name="Check").click()
    expect(dialog.get_by_role("status")).to_contain_text("more than 0.01 USD")
    dialog.get_by_label("Amount").fill("5000 USD")
    dialog.get_by_role("button", name="Check").click()
    dialog.get_by_role("button", name="Set it").click()
    budget = page.get_by_role("article", name="Budget of-vision")
    expect(budget.get_by_role("img", name=re.compile(r"spent .* USD, left 4,99\d\.\d\d USD"))).to_be_visible()
    budget.get_by_role("button", name="Grant more…").click()
    grant = page.get_by_role("dialog", name="Grant more to of-vision")
    grant.get_by_label("Amount").fill("none")
    grant.get_by_label("Why").fill("the paper")
    grant.get_by_role("button", name="Grant").click()
    expect(grant.get_by_role("alert")).to_be_visible()
    grant.get_by_label("Amount").fill("500")
    grant.get_by_role("button", name="Grant").click()
    expect(budget).to_contain_text("5,500.00 USD")
    expect(budget).to_contain_text("with 500.00 USD granted")


def test_a_token_of_finance_sees_all_costs_and_nothing_else(browser: Browser, shop: LiveServer) -> None:
    token = shop.post("/v1/tokens", {"user": "fin", "finance": True})["token"]
    with signed_in(browser, shop, token) as page:
        expect(page).to_have_url(re.compile(r"/cost$"))  # the first page asks for jobs
        expect(page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_text(["Cost"])
        expect(page.get_by_role("row").filter(has_text="default").first).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="vision").first).to_be_visible()
        expect(page.get_by_role("navigation", name="Cost").get_by_role("link")).to_have_text(["Overview", "Prices"])
        page.get_by_role("row").filter(has_text="vision").get_by_role("link").first.click()
        expect(page.get_by_text("in 1 entry")).to_be_visible()
        page.goto("/alerts")
        expect(page.get_by_role("alert")).to_contain_text("may read the costs of projects, and nothing else")


def test_a_viewer_is_offered_no_money(browser: Browser, shop: LiveServer) -> None:
    with shop.http() as root:
        root.put("/v1/projects/vision/members/vic", json={"role": "viewer"})
        root.put("/v1/cost/budgets/seen", json={"amount": "9 USD", "project": "vision", "mode": "soft"})
        token = root.post("/v1/tokens", json={"user": "vic"}).json()["token"]
    with signed_in(browser, shop, token) as page:
        page.goto("/cost?tab=budgets")
        expect(page.get_by_role("article", name="Budget seen")).to_be_visible()
        expect(page.get_by_role("main").get_by_role("button", name=re.compile("Grant|Set"))).to_have_count(0)
        page.goto("/cost")
        expect(page.get_by_role("row").filter(has_text="vision").first).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="default")).to_have_count(0)


def test_costs_read_well(browser: Browser, shop: LiveServer) -> None:
    with shop.http() as root:
        root.put("/v1/cost/budgets/all", json={"amount": "9 USD", "mode": "soft"}).raise_for_status()
    shown = {"/cost": "Experiment families", "/cost?tab=budgets": "used so far", "/cost?tab=advice": "Nothing to save"}
    reads_well(browser, shop, {**shown, "/cost?tab=prices": "on_demand", "/cost/entries?month=this": "in 2 entries"})
