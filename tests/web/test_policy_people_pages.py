"""The pages of the policy and of people: a change checked, tried and applied; members, tokens and the audit log."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from live import LiveServer, live_server
from web_kit import opened, reads_well, signed_in


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    config = "accelerators = 'H100:8'\ncpus = 8\n"
    with live_server(tmp_path_factory.mktemp("team") / "muster", config=config) as server:
        for name in ("large", "small"):
            spec = {"accelerators": 4 if name == "large" else 1}
            server.wait(server.submit("true", name=name, resources=spec)["id"])
        yield server


@pytest.fixture
def page(browser: Browser, team: LiveServer) -> Iterator[Page]:
    with signed_in(browser, team) as found:
        yield found


def test_a_policy_is_checked_tried_and_applied(page: Page, team: LiveServer) -> None:
    page.goto("/policy")
    expect(page.get_by_role("heading", name="The whole cluster")).to_be_visible()
    page.get_by_role("link", name="Change").click()
    file = page.get_by_label("The whole policy file")
    expect(page.get_by_role("button", name="Check")).to_be_disabled()
    file.fill("queues: {default: {max_accelerators_per_user: 2, order: shortst}}")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("queues.default.order")

    file.fill("between: fair\nqueues:\n  default: {max_accelerators_per_user: 2}\n")
    page.get_by_role("button", name="Check").click()
    change = page.get_by_role("heading", name="What would change")
    expect(change).to_be_visible()
    expect(page.get_by_text("Queues share fairly")).to_be_visible()
    expect(page.get_by_text("Queues are equal")).to_be_visible()
    page.get_by_text("The lines of the file").click()
    expect(page.get_by_text("+ between: fair")).to_be_visible()

    page.get_by_role("button", name="Try it").click()
    tried = page.get_by_role("status").filter(has_text="would have refused")
    expect(tried).to_contain_text("Of 2 jobs it would have refused 1")
    expect(page.get_by_role("link", name=re.compile("^large"))).to_be_visible()
    assert team.get("/v1/rules")["text"].strip() == "{}"

    page.get_by_role("button", name="Apply…").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    expect(page.get_by_text("The policy is in force.")).to_be_visible()
    assert "between: fair" in team.get("/v1/rules")["text"]
    page.get_by_role("link", name="Rules").click()
    expect(page.get_by_text("Queues share fairly")).to_be_visible()


def test_a_member_is_let_in_changed_and_removed(page: Page) -> None:
    page.goto("/people")
    page.get_by_role("button", name="New project…").click()
    page.get_by_role("dialog").get_by_label("Name").fill("vision")
    page.get_by_role("dialog").get_by_role("button", name="Make it").click()
    project = page.get_by_role("region", name="Project vision")
    project.get_by_role("button", name="Add a member…").click()
    page.get_by_role("dialog").get_by_label("User").fill("bo")
    page.get_by_role("dialog").get_by_role("button", name="Add").click()
    row = project.get_by_role("row").filter(has_text="bo")
    expect(row).to_contain_text("member")
    page.get_by_role("button", name="Change the role of bo in vision").click()
    page.get_by_role("dialog").get_by_label("Role").select_option("viewer")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(row).to_contain_text("viewer")
    page.get_by_role("button", name="Remove bo from vision").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_a_token_is_shown_once_signs_in_and_is_revoked(page: Page, browser: Browser, team: LiveServer) -> None:
    page.goto("/people?tab=tokens")
    page.get_by_role("button", name="New token…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("laptop")
    dialog.get_by_label("Allows at most").select_option("viewer")
    dialog.get_by_role("button", name="Make it").click()
    value = dialog.get_by_test_id("token").locator("code").inner_text()
    assert value.startswith("mst_")
    dialog.get_by_role("button", name="I have it").click()
    row = page.get_by_role("row").filter(has_text="laptop")
    expect(row).to_contain_text("at most viewer")
    expect(page.get_by_text(value)).to_have_count(0)
    with opened(browser, team) as other:
        other.goto("/sign-in")
        other.get_by_label("or sign in with a token").fill(value)
        other.get_by_role("button", name="Sign in").click()
        expect(other.get_by_role("button", name="Sign out")).to_be_visible()
    page.get_by_role("button", name="Revoke the token laptop").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    with team.http(value) as http:
        assert http.get("/v1/whoami").status_code == 401
    page.get_by_label("revoked and expired ones too").check()
    expect(row).to_contain_text("revoked")


def test_the_log_is_filtered_and_read_page_by_page(page: Page, team: LiveServer) -> None:
    with team.http() as root:
        for number in range(230):  # more than a page
            root.post("/v1/tokens", json={"name": f"n{number}", "role": "viewer"}).raise_for_status()
    page.goto("/people?tab=log&kind=token.")
    expect(page.get_by_role("cell", name="token.created").first).to_be_visible()
    expect(page.get_by_role("cell", name="job.submitted")).to_have_count(0)
    table = page.get_by_role("region", name="Events").get_by_role("table")
    expect(table).to_have_attribute("aria-rowcount", "200")
    page.get_by_role("button", name="Older events").click()
    expect(table).not_to_have_attribute("aria-rowcount", "200")
    page.get_by_label("What").select_option("job.")
    expect(page).to_have_url(re.compile(r"kind=job\."))
    page.get_by_role("button", name="job.submitted").first.click()
    expect(page.get_by_role("dialog")).to_contain_text('"run": "true"')
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_label("Actor").fill("nobody-at-all")
    page.get_by_label("Actor").press("Enter")
    expect(page.get_by_text("No event is like that.")).to_be_visible()


def test_a_viewer_reads_and_is_offered_nothing(browser: Browser, team: LiveServer) -> None:
    with team.http() as root:
        root.put("/v1/projects/default/members/vic", json={"role": "viewer"})
        token = root.post("/v1/tokens", json={"user": "vic"}).json()["token"]
    with signed_in(browser, team, token) as page:
        page.goto("/policy")
        expect(page.get_by_role("heading", name="The whole cluster")).to_be_visible()
        expect(page.get_by_role("link", name="Change")).to_have_count(0)
        page.goto("/people")
        expect(page.get_by_role("region", name="Project default")).to_contain_text("you are viewer")
        expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
        page.goto("/people?tab=log")
        expect(page.get_by_role("cell", name="job.submitted").first).to_be_visible()
        expect(page.get_by_role("cell", name="token.created")).to_have_count(0)


def test_policy_and_people_read_well(browser: Browser, team: LiveServer) -> None:
    policy = {
        "/policy": "The whole cluster",
        "/policy?tab=file": "fair",
        "/policy?tab=change": "This is the file in force",
    }
    people = {"/people": "you are admin", "/people?tab=tokens": "valid", "/people?tab=log&kind=job.": "job.submitted"}
    with team.http() as root:
        root.put("/v1/rules", json={"text": "between: fair"}).raise_for_status()
    reads_well(browser, team, {**policy, **people})
