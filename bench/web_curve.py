"""First paint, and the time until a curve is drawn, side by side with MLflow's and TensorBoard's pages.

The same runs with the same points are given to each by its own door: a job that reports them, MLflow's client, and the
event files that TensorBoard reads. Each server runs on this machine as its tool starts it. The pages are loaded in the
same Chromium, one tool after the other in each round, every load in a new profile with an empty cache. Times are those
of the page's own clock, from the beginning of the navigation. `--small` has fewer points and writes nothing.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.sync_api import Browser

from _browser import chromium, first_paint_ms, load_ms, opened, percentile
from _machine import write
from _server import serving
from web_scale import TRAIN, points_of, ran

QUIET: Final = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "PYTHONWARNINGS": "ignore"}
MLFLOW: Final = """
import sys, time
from mlflow import MlflowClient
from mlflow.entities import Metric
client = MlflowClient(sys.argv[1])
run = client.create_run("0").info.run_id
points, now = int(sys.argv[2]), int(time.time() * 1000)
for begin in range(0, points, 1000):
    steps = range(begin, min(points, begin + 1000))
    client.log_batch(run, [Metric("loss", {value}, now + step, step) for step in steps])
client.set_terminated(run)
print(run)
""".replace("{value}", "4 / (1 + step / 1e5) + step * 2654435761 % 1000 / 5000")
TENSORBOARD: Final = """
import sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer, now = EventFileWriter(sys.argv[1]), time.time()
for step in range(int(sys.argv[2])):
    value = Summary.Value(tag="loss", simple_value={value})
    writer.add_event(Event(step=step, wall_time=now + step / 1000, summary=Summary(value=[value])))
writer.close()
""".replace("{value}", "4 / (1 + step / 1e5) + step * 2654435761 % 1000 / 5000")


@dataclass
class Tool:
    """A server with a run. `drawn`: what the page has once the curve is in it."""

    address: str
    drawn: str
    muster: httpx.Client | None = None
    paints: list[float] = field(default_factory=list)
    curves: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--loads", type=int, default=9)
    parser.add_argument("--small", action="store_true", help="2,000 points and two loads, and no results are written")
    parser.add_argument("--tensorboard", type=Path, help="a folder that TensorBoard was installed into with --target")
    given = parser.parse_args()
    points, loads = (2000, 2) if given.small else (given.points, given.loads)
    result: dict[str, Any] = {"points": points, "loads": loads, "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        tools = {
            "muster": stack.enter_context(muster(folder / "home", points)),
            "mlflow": stack.enter_context(mlflow(folder / "mlflow", points)),
            "tensorboard": stack.enter_context(tensorboard(folder / "events", points, given.tensorboard)),
        }
        browser = stack.enter_context(chromium())
        for _ in range(loads):
            for tool in tools.values():
                look(browser, tool)
        for name, tool in tools.items():
            paint, curve = percentile(tool.paints, 0.5), percentile(tool.curves, 0.5)
            result[name] = {
                "first_paint_ms": paint,
                "curve_ms": curve,
                "all_curves_ms": [round(x) for x in tool.curves],
            }
            print(f"{name}: {result[name]}", flush=True)
    for peer in ("mlflow", "tensorboard"):
        result[f"{peer}_takes_times_as_long"] = round(result[peer]["curve_ms"] / result["muster"]["curve_ms"], 2)
    result["load_after"] = os.getloadavg()[0]
    if not given.small:
        write("web_curve", result)


def look(browser: Browser, tool: Tool) -> None:
    with opened(browser, tool.muster) as page:
        if tool.muster is not None:  # signing in has filled the cache
            page.context.new_cdp_session(page).send("Network.clearBrowserCache")
        tool.curves.append(load_ms(page, tool.address, tool.drawn))
        tool.paints.append(first_paint_ms(page))


@contextmanager
def muster(home: Path, points: int) -> Iterator[Tool]:
    with serving(home) as http:
        run = ran(home, TRAIN, str(points))
        while points_of(http, run) < points:
            time.sleep(0.5)
        yield Tool(str(http.base_url.join(f"/runs/{run}")), "article[aria-label=loss] canvas", http)


@contextmanager
def mlflow(folder: Path, points: int) -> Iterator[Tool]:
    folder.mkdir()
    port = _free_port()
    url, store = f"http://127.0.0.1:{port}", f"sqlite:///{folder}/mlflow.db"
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--backend-store-uri", store]
    with _process(command, url, folder, QUIET):
        made = _python(MLFLOW, QUIET, url, str(points))
        address = f"{url}/#/experiments/0/runs/{made.split()[-1]}/model-metrics"
        yield Tool(address, ".js-plotly-plot .scatterlayer path.js-line")


@contextmanager
def tensorboard(folder: Path, points: int, installed: Path | None) -> Iterator[Tool]:
    env = {"PYTHONPATH": str(installed)} if installed is not None else {}
    _python(TENSORBOARD, env, str(folder / "run"), str(points))
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", str(port)]
    with _process(command, url, folder, env):
        tags = f"{url}/data/plugin/timeseries/tags"
        while "loss" not in httpx.get(tags, trust_env=False).text:  # it reads the files in the background
            time.sleep(0.5)
        # It draws by WebGL where there is any, and as SVG elsewhere.
        yield Tool(f"{url}/#timeseries", "scalar-card line-chart canvas, scalar-card line-chart .series-view path")


@contextmanager
def _process(command: list[str], url: str, folder: Path, env: dict[str, str]) -> Iterator[None]:
    """A server that listens, until the end."""
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 300
        while time.monotonic() < until:
            try:
                httpx.get(url, trust_env=False)
                break
            except httpx.TransportError:
                if server.poll() is not None:
                    raise SystemExit((folder / "server.log").read_text()[-2000:]) from None
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait(60)


def _python(program: str, env: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, env={**os.environ, **env}, check=True, stdout=subprocess.PIPE, text=True).stdout


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


if __name__ == "__main__":
    main()
