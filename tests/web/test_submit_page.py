"""Submitting: form and text follow each other, mistakes are at their fields, the outcome is there before the button."""

from __future__ import annotations

import re

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from live import PATIENCE, LiveServer
from web_kit import signed_in

expect.set_options(timeout=PATIENCE * 1000)  # a busy machine takes longer than the five seconds of Playwright

FILE = "# of today\nname: hello   # who\nrun: 'true'\nresources: {cpus: many}\n"


def test_a_mistake_is_at_its_field_and_a_mended_job_runs(page: Page, server: LiveServer) -> None:
    page.goto("/submit")
    editor = page.get_by_label("Job file (YAML)")
    expect(editor).to_have_value(re.compile("run: echo hello"))
    editor.fill(FILE)
    cpus = page.get_by_role("textbox", name="cpus", exact=True)
    expect(cpus).to_have_value("many")
    expect(cpus).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("alert").filter(has_text="a number of CPUs")).not_to_have_count(0)
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    found = Axe().run(page).response["violations"]
    assert not [one for one in found if one["impact"] in ("serious", "critical")]
    cpus.fill("1")
    page.get_by_label("workdir").fill(str(server.home))
    expect(editor).to_have_value(re.compile(r"# of today\nname: hello   # who\nrun: 'true'\nresources: \{cpus: 1\}\n"))
    outcome = page.get_by_role("region", name="What would happen")
    expect(outcome.get_by_text("at once")).to_be_visible()
    expect(outcome.get_by_text("nobody")).to_be_visible()
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).to_have_url(re.compile(r"/runs/hello-\d+$"))
    assert server.wait(page.url.rpartition("/")[2])["phase"] == "succeeded"


def test_the_form_writes_the_file(page: Page) -> None:
    page.goto("/submit")
    editor = page.get_by_label("Job file (YAML)")
    page.get_by_label("envs").fill("LR=3e-4\nSEED=1")
    expect(editor).to_have_value(re.compile(r"envs:\n  LR: 3e-4\n  SEED: 1\n"))
    page.get_by_label("use spot").check()
    expect(editor).to_have_value(re.compile("use_spot: true"))
    page.get_by_label("use spot").uncheck()
    expect(editor).not_to_have_value(re.compile("use_spot"))
    page.get_by_label("kind").select_option("eval")
    expect(editor).to_have_value(re.compile("kind: eval"))
    page.reload()  # what was written is not lost
    expect(editor).to_have_value(re.compile("kind: eval"))


def test_a_job_that_can_not_be_is_refused_with_what_could(page: Page) -> None:
    page.goto("/submit")
    page.get_by_label("num nodes").fill("900")
    outcome = page.get_by_role("region", name="What would happen")
    expect(outcome.get_by_role("alert")).to_contain_text("900 nodes")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    outcome.get_by_role("button", name="Do so").first.click()
    expect(page.get_by_label("num nodes")).not_to_have_value("900")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled()


def test_it_begins_with_the_file_of_another_run(page: Page, server: LiveServer) -> None:
    job = server.submit("true", name="base", tags={"task": "first"})["id"]
    page.goto(f"/submit?from={job}")
    expect(page.get_by_role("heading", name=f"Submit {job} again")).to_be_visible()
    expect(page.get_by_label("Job file (YAML)")).to_have_value(re.compile("name: base.*task: first", re.S))
    expect(page.get_by_text("No file of your own machine is sent")).to_be_visible()


def test_a_viewer_may_not_submit(browser: Browser, server: LiveServer) -> None:
    with server.http() as root:
        root.put("/v1/projects/default/members/vera", json={"role": "viewer"}).raise_for_status()
    token = server.post("/v1/tokens", {"user": "vera"})["token"]
    with signed_in(browser, server, token) as page:
        page.goto("/submit")
        expect(page.get_by_text("You may not submit to project default")).to_be_visible()
        expect(page.get_by_role("button", name="Submit", exact=True)).to_have_count(0)
