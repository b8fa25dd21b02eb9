"""One process that logs scalars with one tool, as a training script would; run by `track_ingest.py` in any Python.

    python _ingest_peer.py '{"tool": "wandb", "width": 10, "pace": 0, "seconds": 10, "folder": "..."}'

Writes `result.json` into its folder: calls, points, seconds, processor time, latencies of each call. `pace` is the time
in seconds that a training step takes before each call; 0 is as fast as it goes. Values are noise of 32 bits, as a
loss is: nothing that would compress to nothing.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import resource
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NOISE = 1 << 20

Log = Callable[[int, dict[str, float]], object]  # one step's values
Values = Callable[[int], dict[str, float]]
Finish = Callable[[], object]  # returns when they are as durable as the tool makes them


def main() -> None:
    ask = json.loads(sys.argv[1])
    folder = Path(ask["folder"])
    log, finish = TOOLS[ask["tool"]](ask)
    values = steps_of(ask["width"])
    for step in range(3):  # what is only done once: connections, new names
        log(step, values(step))
    if ask.get("gate"):
        (folder / "waiting").touch()
        while not Path(ask["gate"]).exists():
            time.sleep(0.01)
    spent, began = _processor(), time.time()
    laps, seconds = flood(log, values, ask) if not ask["pace"] else paced(log, values, ask)
    finish()
    _sync(folder)
    ended = time.time()
    calls = len(laps)
    result = {
        "calls": calls + 3,
        "points": (calls + 3) * ask["width"] * ask.get("batch", 1),
        "began": began,
        "loop_s": seconds,
        "durable_s": ended - began,
        "cpu_s": _processor() - spent,
        "latency_us": percentiles(laps),
        "version": _version(ask["tool"]),
    }
    draft = folder / "result.part"
    draft.write_text(json.dumps(result))
    draft.rename(folder / "result.json")


def steps_of(width: int) -> Values:
    """The values of a step; they repeat after a million."""
    names = [f"metric_{place}" for place in range(width)]
    noise = array("f", (random.random() for _ in range(_NOISE + width)))
    return lambda step: dict(zip(names, noise[(at := step * width % _NOISE) : at + width], strict=True))


def flood(log: Log, values: Values, ask: dict[str, Any]) -> tuple[array[int], float]:
    laps, clock = array("Q"), time.perf_counter_ns
    began = clock()
    stop, step, most = began + int(ask["seconds"] * 1e9), 3, ask.get("calls", 1 << 60)
    before = began
    while before < stop and step - 3 < most:
        given = values(step)
        before = clock()
        log(step, given)
        laps.append(clock() - before)
        step += 1
    return laps, (clock() - began) / 1e9


def paced(log: Log, values: Values, ask: dict[str, Any]) -> tuple[array[int], float]:
    """As a training loop does: work, then one call."""
    laps, clock = array("Q"), time.perf_counter_ns
    began = clock()
    for step in range(3, 3 + int(ask["seconds"] / ask["pace"])):
        time.sleep(ask["pace"])
        given = values(step)
        before = clock()
        log(step, given)
        laps.append(clock() - before)
    return laps, (clock() - began) / 1e9


def percentiles(laps: array[int]) -> dict[str, float]:
    ordered = sorted(laps)
    if not ordered:
        return {}
    at = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    found = {name: ordered[min(len(ordered) - 1, int(part * len(ordered)))] / 1e3 for name, part in at.items()}
    return {name: round(value, 2) for name, value in {**found, "max": ordered[-1] / 1e3}.items()}


def muster(ask: dict[str, Any]) -> tuple[Log, Finish]:
    from muster import runtime

    log = runtime.log
    return lambda step, values: log(values, step), runtime.flush


def tensorboard(ask: dict[str, Any]) -> tuple[Log, Finish]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(ask["folder"])

    def log(step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def wandb(ask: dict[str, Any]) -> tuple[Log, Finish]:
    os.environ["WANDB_SILENT"] = "true"
    import wandb as tool

    settings = tool.Settings(console="off", x_disable_stats=True, x_disable_meta=True)
    run = tool.init(mode="offline", project="bench", dir=ask["folder"], settings=settings)

    def finish() -> None:
        run.finish()
        tool.teardown()  # its process writes the last of the log when it leaves

    return lambda step, values: run.log(values, step=step), finish


def trackio(ask: dict[str, Any]) -> tuple[Log, Finish]:
    os.environ.update(TRACKIO_DIR=ask["folder"], HF_HUB_OFFLINE="1", GRADIO_ANALYTICS_ENABLED="False")
    import trackio as tool

    tool.init(project="bench", name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    return lambda step, values: tool.log(values, step=step), tool.finish


def mlflow(ask: dict[str, Any]) -> tuple[Log, Finish]:
    os.environ.setdefault("MLFLOW_TRACKING_URI", ask["url"])
    import mlflow as tool
    from mlflow.entities import Metric

    client = tool.MlflowClient()
    run = client.create_run("0").info.run_id
    tool.start_run(run)
    batch = ask.get("batch", 1)

    def log_batch(step: int, values: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        rows = [Metric(name, value, now, step * batch + n) for n in range(batch) for name, value in values.items()]
        client.log_batch(run, metrics=rows)

    if batch > 1:
        return log_batch, lambda: None
    if ask["width"] == 1:
        return lambda step, values: tool.log_metric("metric_0", values["metric_0"], step=step), lambda: None
    return lambda step, values: tool.log_metrics(values, step=step), lambda: None


TOOLS: dict[str, Callable[[dict[str, Any]], tuple[Log, Finish]]] = {
    "muster": muster,
    "tensorboard": tensorboard,
    "wandb": wandb,
    "trackio": trackio,
    "mlflow": mlflow,
}


def _processor() -> float:
    """Of this process and of its children that have ended, in seconds."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def _sync(folder: Path) -> None:
    """Tools that leave it to the system when their files reach the disk are not let off: the bench flushes for them."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.endswith((".lock", "-shm")):
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _version(tool: str) -> str:
    return importlib.metadata.version({"muster": "muster-ml"}.get(tool, tool))


if __name__ == "__main__":
    main()
