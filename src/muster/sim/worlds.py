"""Worlds: what varies between replications of a comparison, while the policies, the cluster and the costs stay.

Each world has its own failures and interruptions, from a seed of its own. With `block`, each also has its own trace:
whole blocks of time (days, weeks), drawn with replacement from those of the trace and put one after the other. What
holds of such worlds holds of work that is made of the same blocks in another order and mixture, and of no other work.
All policies of one world see the same failures and the same jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from muster.core.errors import Problem, SpecError
from muster.core.units import format_duration
from muster.sim.model import Setup, TraceJob
from muster.sim.summary import window

FEWEST: Final = 4  # blocks: of fewer, worlds would be nearly the same


@dataclass(frozen=True, slots=True)
class Worlds:
    seed: int = 0
    block: float | None = None  # seconds; None: every world has the jobs of the trace

    def jobs(self, number: int, trace: Sequence[TraceJob]) -> list[TraceJob]:
        if self.block is None:
            return list(trace)
        start, _ = window(trace)
        count = whole_blocks(trace, self.block)
        blocks: list[list[TraceJob]] = [[] for _ in range(count)]
        for job in trace:
            place = int((job.submit - start) // self.block)
            if place < count:
                blocks[place].append(job)
        drawn = Random(f"{self.seed}/{number}").choices(range(count), k=count)
        return [
            replace(job, id=f"{job.id}@{place}", submit=job.submit + (place - source) * self.block)
            for place, source in enumerate(drawn)
            for job in blocks[source]
        ]

    def setup(self, number: int, setup: Setup) -> Setup:
        return replace(setup, costs=replace(setup.costs, seed=self.seed + number))

    def facts(self) -> list[tuple[str, str]]:
        """For the description of a simulation."""
        drawn = "" if self.block is None else f", and blocks of {format_duration(self.block)} drawn with replacement"
        return [("worlds", f"each with its own failures, from seed {self.seed} on{drawn}")]

    def vary(self, setup: Setup) -> bool:
        """Whether two worlds of this setup can differ at all."""
        spot = any(pool.spot for pool in setup.cluster.pools)
        return bool(self.block is not None or setup.costs.node_failures or (setup.costs.spot_interruptions and spot))


def whole_blocks(trace: Sequence[TraceJob], block: float) -> int:
    start, end = window(trace)
    return int((end - start) // block)


def check_blocks(trace: Sequence[TraceJob], block: float) -> None:
    """SpecError where the trace has too few blocks to draw from."""
    count = whole_blocks(trace, block)
    if count < FEWEST:
        given = f"{count} whole block{'' if count == 1 else 's'} in the trace"
        hint = "Give a shorter block, such as 1d or 6h."
        problem = Problem(f"--resample {format_duration(block)}", given, f"at least {FEWEST}", hint)
        raise SpecError([problem], "--resample")
