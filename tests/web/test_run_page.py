"""The page of a run: curves over a restart, output with search and follow, actions, details, logbook and shares."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from live import PATIENCE, LiveServer, live_server, until
from muster.runtime import png
from web_kit import opened, shown_reads_well, signed_in

expect.set_options(timeout=PATIENCE * 1000)  # a busy machine takes longer than the five seconds of Playwright

# Two attempts: the first ends with an error at step 60, the second begins again at step 40.
TRAIN = """
import os, sys
from muster import runtime

first = os.environ["MUSTER_ATTEMPT"] == "1"
runtime.params(lr=0.001, model={"dim": 64})
runtime.data("c4-en", "v3")
for step in range(*((0, 61) if first else (40, 120))):
    runtime.report(step=step, loss=4 / (1 + step), tokens=step * 512.0)
    if step % 10 == 0:
        runtime.log({"val/loss": 5 / (1 + step)}, step)
        print(f"step {step} of {'the first' if first else 'the second'}", flush=True)
if first:
    print("before it \\x1b[31mneedle\\x1b[0m after it", flush=True)
    print("the line that follows", flush=True)
    sys.exit(17)
runtime.table("errors", 100, ["truth", "guess"], [["cat", "dog"]])
runtime.image("sample", 100, "sample.png")
runtime.histogram("grad", 100, [1.0, 2.0, 2.0, 3.0])
open("model.bin", "wb").write(b"weights")
runtime.artifact("model.bin")
"""
GOING = """
import sys, time
from pathlib import Path
from typing import Any
from muster import runtime

def wait_for_the_go():
    while not Path(sys.argv[1]).exists():
        time.sleep(0.05)

runtime.report(step=1, loss=1.0)
print("waits for the go", flush=True)
wait_for_the_go()
print("went on", flush=True)
while True:
    if runtime.should_save():
        with runtime.checkpoint(1) as folder:
            (folder / "state").write_text("whole")
    time.sleep(0.05)
"""

PRICES = "currency: USD\npools: {local: [{cpu: 2000}]}\n"
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@dataclass
class Shop:
    server: LiveServer
    done: str  # a run of two attempts
    going: str  # one that runs until it is stopped
    go: Path  # what it waits for


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with live_server(tmp_path_factory.mktemp("run-page") / "muster") as server:
        (server.home / "train.py").write_text(TRAIN)
        (server.home / "sample.png").write_bytes(png.encode(png.Raster(2, 2, 1, bytes([0, 90, 180, 255]))))
        (server.home / "going.py").write_text(GOING)
        with server.http() as http:
            http.put("/v1/cost/prices", json={"text": PRICES}).raise_for_status()
        retry = {"max_restarts": 1, "on": ["error", "worker"], "backoff": "0s"}
        done = server.submit(
            f"{sys.executable} train.py", name="trained", purpose="the baseline", retry=retry, resources={"cpus": 1}
        )["id"]
        server.wait(done, "succeeded")
        go = server.home / "go"
        going = server.submit(f"{sys.executable} going.py {go}", name="going")["id"]
        server.wait(going, "running")
        yield Shop(server, done, going, go)


@pytest.fixture
def page(browser: Browser, shop: Shop) -> Iterator[Page]:
    with signed_in(browser, shop.server) as found:
        yield found


def chart(page: Page, name: str) -> Locator:
    found = page.get_by_role("article", name=name, exact=True)
    expect(found.locator("canvas")).to_be_visible()
    return found


def asks(page: Page, name: str, *words: str) -> Any:
    return page.expect_request(lambda one: f"/metrics/{name}?" in one.url and all(word in one.url for word in words))


def drag(page: Page, canvas: Locator, begin: float, end: float) -> None:
    box = canvas.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + (begin + end) / 2 * box["width"], y, steps=3)
    page.mouse.move(box["x"] + end * box["width"], y, steps=3)
    page.mouse.up()


def test_curves_of_two_attempts_are_drawn_and_say_their_values(page: Page, shop: Shop) -> None:
    page.goto(f"/runs/{shop.done}")
    expect(page.get_by_role("heading", name="trained")).to_be_visible()
    state = page.get_by_role("region", name="State")
    expect(state).to_contain_text("succeeded")
    expect(state).to_contain_text("the baseline")
    loss = chart(page, "loss")
    expect(loss.get_by_role("img", name="loss by step, 120 points")).to_be_visible()
    loss.locator(".u-over").hover()
    expect(loss.locator("figcaption")).to_have_text(re.compile(r"step \d+, .*, attempt [12]: [\d.]+"))
    expect(page.get_by_text("what a restart went back behind is faint")).to_be_visible()
    chart(page, "val/loss")
    page.get_by_role("searchbox", name="Filter by name").fill("val")
    expect(page).to_have_url(re.compile(r"q=val"))
    expect(page.get_by_role("article")).to_have_count(1)


def test_zoom_is_in_the_address_and_asks_for_the_range(page: Page, shop: Shop) -> None:
    page.goto(f"/runs/{shop.done}")
    loss = chart(page, "loss")
    with asks(page, "loss", "start=", "stop="):
        drag(page, loss.locator(".u-over"), 0.3, 0.6)
    expect(page).to_have_url(re.compile(r"from=[\d.]+&to=[\d.]+"))
    chart(page, "val/loss")
    page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Zoom in").click()
    expect(page).to_have_url(re.compile(r"from="))
    loss.locator(".u-over").dblclick()
    expect(page).not_to_have_url(re.compile(r"from="))
    with asks(page, "loss", "smooth=0.9"):
        page.goto(f"/runs/{shop.done}?smooth=0.9&x=by:tokens&log=1&large=loss")
    loss = chart(page, "loss")
    expect(loss.get_by_role("img", name=re.compile("loss by tokens"))).to_be_visible()
    loss.locator(".u-over").hover()
    expect(loss.locator("figcaption")).to_have_text(re.compile(r"tokens [\d,]+, step \d+.*smoothed [\d.]+"))
    page.get_by_label("along").select_option("cost")
    expect(page).to_have_url(re.compile("x=cost"))
    loss = chart(page, "loss")
    expect(loss.get_by_role("img", name=re.compile(r"loss by cost \(USD\)"))).to_be_visible()
    loss.locator(".u-over").hover()
    expect(loss.locator("figcaption")).to_have_text(re.compile(r"cost \(USD\) [\d.,]+, step \d+"))


def test_a_point_of_a_curve_leads_to_what_was_printed_then(page: Page, shop: Shop) -> None:
    page.goto(f"/runs/{shop.done}")
    chart(page, "loss").locator(".u-over").click()
    expect(page).to_have_url(re.compile(r"tab=logs&at=[\d.]+&step=\d+"))
    expect(page.get_by_role("log").locator(".target")).to_be_visible()
    page.go_back()
    chart(page, "loss")


def test_output_is_searched_with_its_context_and_shown_in_place(page: Page, shop: Shop) -> None:
    page.goto(f"/runs/{shop.done}?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("step 110 of the second")
    expect(log).to_contain_text("attempt 2")
    page.get_by_role("searchbox", name="Search the whole output").fill("NEEDLE")
    page.get_by_role("button", name="Search", exact=True).click()
    found = page.get_by_role("region", name="Found")
    expect(found.locator("mark")).to_have_text("needle")
    expect(found).to_contain_text("step 60 of the first")
    expect(found).to_contain_text("the line that follows")
    found.get_by_role("button", name="Show in the output").click()
    expect(log.locator(".target")).to_contain_text("before it needle after it")
    page.goto(f"/runs/{shop.done}?tab=logs&find=step+[79]0&re=1&attempt=2")
    expect(found.locator("mark")).to_have_text(["step 70", "step 90"])
    page.goto(f"/runs/{shop.done}?tab=logs&find=(&re=1")
    expect(found.get_by_role("alert")).to_contain_text("not valid")


def test_a_running_job_is_followed_looked_into_stopped_and_resumed(page: Page, shop: Shop) -> None:
    page.goto(f"/runs/{shop.going}?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("waits for the go")
    page.get_by_role("button", name="Stacks").click()
    stacks = page.get_by_role("dialog", name=re.compile("Stacks of"))
    expect(stacks).to_contain_text("wait_for_the_go")
    stacks.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Profile").click()
    profile = page.get_by_role("dialog", name=re.compile("Profile of"))
    profile.get_by_label("Look for").select_option("5")
    profile.get_by_role("button", name="Begin").click()
    expect(profile.get_by_role("status")).to_contain_text(re.compile("samples of 1 rank"))
    expect(profile.get_by_role("region", name="Calls").get_by_role("button", name="wait_for_the_go")).to_be_visible()
    expect(profile.get_by_role("table")).to_contain_text("wait_for_the_go")
    shown_reads_well(page, "a profile")
    profile.get_by_role("button", name="Close").click()
    saving = page.get_by_role("dialog", name=re.compile("Save .* now"))
    page.get_by_role("button", name="Save now").click()
    expect(saving).to_contain_text("has not said that it can save")
    shown_reads_well(page, "saving, refused")
    saving.get_by_role("button", name="Close").click()
    shop.go.touch()
    expect(log).to_contain_text("went on")
    until(lambda: shop.server.get(f"/v1/jobs/{shop.going}")["can_save"], "the program to look for requests")
    page.reload()
    page.get_by_role("button", name="Save now").click()
    saving.get_by_role("button", name="Save it").click()
    expect(saving).to_contain_text("It saved step 1")
    shown_reads_well(page, "saving")
    saving.get_by_role("button", name="Close").click()
    state = page.get_by_role("region", name="State")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_label("Kill it now").check()
    shown_reads_well(page, "stopping")
    page.get_by_role("dialog").get_by_role("button", name="Stop it").click()
    expect(state).to_contain_text("stopped")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume it").click()
    expect(state).to_contain_text("running")
    page.get_by_role("button", name="Tags").click()
    page.get_by_role("dialog").get_by_label("Name of tag 1").fill("candidate")
    page.get_by_role("dialog").get_by_label("Value of tag 1").fill("yes")
    shown_reads_well(page, "tags")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(state).to_contain_text("candidate: yes")


def test_a_hidden_tab_hears_nothing_and_goes_on_where_it_was(page: Page, shop: Shop) -> None:
    go = shop.server.home / "later"
    job = shop.server.submit(f"{sys.executable} going.py {go}", name="hidden")["id"]
    page.clock.install()
    page.goto(f"/runs/{job}?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("waits for the go")
    page.evaluate(HIDE, True)
    with page.expect_event("requestfailed", lambda one: "/logs/stream" in one.url):
        page.clock.fast_forward(30_000)
    go.touch()
    with shop.server.http() as http:
        until(lambda: "went on" in http.get(f"/v1/jobs/{job}/logs").text, "what is printed meanwhile")
    expect(log).not_to_contain_text("went on")
    with page.expect_request(lambda one: "/logs/stream" in one.url) as again:
        page.evaluate(HIDE, False)
    assert "after=0" not in again.value.url
    expect(log).to_contain_text("went on")
    assert log.inner_text().count("waits for the go") == 1
    shop.server.post(f"/v1/jobs/{job}/stop", {"force": True})


def test_a_note_marks_its_step(page: Page, shop: Shop) -> None:
    page.goto(f"/runs/{shop.done}?tab=logbook")
    expect(page.get_by_text("the baseline").last).to_be_visible()
    page.get_by_label("Write a note").fill("the loss *falls* <b>here</b>")
    page.get_by_label("at step").fill("30")
    page.get_by_role("button", name="Write it").click()
    entry = page.get_by_role("listitem").filter(has_text="the loss")
    expect(entry).to_contain_text("<b>here</b>")
    entry.get_by_role("link", name="step 30").click()
    expect(page).to_have_url(re.compile(r"from=20&to=40"))
    expect(page.locator(".legend")).to_contain_text("notes")


def test_details_and_hardware(page: Page, shop: Shop) -> None:
    page.goto(f"/runs/{shop.done}?tab=details")
    attempts = page.get_by_role("region", name="Attempts").get_by_role("row")
    expect(attempts).to_have_count(3)
    expect(attempts.nth(1)).to_contain_text("17")
    expect(page.get_by_role("region", name="Parameters").first).to_contain_text("model.dim")
    expect(page.get_by_role("region", name="Job file").first).to_contain_text("purpose: the baseline")
    expect(page.get_by_role("region", name="Lineage").first).to_contain_text("c4-en@v3")
    expect(page.get_by_role("article", name="errors")).to_contain_text("dog")
    expect(page.get_by_role("img", name=re.compile("Histogram of grad: 4 values"))).to_be_visible()
    picture = page.get_by_role("img", name="sample at step 100")
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("naturalWidth", 2)
    with page.expect_download() as download:
        page.get_by_role("link", name="model.bin").click()
    assert download.value.path().read_bytes() == b"weights"
    page.goto(f"/runs/{shop.done}?tab=hardware")
    expect(page.get_by_role("img", name=re.compile("Where the time went: .*training"))).to_be_visible()


def test_a_share_shows_this_run_and_no_other(page: Page, browser: Browser, shop: Shop) -> None:
    page.goto(f"/runs/{shop.done}")
    page.get_by_role("button", name="Share").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Make a link").click()
    link = dialog.locator("code").text_content()
    assert link is not None
    with opened(browser, shop.server) as other:
        other.goto(link)
        chart(other, "loss")
        expect(other.get_by_role("button", name="Note")).to_have_count(0)
        expect(other.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_count(0)
        for tab in ("Logs", "Details", "Logbook"):
            other.get_by_role("link", name=tab, exact=True).click()
            expect(other.get_by_text(re.compile("step 110 of|model.dim|the baseline")).last).to_be_visible()
            expect(other.get_by_role("alert")).to_have_count(0)
        other.goto(f"/runs/{shop.going}")
        expect(other.get_by_role("alert")).to_be_visible()


def test_who_may_only_read_is_offered_nothing_else(browser: Browser, shop: Shop) -> None:
    token = shop.server.post("/v1/tokens", {"user": "auditor", "superuser": True, "role": "viewer"})["token"]
    with signed_in(browser, shop.server, token) as page:
        page.goto(f"/runs/{shop.going}")
        expect(page.get_by_role("region", name="State")).to_contain_text("default")
        for name in ("Stop", "Save now", "Resume", "Stacks", "Profile", "Note", "Tags", "Share"):
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


@pytest.mark.parametrize("tab", ["curves", "logs", "hardware", "details", "logbook"])
def test_it_is_readable_by_everybody_and_on_a_phone(browser: Browser, shop: Shop, tab: str) -> None:
    with signed_in(browser, shop.server, viewport={"width": 360, "height": 740}) as page:
        page.goto(f"/runs/{shop.done}?tab={tab}")
        expect(page.get_by_role("region", name="State")).to_be_visible()
        landmark = {"curves": "img", "logs": "log", "hardware": "img", "details": "table", "logbook": "listitem"}[tab]
        expect(page.get_by_role(landmark).first).to_be_visible()  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        wrong = [
            (one["id"], [node["html"] for node in one["nodes"]])
            for one in Axe().run(page).response["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert not wrong, wrong
