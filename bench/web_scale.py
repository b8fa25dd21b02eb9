"""The web page over large worlds: how long until each page can be used, and how smoothly it scrolls.

Worlds are made through the platform's own doors: jobs are submitted, a job prints the output and reports the points, a
program asks for trials. The 1,000 runs alone are written into the database, as `track_search.py` does. The worlds:
100,000 queued jobs over 10,000 nodes; a run of ten million points; an output of 1 GB; a study of 50,000 trials; 1,000
runs with 100 metrics. Each has a server of its own. Times are those of the page's clock, from the beginning of a
navigation, with an empty cache; frames are counted in the browser's trace. The worlds take half an hour to make, most
of it the trials: `--worlds FOLDER` keeps them there and uses those that are there. With `--only` the results of the
other worlds stay as they were. `--small` makes small worlds to see that it works, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.sync_api import Browser, Page

from _browser import chromium, frames_per_second, load_ms, opened, summed_up
from _machine import RESULTS, write
from _server import serving
from muster.client import Client
from muster.core.errors import MusterError
from track_search import fill, open_record_db

BATCH: Final = 2000  # jobs that one request submits
ZOOMS: Final = 40
SETTLED: Final = 90  # seconds
GOALS: Final = {
    "queue": 1000, "cluster": 1000, "curve": 300, "zoom_p95": 150, "search": 2000, "frames_per_second": 50,
}  # fmt: skip
TRAIN: Final = """
import sys
from muster import runtime
for step in range(int(sys.argv[1])):
    runtime.report(step=step, loss=4 / (1 + step / 1e5) + step * 2654435761 % 1000 / 5000)
"""
TALK: Final = """
import sys
left, step = int(sys.argv[1]), 0
while left > 0:
    text = "".join(
        f"12:{at // 600 % 60:02}:{at // 10 % 60:02} INFO train: step {at} loss {4 / (1 + at / 1e5):.6f} "
        f"tokens/s {20000 + at * 7919 % 9973} grad norm {at * 104729 % 9999 / 1e4:.4f}\\n"
        for at in range(step, step + 5000))
    sys.stdout.write(text)
    left, step = left - len(text), step + 5000
print("WARNING a needle in it", flush=True)
"""


@dataclass(frozen=True)
class Sizes:
    nodes: int = 10_000
    jobs: int = 100_000
    points: int = 10_000_000
    output: int = 10**9
    trials: int = 50_000
    runs: int = 1000
    loads: int = 9


SMALL: Final = Sizes(nodes=50, jobs=2000, points=20_000, output=2 * 10**6, trials=30, runs=40, loads=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small worlds, and no results are written")
    parser.add_argument("--only", nargs="+", choices=sorted(WORLDS), default=sorted(WORLDS))
    parser.add_argument("--worlds", type=Path, metavar="FOLDER", help="keep the worlds there, and use those that are")
    given = parser.parse_args()
    sizes = SMALL if given.small else Sizes()
    result: dict[str, Any] = {"goals": GOALS, "sizes": vars(sizes)}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name in given.only:
            home = (given.worlds or Path(folder)) / name
            home.mkdir(parents=True, exist_ok=True)
            begun = os.getloadavg()[0]
            found = WORLDS[name](home, browser, sizes)
            result[name] = {**found, "load": [begun, os.getloadavg()[0]]}
            print(f"{name}: {result[name]}", flush=True)
    if not given.small:
        write("web_scale", {**_before(result), **result})


def _before(result: dict[str, Any]) -> dict[str, Any]:
    """What was measured earlier of worlds of these sizes."""
    path = RESULTS / "web_scale.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found if found.get("sizes") == result["sizes"] else {}


def made(home: Path, make: Callable[[], str]) -> str:
    """The name of what a world has, which is made if it is not there."""
    kept = home / "made"
    if not kept.exists():
        kept.write_text(make())
    return kept.read_text()


def queue(home: Path, browser: Browser, sizes: Sizes) -> dict[str, Any]:
    """One node is drained and the first job wants them all, so that everything behind it waits."""
    (home / "config.toml").write_text(_settings(sizes.nodes))
    (home / "policy.yaml").write_text(_FIFO)
    with serving(home) as muster:

        def make() -> str:
            drain = {"health": "draining", "reason": "so that everything waits"}
            muster.post("/v1/nodes/local-0/health", json=drain).raise_for_status()
            job = {"name": "head", "run": "true", "workdir": str(home), "gpus": 1}
            _submit(home, [{**job, "num_nodes": sizes.nodes, "gpus": 8}])
            for begin in range(0, sizes.jobs, BATCH):
                some = range(begin, min(begin + BATCH, sizes.jobs))
                _submit(home, [{**job, "name": "more", "envs": {"LR": f"{random.random():.6f}"}} for _ in some])
            return "head"

        made(home, make)
        time.sleep(SETTLED)  # a server that has begun plans for all of them, and looks at them once
        return {
            "queue": look(browser, muster, "/queue", "section[aria-label=Jobs] tbody tr.row-of-table", sizes.loads),
            "cluster": look(browser, muster, "/cluster", "main canvas", sizes.loads),
        }


def curve(home: Path, browser: Browser, sizes: Sizes) -> dict[str, Any]:
    """The first picture of a run, and zooms by the mouse: from its release until the chart shows the range."""
    with serving(home) as muster:
        run = made(home, lambda: ran(home, TRAIN, str(sizes.points)))
        until = time.monotonic() + 600
        while points_of(muster, run) < sizes.points and time.monotonic() < until:
            time.sleep(1)
        picture = look(browser, muster, f"/runs/{run}", "article[aria-label=loss] canvas", sizes.loads, scroll=False)
        with opened(browser, muster) as page:
            load_ms(page, str(muster.base_url.join(f"/runs/{run}")), "article[aria-label=loss] canvas")
            zooms = [zoom_ms(page, muster, run) for _ in range(max(2, ZOOMS if sizes is not SMALL else 3))]
        return {"points": points_of(muster, run), "picture": picture, "zoom": summed_up(zooms)}


def zoom_ms(page: Page, muster: httpx.Client, run: str) -> float:
    """A range of any width is dragged in the whole curve."""
    shown = "article[aria-label=loss] [role=img]"
    page.get_by_role("article", name="loss", exact=True).locator(".u-over").dblclick()
    page.wait_for_function("!location.search.includes('from=')")
    page.wait_for_timeout(500)
    box = page.locator("article[aria-label=loss] .u-over").bounding_box()
    assert box is not None
    width = random.choice([0.5, 0.2, 0.05, 0.01])
    begin = box["x"] + box["width"] * random.uniform(0.02, 0.97 - width)
    y = box["y"] + box["height"] / 2
    page.mouse.move(begin, y)
    page.mouse.down()
    page.mouse.move(begin + max(6.0, width * box["width"]), y, steps=3)
    page.evaluate(
        """shown => {
            const before = document.querySelector(shown).getAttribute('aria-label');
            window.zoomed = new Promise(done => addEventListener('mouseup', () => {
                const begun = performance.now();
                const look = () => {
                    const now = document.querySelector(shown)?.getAttribute('aria-label');
                    if (now && now !== before) requestAnimationFrame(() => done(performance.now() - begun));
                    else requestAnimationFrame(look);
                };
                look();
            }, {once: true, capture: true}));
        }""",
        shown,
    )
    page.mouse.up()
    return float(page.evaluate("window.zoomed"))


def log(home: Path, browser: Browser, sizes: Sizes) -> dict[str, Any]:
    """Searches in the whole output: for what its last line has, for what nothing has, and for what is everywhere."""
    (home / "config.toml").write_text("log_limit_max = '2GB'\n")
    with serving(home) as muster:
        run = made(home, lambda: ran(home, TALK, str(sizes.output), log_limit="2GB"))
        result: dict[str, Any] = {}
        texts = {"rare": "needle", "missing": "no such thing", "everywhere": "step"}
        with opened(browser, muster) as page:
            for name, text in texts.items():
                found: list[float] = []
                for _ in range(sizes.loads):
                    load_ms(page, str(muster.base_url.join(f"/runs/{run}?tab=logs")), "input[type=search]")
                    found.append(search_ms(page, text))
                result[name] = summed_up(found)
        sizes_ = muster.get(f"/v1/jobs/{run}/logs/search", params={"text": "needle", "limit": 1}).json()
        return {**result, "bytes": sizes_["total"]}


def search_ms(page: Page, text: str) -> float:
    """From the click until the search says that it is over."""
    page.get_by_role("searchbox", name="Search the whole output").fill(text)
    page.evaluate(
        """() => {
            window.searched = new Promise(done => addEventListener('click', () => {
                const begun = performance.now();
                const look = () => {
                    const said = document.querySelector('section[aria-label=Found] [role=status]')?.textContent ?? '…';
                    if (!said.includes('…') && said.includes('searched')) done(performance.now() - begun);
                    else requestAnimationFrame(look);
                };
                look();
            }, {once: true, capture: true}));
        }"""
    )
    page.get_by_role("button", name="Search", exact=True).click()
    return float(page.evaluate("window.searched"))


def study(home: Path, browser: Browser, sizes: Sizes) -> dict[str, Any]:
    """A study whose trials programs run themselves: each asks for one, and tells how it ended, eight at a time."""
    text = (
        "study: wide\nspace: {lr: {float: [0, 1]}, wd: {float: [0, 1]}, depth: {int: [1, 9]}}\n"
        f"objective: {{minimize: loss}}\nsearch: random\nbudget: {{trials: {sizes.trials}, parallel: 8}}\n"
    )
    with serving(home) as muster:

        def trial(ref: str) -> None:
            who = {"asker": f"thread-{threading.get_ident()}"}  # who asks again is given the trial that it has
            asked = muster.post(f"/v1/studies/{ref}/ask", json=who).raise_for_status().json()
            value = (asked["params"]["lr"] - 0.3) ** 2 + asked["params"]["wd"] / 9
            told = {"number": asked["number"], "outcome": "complete", "values": [value]}
            muster.post(f"/v1/studies/{ref}/tell", json=told).raise_for_status()

        def make() -> str:
            ref = str(muster.post("/v1/studies", json={"text": text}).raise_for_status().json()["id"])
            with ThreadPoolExecutor(8) as pool:
                for _ in pool.map(trial, [ref] * sizes.trials):
                    pass
            return ref

        ref = made(home, make)
        muster.get(f"/v1/studies/{ref}", timeout=300).raise_for_status()  # a server that has begun reads it once
        return {"study": look(browser, muster, f"/sweeps/{ref}", "main canvas, main tbody tr", sizes.loads)}


def runs(home: Path, browser: Browser, sizes: Sizes) -> dict[str, Any]:
    def make() -> str:
        with open_record_db(f"sqlite:///{home}/muster.db") as db:
            fill(db, sizes.runs)
        return "runs"

    made(home, make)
    with serving(home) as muster:
        return {"runs": look(browser, muster, "/runs", "main tbody tr.row-of-table", sizes.loads)}


def plain(home: Path, browser: Browser, sizes: Sizes) -> dict[str, Any]:
    """Frames of pages without a script, in the same browser: what the machine can draw at most."""
    cells = "".join(f"<td>cell {column}</td>" for column in range(10))
    table = f"<table>{f'<tr>{cells}</tr>' * 3000}</table>"
    shown = {
        "text": "<p>a line of text</p>" * 20_000,
        "table": table,
        "table_in_a_box": f'<div style="height: 600px; overflow: auto">{table}</div>',
    }
    found = {}
    for name, html in shown.items():
        with opened(browser) as page:
            page.set_content(html)
            found[name] = {"frames_per_second": frames_per_second(browser, page)}
    return found


def look(
    browser: Browser, muster: httpx.Client, path: str, shown: str, loads: int, scroll: bool = True
) -> dict[str, Any]:
    """Loads of a page, each in a new profile; then it is scrolled."""
    found: list[float] = []
    result: dict[str, Any] = {}
    for at in range(loads):
        with opened(browser, muster) as page:
            found.append(load_ms(page, str(muster.base_url.join(path)), shown))
            if scroll and at == loads - 1 and (frames := frames_per_second(browser, page)):
                result["frames_per_second"] = frames  # none where all of it is in the window
    return {**summed_up(found), **result}


def ran(home: Path, program: str, *words: str, **given: Any) -> str:
    """Runs a program as a job to its end, on the server of this home."""
    (home / "program.py").write_text(program)
    command = " ".join([sys.executable, "program.py", *words])
    with Client(home=home) as client:
        job = client.submit(
            {"name": "large", "run": command, "workdir": str(home), "hang": "off", **given}, snapshot=False
        )
        phase = client.wait(job.id).phase
    if phase != "succeeded":
        raise SystemExit(f"the job that makes the world {phase}: see its output in {home}")
    return job.id


def _submit(home: Path, jobs: list[dict[str, Any]]) -> None:
    with Client(home=home) as client:
        refused = [one for one in client.submit_many(jobs, snapshot=False) if isinstance(one, MusterError)]
    if refused:
        raise refused[0]


def points_of(muster: httpx.Client, run: str) -> int:
    found = muster.get(f"/v1/runs/{run}/metrics").raise_for_status().json()["series"]
    return next((int(one["points"]) for one in found if one["name"] == "loss"), 0)


def _settings(nodes: int) -> str:
    return f"nodes = {nodes}\naccelerators = 'H100:8'\ncpus = 64\npolicy = 'policy.yaml'\n"


# Nobody passes the first in line, so that what is queued stays queued.
_FIFO: Final = "defaults: {order: fifo, backfill: none, preempts: false}\n"
WORLDS: Final[dict[str, Callable[[Path, Browser, Sizes], dict[str, Any]]]] = {
    "queue": queue, "curve": curve, "log": log, "study": study, "runs": runs, "plain": plain,
}  # fmt: skip


if __name__ == "__main__":
    main()
