"""Admission with many budgets: the CPU time of the check of a job, with 1,000 of them. The goal: below 1 ms.

Twice: budgets of many projects, families and users, of which four cover a job; and the worst case, in which all of them
cover every job.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

from _machine import write
from muster.control.admission import Context
from muster.control.admission.budget import check, reserve_of
from muster.core.budget_events import BudgetSet
from muster.core.entities.node import NodeJoined
from muster.core.entities.pool import PoolSet
from muster.core.entities.price_book import PricesSet
from muster.core.event import Event
from muster.core.parse import parse_job
from muster.core.resources import Resources
from muster.core.state import State, apply

NOW = 1_795_000_000.0  # a second of November 2026


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budgets", type=int, default=1_000)
    parser.add_argument("--checks", type=int, default=5_000)
    args = parser.parse_args()
    found: dict[str, Any] = {"budgets": args.budgets, "checks": args.checks}
    for name, same in (("spread", False), ("all_cover", True)):
        state = _state(args.budgets, same)
        found[name] = _measure(state, args.checks if not same else args.checks // 10)
        print(f"{name}: median {found[name]['median_us']:.1f} us, p99 {found[name]['p99_us']:.1f} us")
    write("budgets", found)


def _state(budgets: int, same: bool) -> State:
    state = State()
    node = NodeJoined("n0", "main", Resources(64_000, 2**38, 8, "H100"), {})
    book = PricesSet({"pools": {"main": [{"accelerator": 2_500_000_000}]}})
    events = [Event(PoolSet("main"), NOW), Event(node, NOW), Event(book, NOW)]
    for number in range(budgets):
        part = ("project", "family", "user", "environment")[number % 4]
        scope = {} if same else {part: f"{part[0]}{number}"}
        events.append(Event(BudgetSet(f"b{number}", 10**12, "USD", scope), NOW))
    for seq, event in enumerate(events, 1):
        apply(state, event.stamped(seq))
    return state


def _measure(state: State, checks: int) -> dict[str, float]:
    doc = {"name": "job", "run": "true", "resources": {"accelerators": "H100:8"}, "project": "p0"}
    spec = parse_job({**doc, "tags": {"family": "f1", "environment": "e3"}})
    context = Context(state, "u2", lambda project, name: True, local=False, now=NOW)
    assert check(spec, context) is None
    assert reserve_of(spec, context) == 20_000_000
    times: list[float] = []
    for _ in range(checks):
        began = time.thread_time()
        check(spec, context)
        reserve_of(spec, context)  # for the event
        times.append((time.thread_time() - began) * 1e6)
    times.sort()
    return {"median_us": round(median(times), 1), "p99_us": round(times[int(len(times) * 0.99)], 1)}


if __name__ == "__main__":
    main()
