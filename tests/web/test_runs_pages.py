"""The page of runs and the comparison, in a browser over a real server: queries, columns, groups, baselines, views."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from live import LiveServer, call_muster
from web_kit import reads_well, signed_in

TRAIN = """
import os
from muster import runtime

lr, seed = float(os.environ["LR"]), int(os.environ["SEED"])
runtime.params(lr=lr, seed=seed)
for step in range(1, 21):
    runtime.report(step=step, shown_loss=lr * 10 + seed / 100 + 1 / step)
"""
MINE = "name ~ shown-"


@pytest.fixture(scope="module")
def runs(server: LiveServer) -> dict[str, str]:
    """Ids of four runs by `lr/seed`; their metric is `shown_loss`."""
    folder = server.home / "shown"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    given = {
        f"{lr}/{seed}": server.submit(
            "python train.py", name=f"shown-{at}", workdir=str(folder), envs={"LR": lr, "SEED": str(seed)},
            tags={"shown": f"tag-{seed}"}, resources={"cpus": 1},
        )["id"]
        for at, (lr, seed) in enumerate([("0.1", 1), ("0.1", 2), ("0.001", 1), ("0.001", 2)])
    }  # fmt: skip
    for run in given.values():
        assert server.wait(run)["phase"] == "succeeded"
    return given


@pytest.fixture
def shown(page: Page, runs: dict[str, str]) -> Page:
    expect.set_options(timeout=60_000)
    page.goto(f"/runs?q={MINE}")
    expect(row(page, runs["0.1/1"])).to_be_visible()
    return page


def row(page: Page, run: str) -> Locator:
    return page.get_by_role("region", name="Runs").get_by_role("row").filter(has=page.get_by_role("link", name=run))


def ask(page: Page, query: str) -> None:
    box = page.get_by_role("combobox", name="Query")
    box.fill(query)
    box.press("Enter")


def test_a_mistake_is_shown_below_its_place_with_a_hint(shown: Page) -> None:
    ask(shown, "metrics.shown_loss < 2 and lrr = 3")
    mistake = shown.locator(".mistake")
    line, carets = mistake.locator("pre").inner_text().rstrip().split("\n")
    assert line.index("lrr") == carets.index("^^^")
    expect(mistake).to_contain_text("There is no field 'lrr'.")
    expect(mistake).to_contain_text("params.lrr")
    ask(shown, f"{MINE} and metrics.shown_los < 2")
    expect(shown.get_by_text("did you mean `metrics.shown_loss`?")).to_be_visible()


def test_completion_offers_fields_operators_and_values(shown: Page, runs: dict[str, str]) -> None:
    box = shown.get_by_role("combobox", name="Query")
    box.fill("")
    box.press_sequentially("shown_lo")
    expect(shown.get_by_role("option", name=re.compile("metrics.shown_loss"))).to_be_visible()
    box.press("Tab")
    expect(box).to_have_value("metrics.shown_loss ")
    expect(shown.get_by_role("option", name="not in")).to_be_visible()
    box.press_sequentially("< 0.5 and ph")
    expect(shown.get_by_role("option", name="phase", exact=True)).to_be_visible()
    box.press("ArrowDown")
    box.press("Enter")
    expect(box).to_have_value("metrics.shown_loss < 0.5 and phase ")
    box.press_sequentially("= succ")
    box.press("Tab")
    box.press("Enter")
    expect(row(shown, runs["0.1/1"])).to_have_count(0)
    expect(row(shown, runs["0.001/2"])).to_be_visible()
    assert "q=metrics.shown_loss" in shown.url


def test_order_and_columns_survive_a_reload(shown: Page, runs: dict[str, str]) -> None:
    shown.get_by_role("button", name="shown_loss").click()
    first = shown.get_by_role("region", name="Runs").get_by_role("row").nth(1)
    expect(first).to_contain_text(runs["0.1/2"])
    shown.get_by_role("button", name="shown_loss").click()
    expect(first).to_contain_text(runs["0.001/1"])
    shown.get_by_role("button", name="Columns").click()
    shown.get_by_role("textbox", name="Find a column").fill("tags.sho")
    shown.get_by_role("checkbox", name="shown", exact=True).check()
    expect(first).to_contain_text("tag-1")
    shown.reload()
    expect(first).to_contain_text(runs["0.001/1"])
    expect(first).to_contain_text("tag-1")
    expect(shown.get_by_role("columnheader", name="shown_loss")).to_have_attribute("aria-sort", "ascending")


def test_baselines_stand_on_top_and_numbers_say_how_far_they_are(shown: Page, runs: dict[str, str]) -> None:
    shown.get_by_label(f"Select {runs['0.001/1']}").check()
    shown.get_by_role("button", name="Pin as baseline").click()
    first = shown.get_by_role("region", name="Runs").get_by_role("row").nth(1)
    expect(first).to_contain_text("baseline")
    expect(row(shown, runs["0.1/1"])).to_contain_text("×100")  # its learning rate
    shown.reload()
    expect(first).to_contain_text("baseline")
    shown.get_by_label(f"Unpin {runs['0.001/1']}").click()
    expect(shown.get_by_text("baseline")).to_have_count(0)


def test_groups_have_means_and_lead_to_their_runs(shown: Page, runs: dict[str, str]) -> None:
    shown.get_by_label("Group by").select_option("params.lr")
    groups = shown.get_by_role("region", name="Groups").get_by_role("row")
    expect(groups).to_have_count(3)  # with the header
    expect(groups.filter(has_text="compare").first).to_contain_text("2")
    shown.get_by_role("button", name="0.001", exact=True).click()
    expect(row(shown, runs["0.001/2"])).to_be_visible()
    expect(row(shown, runs["0.1/2"])).to_have_count(0)
    shown.go_back()
    expect(groups).to_have_count(3)


def test_two_runs_are_compared(shown: Page, runs: dict[str, str]) -> None:
    for one in ("0.1/1", "0.001/1"):
        shown.get_by_label(f"Select {runs[one]}").check()
    shown.get_by_role("link", name="Compare 2 runs").click()
    differs = shown.get_by_role("region", name="Parameters that differ")
    expect(differs.get_by_role("row").filter(has_text="lr")).to_contain_text("0.1")
    expect(differs.get_by_role("row").filter(has_text="lr")).to_contain_text("0.001")
    expect(differs.get_by_role("row").filter(has_text="seed")).to_have_count(0)
    chart = shown.get_by_role("img", name="shown_loss of 2 runs by step")
    expect(chart.locator("canvas")).to_be_visible()
    expect(shown.get_by_role("region", name="Values").get_by_role("row").filter(has_text="shown_loss")).to_be_visible()
    shown.get_by_label("Axis").select_option("time")
    expect(shown.get_by_role("img", name="shown_loss of 2 runs by time").locator("canvas")).to_be_visible()


def test_sixty_runs_that_differ_in_sixty_parameters_are_compared(page: Page, server: LiveServer) -> None:
    runs = []
    for at in range(60):
        params = {f"a.parameter.with.a.long.name.{of}": str(at * of) for of in range(60)}
        made = {"name": f"one-of-many-runs-whose-name-is-rather-long-{at}", "params": params, "project": "default"}
        runs.append(server.post("/v1/runs", made)["id"])
    page.goto(f"/compare?runs={'%2C'.join(runs)}")
    expect(page.get_by_role("heading", name="Compare 60 runs")).to_be_visible()
    differs = page.get_by_role("region", name="Parameters that differ")
    expect(differs.get_by_role("row")).to_have_count(41)  # with the header; the others are a click away
    page.get_by_role("button", name="19 more").click()
    expect(differs.get_by_role("row")).to_have_count(60)  # one of them is 0 in all


def test_groups_of_runs_are_tested(page: Page, runs: dict[str, str]) -> None:
    page.goto(f"/compare?runs={','.join(runs.values())}&metric=shown_loss&curves=groups")
    matters = page.get_by_label("Does it matter")
    expect(matters.get_by_role("row").filter(has_text="best mean")).to_contain_text("lr=0.001")
    expect(matters.get_by_text("differs", exact=True)).to_be_visible()
    expect(page.get_by_text("A line is the mean of a group's runs")).to_be_visible()


def test_changed_lines_of_the_code_are_text(
    page: Page, server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ids = []
    for text in ("print(1)", "print('<b>2</b>')"):
        Path("main.py").write_text(f"{text}\n")
        Path("job.yaml").write_text("name: coded\nworkdir: .\nrun: python main.py\nresources: {cpus: 1}\n")
        done = call_muster("submit", "job.yaml", "--json", env={**os.environ, "MUSTER_HOME": str(server.home)})
        assert done.returncode == 0, done.stderr
        found = re.search(r'"id": ?"([^"]+)"', done.stdout)
        assert found is not None, done.stdout
        ids.append(found[1])
    for one in ids:
        server.wait(one)
    page.goto(f"/compare?runs={','.join(ids)}")
    page.get_by_role("button", name="Show the changed lines").click()
    expect(page.get_by_role("region", name=f"Changed lines of {ids[1]}")).to_contain_text("+print('<b>2</b>')")


def test_a_view_is_saved_opened_by_its_address_and_removed(
    shown: Page, browser: Browser, server: LiveServer, runs: dict[str, str]
) -> None:
    ask(shown, f"{MINE} and params.lr = 0.001")
    expect(row(shown, runs["0.1/1"])).to_have_count(0)
    shown.get_by_role("button", name="Save view").click()
    shown.get_by_role("textbox", name="Name").fill("low-rates")
    shown.get_by_role("button", name="Save", exact=True).click()
    expect(shown).to_have_url(re.compile(r"\?view=low-rates$"))
    with signed_in(browser, server) as other:
        other.goto("/runs?view=low-rates")
        expect(row(other, runs["0.001/1"])).to_be_visible()
        expect(row(other, runs["0.1/1"])).to_have_count(0)
        other.goto("/runs?view=no-such")
        expect(other.get_by_text("There is no saved view “no-such”")).to_be_visible()
    shown.get_by_role("button", name="Remove view").click()
    shown.get_by_role("button", name="Remove", exact=True).click()
    expect(shown.get_by_role("button", name="Remove view")).to_have_count(0)
    expect(row(shown, runs["0.001/1"])).to_be_visible()


def test_a_new_run_appears_by_itself(shown: Page, server: LiveServer) -> None:
    made = server.submit("true", name="shown-later", resources={"cpus": 1})["id"]
    expect(row(shown, made)).to_be_visible()
    expect(row(shown, made)).to_contain_text("succeeded")


def test_the_pages_read_well(browser: Browser, server: LiveServer, runs: dict[str, str]) -> None:
    one, compared = runs["0.1/1"], ",".join(runs.values())
    mistake = "There is no field 'lrr'."
    reads_well(
        browser,
        server,
        {
            f"/runs?q={MINE}&pin={one}": "baseline",
            f"/runs?q={MINE}&group=params.lr": "then lowest to highest",
            "/runs?q=lrr%20%3D%203": mistake,
            f"/compare?runs={compared}&all=1": "best mean",
        },
    )
