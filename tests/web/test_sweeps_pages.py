"""The pages of studies, in a browser over a real server: what came out, brushes, and stop and extend by role."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from live import LiveServer
from web_kit import reads_well, signed_in

TRAIN = """
import os, time
from muster import runtime

lr = float(os.environ["LR"])
for step in range(1, 4):
    runtime.report(step=step, loss=(lr - 0.5) ** 2 + 1 / step)
while os.path.exists("wait") and not runtime.should_stop():
    time.sleep(0.02)
"""
STUDY = """
study: {name}
space: {{LR: {{float: [0, 1]}}, KIND: [a, b]}}
objective: {{minimize: loss}}
search: random
budget: {{trials: {trials}, parallel: 2}}
"""
PROJECT = "swept"


@pytest.fixture(scope="module", autouse=True)
def project(server: LiveServer) -> None:
    expect.set_options(timeout=60_000)
    server.post("/v1/projects", {"name": PROJECT})
    with server.http() as http:  # whoever changes a study: it goes on as the one of whom it is
        http.put(f"/v1/projects/{PROJECT}/members/admin", json={"role": "admin"}).raise_for_status()


def begin(server: LiveServer, name: str, trials: int, wait: bool = False) -> str:
    folder = server.home / name
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    if wait:
        (folder / "wait").touch()
    job = {
        "name": name, "run": "python train.py", "workdir": str(folder), "project": PROJECT, "resources": {"cpus": 1},
    }  # fmt: skip
    made = server.post("/v1/studies", {"text": STUDY.format(name=name, trials=trials), "job": job})
    return str(made["id"])


def token_of(server: LiveServer, user: str, role: str) -> str:
    with server.http() as http:
        http.put(f"/v1/projects/{PROJECT}/members/{user}", json={"role": role}).raise_for_status()
        return str(http.post("/v1/tokens", json={"user": user}).raise_for_status().json()["token"])


@pytest.fixture(scope="module")
def ended(server: LiveServer, project: None) -> str:
    study = begin(server, "spirals", trials=6)
    assert server.wait(study)["phase"] == "succeeded"
    return study


def test_a_study_shows_what_came_out(page: Page, server: LiveServer, ended: str) -> None:
    best = server.get(f"/v1/studies/{ended}")["best"]
    without = server.get(f"/v1/studies/{ended}", importance=False)  # the page has it from the report
    assert (without["best"], without["importance"]) == (best, [])
    page.goto("/sweeps")
    line = page.get_by_role("row").filter(has=page.get_by_role("link", name=ended))
    expect(line).to_contain_text("6 of 6")
    line.get_by_role("link", name=ended).click()
    expect(page.get_by_role("region", name="Best", exact=True)).to_contain_text(f"trial {best['number']}")
    expect(page.get_by_role("img", name="The best loss so far").locator("canvas")).to_be_visible()
    expect(
        page.get_by_role("img", name=re.compile("Parallel coordinates of 6 trials")).locator("canvas")
    ).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("loss by .*6 trials")).locator("canvas")).to_be_visible()
    trials = page.get_by_label("Trials", exact=True).get_by_role("row")
    expect(trials).to_have_count(7)
    expect(trials.nth(1)).to_contain_text("complete")
    trials.nth(1).get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"/runs/{re.escape(best['job'])}$"))


def test_brushes_narrow_the_trials_and_stay_in_the_address(page: Page, server: LiveServer, ended: str) -> None:
    rows = server.get(f"/v1/studies/{ended}/report")["rows"]
    kinds = [row["params"]["KIND"] for row in rows]
    page.goto(f"/sweeps/{ended}?brush=KIND:0:0.5")
    expect(page.get_by_text(f"{kinds.count('a')} of those in the charts")).to_be_visible()
    page.get_by_label("Take away the brush KIND a").click()
    expect(page.get_by_role("button", name="All trials")).to_have_count(0)
    page.get_by_label("Brush an axis").select_option("KIND")
    page.get_by_label("from").fill("0.5")
    expect(page.get_by_text(f"{kinds.count('b')} of those in the charts")).to_be_visible()
    assert "brush=KIND%3A0.5%3A1" in page.url
    chart = page.get_by_role("img", name=re.compile("Parallel coordinates"))
    box = chart.bounding_box()
    assert box is not None
    page.get_by_role("button", name="All trials").click()
    axis = page.locator("svg text.name", has_text="loss").first.bounding_box()
    assert axis is not None
    across = axis["x"] + axis["width"] / 2
    page.mouse.move(across, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(across, box["y"] + 320, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile("brush=loss"))


def test_a_member_stops_and_extends_and_a_viewer_does_not(browser: Browser, server: LiveServer) -> None:
    study = begin(server, "going", trials=40, wait=True)
    with signed_in(browser, server, token_of(server, "vera", "viewer")) as page:
        page.goto(f"/sweeps/{study}")
        expect(page.get_by_role("region", name="Trials by state")).to_contain_text("running")
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        expect(page.get_by_role("button", name="Extend")).to_have_count(0)
    with signed_in(browser, server, token_of(server, "max", "member")) as page:
        page.goto(f"/sweeps/{study}")
        page.get_by_role("button", name="Extend").click()
        page.get_by_label("Trials in all").fill("60")
        page.get_by_role("button", name="Put them in force").click()
        expect(page.get_by_role("region", name="Trials by state")).to_contain_text("of 60")
        page.get_by_role("button", name="Extend").click()
        page.get_by_label("Cost in all").fill("many")
        page.get_by_role("button", name="Put them in force").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        expect(page.get_by_text("It asks for no more trials")).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_contain_text("ended")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()


def test_objectives_have_a_front(page: Page, server: LiveServer) -> None:
    text = (
        "study: fronts\nspace: {lr: {float: [0, 1]}}\nobjective: [{minimize: loss}, {maximize: speed}]\n"
        "search: random\nbudget: {trials: 8}\n"
    )
    study = server.post("/v1/studies", {"text": text, "project": PROJECT})["id"]
    for _ in range(8):
        asked = server.post(f"/v1/studies/{study}/ask")
        lr = asked["params"]["lr"]
        server.post(f"/v1/studies/{study}/tell", {"number": asked["number"], "values": [(lr - 0.3) ** 2, lr]})
    page.goto(f"/sweeps/{study}")
    expect(page.get_by_role("img", name="Pareto front, 8 trials").locator("canvas")).to_be_visible()
    front = len(server.get(f"/v1/studies/{study}/report")["front"])
    expect(page.get_by_role("region", name="Trials of the front").get_by_role("row")).to_have_count(front + 1)


def test_the_pages_read_well(browser: Browser, server: LiveServer, ended: str) -> None:
    reads_well(browser, server, {"/sweeps": ended, f"/sweeps/{ended}?brush=KIND:0:0.5": "within the brushes"})
