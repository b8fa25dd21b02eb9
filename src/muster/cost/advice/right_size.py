"""Jobs that use little of their devices: which card or share would do, held against runs that had it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final

from muster.core.resources import WHOLE
from muster.core.units import format_accelerators
from muster.cost.advice.facts import Advice, AdviceFacts, PoolFact, RunFact, grouped, mean_use, newest, runs_text

USE: Final = 0.30  # of a device
MEMORY: Final = 0.50  # of a device's memory
ROOM: Final = 1.2  # what a smaller device must have, over what was used
LEAST: Final = 0.10  # of the cost: savings below this are not worth a change
MINUTES: Final = 10 / 60  # hours from which on a run says something


def right_size(facts: AdviceFacts) -> Iterator[Advice]:
    known = [one for one in facts.runs if one.accelerators and one.kind != "session" and one.hours >= MINUTES]
    for runs in grouped(known, "project", "name", "code", "pool", "share"):
        use = mean_use(runs)
        memory = max((one.memory_share for one in runs if one.memory_share is not None), default=None)
        if use is None or memory is None or (use >= USE and memory >= MEMORY) or runs[0].pool not in facts.pools:
            continue
        found = [*_share(facts, runs, use, memory), *_card(facts, runs, use, memory)]
        if found:
            yield max(found, key=lambda one: (one.confidence == "measured", one.saves))


def _share(facts: AdviceFacts, runs: Sequence[RunFact], use: float, memory: float) -> Iterator[Advice]:
    """A part of one accelerator, where the pool's rules share them."""
    last, slices = runs[-1], facts.pools[runs[-1].pool].slices
    parts = max(1, ceil(max(use, memory) * ROOM * slices))
    if last.accelerators != 1 or last.share != WHOLE or parts >= slices:
        return
    share = WHOLE * parts // slices
    others = [one for one in _alike(facts, last) if one.pool == last.pool and one.share == share]
    words = format_accelerators(last.accelerator, 1, share)
    change = f"-o resources.accelerators={words}"
    yield from _advice(facts, runs, others, parts / slices, f"{parts}/{slices} of a device", change, use, memory)


def _card(facts: AdviceFacts, runs: Sequence[RunFact], use: float, memory: float) -> Iterator[Advice]:
    """A cheaper device with enough memory."""
    last, mine = runs[-1], facts.pools[runs[-1].pool]
    size = last.device_memory or mine.device_memory
    for pool in facts.pools.values():
        if pool.name == mine.name or pool.spot or not pool.accelerator or not _cheaper(pool, mine):
            continue
        others = [one for one in _alike(facts, last) if one.pool == pool.name and one.share == last.share]
        enough = size is not None and pool.device_memory is not None and pool.device_memory >= size * memory * ROOM
        if not enough or (not others and use >= USE):  # a busy device is not replaced by a guess
            continue
        assert pool.per_hour is not None
        assert mine.per_hour is not None
        words = format_accelerators(pool.accelerator, last.accelerators, last.share)
        change = f"-o pool={pool.name} -o resources.accelerators={words}"
        ratio = pool.per_hour / mine.per_hour
        yield from _advice(facts, runs, others, ratio, f"{pool.accelerator} of pool {pool.name}", change, use, memory)


def _advice(
    facts: AdviceFacts, runs: Sequence[RunFact], others: Sequence[RunFact], ratio: float, what: str, change: str,
    use: float, memory: float,
) -> Iterator[Advice]:  # fmt: skip
    """`ratio`: of the prices. `others`: runs of the same name that had it."""
    total, last = sum(one.amount for one in runs), runs[-1]
    if others:
        if _failed(others) > _failed(runs):
            return  # those who did it fared worse
        ratio = (sum(one.amount for one in others) / len(others)) / max(total / len(runs), 1)
    saved = total * (1 - ratio)
    if total <= 0 or saved < LEAST * total:
        return
    backed = (
        f"{runs_text(others)} with it cost {ratio:.0%} of one without"
        if others
        else f"its price is {ratio:.0%}; nobody has tried it, and the same run time is assumed"
    )
    yield Advice(
        "right-size", f"{last.name} ({what})", last.project, facts.monthly(saved),
        f"{runs_text(runs)} used {use:.0%} of {last.accelerator} and at most {memory:.0%} of its memory and cost "
        f"{facts.money(total)} {facts.during}; {what}: {backed}. {facts.money(total)} × (1 - {ratio:.2f}) = "
        f"{facts.money(saved)}, {facts.money(facts.monthly(saved))} a month",
        f"muster runs reproduce {last.run} {change}", newest([*runs, *others]), "measured" if others else "untested",
    )  # fmt: skip


def _alike(facts: AdviceFacts, run: RunFact) -> list[RunFact]:
    return [one for one in facts.runs if (one.project, one.name) == (run.project, run.name)]


def _failed(runs: Sequence[RunFact]) -> float:
    return sum(one.phase == "failed" for one in runs) / len(runs)


def _cheaper(pool: PoolFact, mine: PoolFact) -> bool:
    return pool.per_hour is not None and mine.per_hour is not None and pool.per_hour < mine.per_hour
