"""Jobs that are not urgent and ran at full price, though the pool has hours with a lower one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.core.prices import Quantity
from muster.core.resources import WHOLE
from muster.core.units import format_duration
from muster.cost.advice.facts import Advice, AdviceFacts, RunFact, grouped, newest, runs_text
from muster.cost.estimate import cost_between, quiet_start

LEAST: Final = 0.10  # of the cost
LONGEST: Final = 24.0  # hours: a longer job runs in both, whenever it starts


def off_peak(facts: AdviceFacts) -> Iterator[Advice]:
    able = [one for one in facts.runs if one.waits and not one.off_peak and one.pool in facts.pools]
    for runs in grouped(able, "project", "name", "pool"):
        total, saved, waits = sum(one.amount for one in runs), 0.0, list[float]()
        moved = list[RunFact]()
        for one in runs:
            at = quiet_start(facts.prices, one.pool, one.begin)
            if at is None or one.hours > LONGEST:
                continue
            now, then = (_cost(facts, one, start) for start in (one.begin, at))
            if now and then is not None and then < now:
                saved += one.amount * (1 - then / now)
                waits.append(at - one.begin)
                moved.append(one)
        if not moved or total <= 0 or saved < LEAST * total:
            continue
        wait, last = sum(waits) / len(waits), moved[-1]
        quiet = facts.pools[last.pool].quiet
        yield Advice(
            "off-peak", last.name, last.project, facts.monthly(saved),
            f"{runs_text(moved)} of {runs_text(runs)} began at full price in pool {last.pool}; in the hours with a "
            f"lower price they would have cost {facts.money(saved)} less of {facts.money(total)} {facts.during}"
            f", and waited {format_duration(round(wait / 60) * 60)} more; {facts.money(facts.monthly(saved))} a "
            "month" + ("" if quiet else f". The policy has no quiet hours of pool {last.pool} yet"),
            f"muster runs reproduce {last.run} -o off_peak=true" if quiet
            else "muster queue apply POLICY.yaml  # with `off_peak` of the pool, then -o off_peak=true",
            newest(moved),
        )  # fmt: skip


def _cost(facts: AdviceFacts, run: RunFact, start: float) -> int | None:
    held = Quantity(run.nodes * run.accelerators * run.share, 0, 0, run.nodes)
    if not run.accelerators:
        held = Quantity(0, run.nodes * WHOLE, 0, run.nodes)
    return cost_between(facts.prices, run.pool, held, start, run.hours * 3600)
