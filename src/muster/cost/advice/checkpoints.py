"""Saves that are too rare or too frequent for how often machines fail: Young's interval, and what it saves."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from statistics import median
from typing import Final

from muster.core.units import format_duration
from muster.cost.advice.facts import Advice, AdviceFacts, grouped, newest, runs_text

LEAST: Final = 0.01  # of the cost
FAILURES: Final = 2  # from which on the time between failures is known
FACTOR: Final = 1.5  # between the interval and the best one
SHORTEST: Final = 10.0  # seconds


def checkpoints(facts: AdviceFacts) -> Iterator[Advice]:
    if facts.failures < FAILURES or facts.node_hours <= 0:
        return
    between_nodes = facts.node_hours * 3600 / facts.failures
    able = [one for one in facts.runs if one.save_every and one.save_seconds]
    for runs in grouped(able, "project", "name", "nodes"):
        every = median([one.save_every for one in runs if one.save_every])
        cost = median([one.save_seconds for one in runs if one.save_seconds])
        between = between_nodes / runs[0].nodes
        best = max(SHORTEST, sqrt(2 * cost * between))
        now, then = (cost / each + each / (2 * between) for each in (every, best))
        total = sum(one.amount for one in runs)
        saved = total * min(now - then, 1.0)
        if max(every / best, best / every) < FACTOR or total <= 0 or saved < LEAST * total:
            continue
        last = runs[-1]
        yield Advice(
            "checkpoint", last.name, last.project, facts.monthly(saved),
            f"{runs_text(runs)} saved every {_time(every)}, {cost:.1f} s each; {facts.failures} failures in "
            f"{facts.node_hours:,.0f} node-hours are one in {_time(between)} of {last.nodes} nodes; saves and work "
            f"done again take {now:.1%} of the time, with a save every √(2 × {cost:.1f} s × {_time(between)}) = "
            f"{_time(best)} {then:.1%}; {facts.money(total)} × {now - then:.3f} = {facts.money(saved)} "
            f"{facts.during}",
            f"muster runs reproduce {last.run} -o checkpoint.every={format_duration(max(1, round(best)))}",
            newest(runs),
        )  # fmt: skip


def _time(seconds: float) -> str:
    return format_duration(round(seconds)) if seconds < 7200 else f"{seconds / 3600:.1f} h"
