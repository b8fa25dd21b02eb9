"""The page of alerts: one that a job fired, shown with its runbook, silenced and told again; and what a viewer sees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from live import LiveServer, call_muster, until
from web_kit import reads_well, shown_reads_well, signed_in

PROGRAM = """
import math, time
from muster import runtime
for step in range(20):
    runtime.report(step, loss=math.nan if step > 10 else 3.0)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def alert(server: LiveServer) -> Iterator[dict[str, Any]]:
    """A run whose loss is not a number."""
    (server.home / "diverges.py").write_text(PROGRAM)
    run = server.submit("python diverges.py", name="diverges", hang="off")["id"]

    def fired() -> dict[str, Any]:
        found = server.get("/v1/alerts")["alerts"]
        return next((one for one in found if one["subject"]["name"] == run and one["rule"] == "not-finite"), {})

    yield until(fired, "the alert")
    server.post(f"/v1/jobs/{run}/stop")


def test_an_alert_is_shown_with_its_runbook_and_silenced(page: Page, alert: dict[str, Any]) -> None:
    run = alert["subject"]["name"]
    page.goto("/alerts?state=firing")
    row = page.get_by_role("row").filter(has_text=run).filter(has_text="not-finite")
    expect(row).to_contain_text("critical")
    row.get_by_role("link", name="not-finite").click()
    expect(page).to_have_url(f"/alerts/{alert['number']}")
    runbook = page.get_by_role("region", name="Runbook")
    expect(runbook.get_by_role("heading", name="A loss or a norm is not a number")).to_be_visible()
    expect(runbook.get_by_text(f"muster logs {run}")).to_be_visible()  # the blanks are filled in
    expect(page.get_by_role("region", name="Alert")).to_contain_text("loss is nan at step 11")

    page.get_by_role("button", name="Silence…").click()
    dialog = page.get_by_role("dialog", name="Silence alerts")
    expect(dialog.get_by_role("button", name="Silence")).to_be_disabled()
    shown_reads_well(page, "silencing")
    dialog.get_by_label("For").select_option(f"run {run}")
    dialog.get_by_label("Why").fill("it is looked at")
    dialog.get_by_role("button", name="Silence").click()
    expect(page.get_by_role("region", name="Alert")).to_contain_text("nobody is told")

    page.goto("/alerts?tab=silences")
    silence = page.get_by_role("row").filter(has_text="it is looked at")
    expect(silence).to_contain_text(f"run {run}")
    silence.get_by_role("button", name="End…").click()
    page.get_by_role("dialog").get_by_role("button", name="End it").click()
    expect(silence).to_have_count(0)


def test_somebody_looks_after_an_alert(page: Page, server: LiveServer, alert: dict[str, Any]) -> None:
    page.goto(f"/alerts/{alert['number']}")
    page.get_by_role("button", name="Acknowledge…").click()
    dialog = page.get_by_role("dialog", name="Acknowledge not-finite")
    dialog.get_by_label("What you do").fill("a lower rate")
    shown_reads_well(page, "acknowledging")
    dialog.get_by_role("button", name="Acknowledge").click()
    shown = page.get_by_role("region", name="Alert")
    expect(shown).to_contain_text("by admin")
    expect(shown).to_contain_text("a lower rate")
    expect(page.get_by_role("button", name="Acknowledge…")).to_have_count(0)
    page.goto("/alerts?state=firing")
    expect(page.get_by_role("row").filter(has_text="not-finite").filter(has_text="admin").first).to_be_visible()
    (event,) = server.get("/v1/events", kind="alert.acknowledged")["events"]
    number = alert["number"]
    assert (event["actor"], event["data"]["number"], event["data"]["note"]) == ("admin", number, "a lower rate")
    env = {**os.environ, "MUSTER_HOME": str(server.home)}
    assert "admin looks after it" in call_muster("alerts", "show", str(number), env=env).stdout
    assert call_muster("alerts", "ack", str(number), "--note", "a smaller batch", env=env).returncode == 0
    assert server.get(f"/v1/alerts/{number}")["alert"]["ack_note"] == "a smaller batch"
    none = call_muster("alerts", "ack", "9007199254740000", env=env)
    assert (none.returncode, "No alert 9007199254740000 that you can see fires" in none.stderr) == (1, True)


def test_rules_say_what_they_watch_and_have(page: Page, alert: dict[str, Any]) -> None:
    page.goto("/alerts?tab=rules")
    rule = page.get_by_role("row").filter(has_text=alert["rule"])
    expect(rule).to_contain_text("firing")
    expect(rule).to_contain_text("above 0")
    expect(page.get_by_role("row").filter(has_text="node-out")).to_contain_text("quiet")


def test_a_viewer_sees_it_and_may_not_silence(browser: Browser, server: LiveServer, alert: dict[str, Any]) -> None:
    with server.http() as root:
        root.put("/v1/projects/default/members/watcher", json={"role": "viewer"})
        token = root.post("/v1/tokens", json={"user": "watcher"}).json()["token"]
    with signed_in(browser, server, token) as page:
        page.goto(f"/alerts/{alert['number']}")
        expect(page.get_by_role("region", name="Runbook")).to_be_visible()
        expect(page.get_by_role("button", name="Silence…")).to_have_count(0)
        expect(page.get_by_role("button", name="Acknowledge…")).to_have_count(0)
        with server.http(token) as http:
            assert http.post(f"/v1/alerts/{alert['number']}/acknowledge", json={}).status_code == 403
        page.goto("/alerts")
        expect(page.get_by_role("link", name="not-finite").first).to_be_visible()
        expect(page.get_by_role("button", name="Silence…")).to_have_count(0)
        page.goto("/alerts/9007199254740000")
        expect(page.get_by_role("alert")).to_contain_text("There is no alert")


def test_alerts_read_well(browser: Browser, server: LiveServer, alert: dict[str, Any]) -> None:
    shown = {"/alerts": "not-finite", "/alerts?tab=silences": "Nothing is silenced", "/alerts?tab=rules": "node-out"}
    reads_well(browser, server, {**shown, f"/alerts/{alert['number']}": "Facts"})
