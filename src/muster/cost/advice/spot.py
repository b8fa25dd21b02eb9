"""Jobs that save well and are not urgent, and would cost less on spot nodes, work that is done again included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.cost.advice.facts import Advice, AdviceFacts, PoolFact, grouped, newest, runs_text
from muster.cost.estimate import with_interruptions

LEAST: Final = 0.20  # of the cost: a smaller saving is not worth the interruptions


def spot(facts: AdviceFacts) -> Iterator[Advice]:
    """Nothing is said of a spot pool whose interruptions are not known, or of jobs that don't save."""
    able = [one for one in facts.runs if one.waits and not one.use_spot and one.accelerators and one.save_every]
    for runs in grouped(able, "project", "name", "pool"):
        mine = facts.pools.get(runs[0].pool)
        if mine is None or mine.spot:
            continue
        total, found = sum(one.amount for one in runs), list[tuple[float, float, PoolFact]]()
        for pool in facts.pools.values():
            risk = facts.risks.get(pool.name)
            if not pool.spot or pool.accelerator != mine.accelerator or pool.per_hour is None:
                continue
            if risk is None or not risk.known:
                continue
            cost = hours = 0.0
            for one in runs:
                spent = with_interruptions(risk, one.nodes, one.hours * 3600, one.save_every) / 3600
                hours += spent * one.nodes * one.accelerators * one.share / 1000
                cost += spent * one.nodes * one.accelerators * one.share / 1000 * pool.per_hour
            found.append((cost, hours, pool))
        if not found or total <= 0:
            continue
        cost, hours, pool = min(found, key=lambda each: each[0])
        if total - cost < LEAST * total:
            continue
        risk = facts.risks[pool.name]
        yield Advice(
            "spot", f"{runs[-1].name} (pool {pool.name})", runs[-1].project, facts.monthly(total - cost),
            f"{runs_text(runs)} cost {facts.money(total)} {facts.during}; on spot {hours:,.1f} "
            f"accelerator-hours × {facts.money(pool.per_hour or 0)} = {facts.money(cost)}, with work done again at "
            f"{risk.interruptions} interruptions in {risk.hours:,.0f} node-hours; {facts.money(total)} - "
            f"{facts.money(cost)} = {facts.money(total - cost)}, {facts.money(facts.monthly(total - cost))} a month",
            f"muster runs reproduce {runs[-1].run} -o use_spot=true -o pool={pool.name}", newest(runs),
        )  # fmt: skip
