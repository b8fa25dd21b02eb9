"""The registry's pages: a model of a real run, verified, promoted with evidence, named, and rolled back."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from live import LiveServer, live_server, until
from web_kit import reads_well, signed_in

PROGRAM = """
from pathlib import Path
from muster import runtime
runtime.report(1, val_loss=0.31)
Path("model.bin").write_bytes(b"weights")
runtime.artifact("model.bin", "final/model.bin", kind="model")
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("models") / "muster") as server:
        (server.home / "model.py").write_text(PROGRAM)
        run = server.submit("python model.py", name="tiny")["id"]
        server.wait(run, "succeeded")
        until(lambda: server.get(f"/v1/runs/{run}/artifacts")["folders"], "the model")
        for _ in range(2):
            server.post("/v1/models/gpt/versions", {"source": f"artifact:{run}/final", "project": "default"})
        with server.http() as http:
            until(lambda: http.get("/v1/models/gpt/versions/1/statement").status_code == 200, "the statement")
        yield server


@pytest.fixture
def page(browser: Browser, registry: LiveServer) -> Iterator[Page]:
    with signed_in(browser, registry) as found:
        yield found


def promote(page: Page, stage: str, evidence: str | None = None, why: str = "") -> None:
    page.get_by_role("button", name="Promote…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To the stage").select_option(stage)
    if evidence is not None:
        dialog.get_by_label("Runs that speak for it").fill(evidence)
    dialog.get_by_label("Why").fill(why)
    dialog.get_by_role("button", name=f"Move to {stage}").click()


def test_a_version_is_verified_promoted_and_named(page: Page, registry: LiveServer) -> None:
    page.goto("/models")
    page.get_by_role("link", name="gpt", exact=True).click()
    page.get_by_role("link", name="Version 1").click()
    version = page.get_by_role("region", name="Version 1")
    expect(page.get_by_text("1 file, signed by this server")).to_be_visible()
    expect(page.get_by_text("The policy has no stage 'staging'")).to_be_visible()

    promote(page, "production", evidence="", why="it looks good")
    refused = page.get_by_role("dialog").get_by_role("alert")
    expect(refused).to_contain_text("can't go to production without evidence")
    run = registry.get("/v1/models/gpt/versions/1")["run"]
    page.get_by_role("dialog").get_by_label("Runs that speak for it").fill(run)
    page.get_by_role("dialog").get_by_role("button", name="Move to production").click()
    expect(version).to_contain_text("production")
    expect(page.get_by_text("none → production")).to_be_visible()
    expect(page.get_by_text("val_loss 0.31")).to_be_visible()

    page.get_by_role("button", name="Alias…").click()
    page.get_by_role("dialog").get_by_label("Alias").fill("champion")
    page.get_by_role("button", name="Set the alias").click()
    expect(version).to_contain_text("champion")
    page.get_by_role("button", name="Remove the alias champion").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(version).not_to_contain_text("champion")

    # The next one takes its place, and the first is put back.
    page.get_by_role("link", name="Version 2").click()
    promote(page, "production", why="better")
    expect(page.get_by_role("row").filter(has_text="archived")).to_be_visible()
    page.get_by_role("button", name="Roll back…").click()
    page.get_by_role("dialog").get_by_label("Why").fill("it is slower")
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.get_by_role("region", name="Version 2")).to_contain_text("archived")
    assert registry.get("/v1/models/gpt")["latest"]["production"] == 1


def test_what_the_policy_still_asks_for_is_said(page: Page, registry: LiveServer) -> None:
    with registry.http() as root:
        text = "promotion: {production: {reviewer: admin}}"
        root.put("/v1/rules", json={"text": text}).raise_for_status()
        page.goto("/models/gpt?version=2&to=production")
        expect(page.get_by_text("1 of 2 is missing.")).to_be_visible()
        expect(page.get_by_text(re.compile("^muster promote ask tiny"))).to_be_visible()
        root.put("/v1/rules", json={"text": "{}"}).raise_for_status()


def test_a_review_that_is_asked_for_is_on_the_reviewers_first_page(browser: Browser, registry: LiveServer) -> None:
    with registry.http() as root:
        root.put("/v1/rules", json={"text": "promotion: {production: {reviewer: member}}"}).raise_for_status()
        run = registry.get("/v1/models/gpt/versions/1")["run"]
        people = {}
        for who in ("rob", "ann"):
            root.put("/v1/projects/default/members/" + who, json={"role": "member"}).raise_for_status()
            people[who] = root.post("/v1/tokens", json={"user": who}).json()["token"]
        with signed_in(browser, registry, people["rob"]) as page:
            needs = page.get_by_role("heading", name="Needs me").locator("..")
            expect(needs).to_contain_text("nobody asks you for a review")
            with registry.http(people["ann"]) as ann:
                body = {"to": "production", "why": "the curves are clean"}
                ann.post(f"/v1/runs/{run}/promotion/ask", json=body).raise_for_status()
            expect(needs).to_contain_text("ann asks for a review: the curves are clean")  # by itself
            needs.get_by_role("button", name="Approve…").click()
            dialog = page.get_by_role("dialog", name=f"Approve {run} for production")
            dialog.get_by_label("Why it may go on").fill("so they are")
            dialog.get_by_role("button", name="Approve", exact=True).click()
            expect(needs).to_contain_text("nobody asks you for a review")
        assert not registry.get("/v1/reviews")["reviews"]
        root.put("/v1/rules", json={"text": "{}"}).raise_for_status()


def test_a_viewer_is_offered_no_promotion(browser: Browser, registry: LiveServer) -> None:
    with registry.http() as root:
        root.put("/v1/projects/default/members/vic", json={"role": "viewer"})
        token = root.post("/v1/tokens", json={"user": "vic"}).json()["token"]
    with signed_in(browser, registry, token) as page:
        page.goto("/models/gpt?version=1")
        expect(page.get_by_text("signed by this server")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Promote|Alias|Roll back|Remove"))).to_have_count(0)
        page.goto("/models/none")
        expect(page.get_by_role("alert")).to_contain_text("There is no model 'none'")


def test_models_read_well(browser: Browser, registry: LiveServer) -> None:
    reads_well(browser, registry, {"/models": "default", "/models/gpt?version=1": "signed by this server"})
