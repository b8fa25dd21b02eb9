"""Policies side by side on real traces, at their own load and above it, with nodes that fail and without.

For each trace, load and policy: mean completion, allocation (accelerators in use from the first to the last
submission), waits and CPU seconds. Load is scaled by time: a job's submission, counted from the first one, is divided
by the factor; its run time stays. Every cell is one replay in a process of its own, with a limit of CPU seconds, and
what was cut by it is said and not guessed.

"Slurm's rules" are first come first served with backfill behind a place that is held for the first job (EASY). Its
plug-in holds a place for every job that it looks at, which `-p conservative` of `muster sim` does at many times the
cost. Backfill needs a time limit of every job, which these traces lack: each gets the first of `LIMITS` that is twice
its run time or more, told to Slurm's rules alone, which is in their favour.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from _machine import machine, write
from _replay import Workload, load, play, take_traces
from muster.sim.cluster import Layout
from muster.sim.model import Costs, TraceJob
from muster.sim.whatif import with_load

POLICIES: Final = {"default": "default", "FIFO": "fifo", "Tiresias": "tiresias", "Slurm": "easy"}
LOADS: Final = (1.0, 1.2, 1.5)
HOUR: Final = 3600.0
LIMITS: Final = tuple(HOUR * hours for hours in (1, 4, 12, 24, 48, 96, 168, 336, 720, 1440, 2880))  # of Slurm's jobs
CALM: Final = Costs()
# A node fails once in a hundred days and is away for an hour; jobs save every hour, which takes ten seconds.
FAILING: Final = Costs(node_failures=0.01, repair=HOUR, checkpoint_every=HOUR, checkpoint_cost=10.0, seed=1)


@dataclass(frozen=True)
class Cell:
    trace: str
    load: float
    failures: bool
    policy: str

    @property
    def key(self) -> str:
        return f"{self.trace} x{self.load:g} {'failures' if self.failures else 'calm'} {self.policy}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    take_traces(parser)
    parser.add_argument("--limit", type=float, default=600.0, help="CPU seconds of a cell")
    parser.add_argument("--only", action="append", help="traces with this in their name alone; may be repeated")
    parser.add_argument("--loads", type=float, nargs="+", default=list(LOADS))
    parser.add_argument("--go-on", type=Path, help="a result of before: cells that are in it are not run again")
    given = parser.parse_args()
    paths = [path for path in sorted(given.traces.glob("*.csv.gz")) if path.with_name(_json_of(path)).is_file()]
    paths = [path for path in paths if not given.only or any(part in path.name for part in given.only)]
    if not paths:
        print(f"Not measured: no traces in {given.traces}. Give their folder with --traces.")
        return
    before = _before(given.go_on)
    found: dict[str, Any] = before.get("cells", {})
    settings = {"limit_cpu_s": given.limit, "load": "submission times divided by the factor",
                "failing": "0.01 a node and day, 1 h away; saves every 1 h, 10 s each"}  # fmt: skip
    result = {**settings, "traces": before.get("traces", {}), "cells": found}
    for path in paths:
        work = load(path, given.first)
        name = path.name.removesuffix(".csv.gz")
        result["traces"][name] = {"first_jobs": len(work.jobs), "origin": work.cluster.origin}
        for cell in _cells(name, given.loads):
            if cell.key not in found:
                found[cell.key] = _in_a_process(work, cell, given.limit)
                _tell(cell, found[cell.key])
                _keep(given.go_on, result)
    write("sched_together", {**result, "table": table(found, given.loads)})


def _cells(trace: str, loads: list[float]) -> Iterator[Cell]:
    for load_ in loads:
        for failures in (False, True):
            for policy in POLICIES:
                yield Cell(trace, load_, failures, policy)


def _in_a_process(work: Workload, cell: Cell, limit: float) -> dict[str, Any]:
    """The kernel ends the process when it has used up its CPU seconds."""
    context = multiprocessing.get_context("fork")  # this process has no threads, and has the trace
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(theirs, work, cell, limit))
    process.start()
    theirs.close()
    try:
        answer: dict[str, Any] = ours.recv()
    except EOFError:
        answer = {"cut": f"after {limit:g} s of CPU"}
    process.join()
    if "cut" in answer and process.exitcode != -signal.SIGXCPU:
        raise RuntimeError(f"the process of {cell.key} ended with {process.exitcode}")
    return answer


def _run(pipe: Connection, work: Workload, cell: Cell, limit: float) -> None:
    jobs = with_load(work.jobs, cell.load, None)
    if cell.policy == "Slurm":
        jobs = [replace(job, declared=_limit(job)) for job in jobs]
    layout: Layout = "shared" if work.cluster.virtual else "plain"
    used = os.times()
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.user + used.system + limit), resource.RLIM_INFINITY))
    costs = FAILING if cell.failures else CALM
    timed = play(Workload(jobs, work.cluster), POLICIES[cell.policy], layout, costs=costs)
    allocation = timed.summary.utilisation
    pipe.send(
        {
            **timed.figures(),
            "jobs": timed.summary.jobs,
            "allocation_percent": None if allocation is None else round(100 * allocation, 1),
            "node_failures_met": timed.summary.failures,
            "lost_gpu_hours": round(timed.summary.lost),
        }
    )


def _limit(job: TraceJob) -> float:
    return next((limit for limit in LIMITS if limit >= 2 * job.duration), 2 * job.duration)


def table(cells: dict[str, Any], loads: list[float]) -> list[str]:
    """Markdown: one line a trace, load and kind of nodes; mean completion in hours, allocation, and CPU seconds."""
    lines = ["| trace, load | nodes | " + " | ".join(POLICIES) + " |", "|---|---|" + "---|" * len(POLICIES)]
    for trace in dict.fromkeys(key.partition(" x")[0] for key in cells):
        for load_ in loads:
            for failures in (False, True):
                row = [cells.get(Cell(trace, load_, failures, policy).key) for policy in POLICIES]
                nodes = "fail" if failures else "stay"
                lines.append(f"| {trace}, ×{load_:g} | {nodes} | " + " | ".join(map(_words, row)) + " |")
    return lines


def _words(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return "not run"
    if "cut" in figures:
        return f"cut {figures['cut']}"
    completion, allocation = figures["completion_s"] / HOUR, figures["allocation_percent"]
    gone = f", {figures['unfinished']} unfinished" if figures["unfinished"] else ""
    return f"{completion:,.1f} h, {allocation:.0f} %, {figures['cpu_s']:.0f} s{gone}"


def _tell(cell: Cell, figures: dict[str, Any]) -> None:
    print(f"{cell.key:60} {_words(figures)}", flush=True)


def _before(path: Path | None) -> dict[str, Any]:
    if path is None or not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _keep(path: Path | None, result: dict[str, Any]) -> None:
    """What was measured so far, so that a run that is ended can go on."""
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")


def _json_of(path: Path) -> str:
    return path.name.removesuffix(".csv.gz") + ".json"


if __name__ == "__main__":
    main()
