"""The first and the last point of each attempt of a series, and where it caught up with the attempts before.

They are found by the extents of blocks, so that only the few blocks that hold them are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection, case, func, select

from muster.store.record_tables import metric_series
from muster.track.metrics import block, source
from muster.track.metrics.append import SYSTEM
from muster.track.metrics.block import Samples
from muster.track.metrics.source import NO_CUTS, Part, SeriesQuery
from muster.track.rows import chunks

_LOSS: Final = "loss"

Load = Callable[[Part], Samples]


@dataclass(frozen=True, slots=True)
class Milestone:
    step: int
    time: float


def read_milestones(
    connection: Connection, run: str, name: str, rank: int, attempts: Sequence[int]
) -> dict[int, list[Milestone]]:
    """The milestones of each attempt that has points, sorted by step; superseded points count too.

    `attempts`: all of the run, in order. Of points with one step the first one counts, of those with the last step the
    last, in the order in which they arrived.
    """
    found: dict[int, list[Part]] = {}
    for part in source.parts(connection, SeriesQuery(run, name, rank, superseded=True), NO_CUTS):
        found.setdefault(part.attempt, []).append(part)
    opened: dict[int, Samples] = {}

    def load(part: Part) -> Samples:
        if part.run is not None:
            return part.run
        if part.id not in opened:
            opened[part.id] = block.decode(source.blobs(connection, [part.id], "data")[part.id])
        return opened[part.id]

    before = {after: (previous,) for previous, after in pairwise(attempts)}
    earlier = {attempt: tuple(attempts[:at]) for at, attempt in enumerate(attempts)}
    milestones = {}
    for attempt, parts in found.items():
        opened.clear()
        steps = [min(part.steps[0] for part in parts)]
        for rivals in (before.get(attempt, ()), earlier.get(attempt, ())):
            reached = max((part.steps[1] for rival in rivals for part in found.get(rival, ())), default=None)
            caught_up = _lowest(parts, reached, load) if reached is not None else None
            steps += [] if caught_up is None or caught_up in steps[1:] else [caught_up]
        reached = max(part.steps[1] for part in parts)
        ends = _at(reversed(parts), reached, load, -1)
        milestones[attempt] = [*(_at(parts, step, load, 0) for step in steps), ends]
    return milestones


def step_metrics(connection: Connection, runs: Sequence[str]) -> dict[str, str]:
    """The metric by which the steps of each run are counted: the loss, else the first by name."""
    name, found = metric_series.c.name, dict[str, str]()
    first = func.min(case((name == _LOSS, ""), else_=name))
    for part in chunks(runs):
        query = select(metric_series.c.run, first).where(metric_series.c.run.in_(part), ~name.startswith(SYSTEM))
        rows = connection.execute(query.group_by(metric_series.c.run))
        found.update({run: least or _LOSS for run, least in rows})
    return found


def _lowest(parts: Sequence[Part], step: int, load: Load) -> int | None:
    """The lowest step of a point that is at least this one."""
    behind = [part.steps[0] for part in parts if part.steps[0] >= step]
    around = [part for part in parts if part.steps[0] < step <= part.steps[1]]
    for part in around:
        steps = load(part).steps
        behind.append(int(steps[steps >= step].min()))
    return min(behind, default=None)


def _at(parts: Iterable[Part], step: int, load: Load, which: int) -> Milestone:
    """A point with this step: the first of the first part that has one (`which` 0), or its last (-1)."""
    for part in parts:
        if part.steps[0] <= step <= part.steps[1]:
            samples = load(part)
            places = np.flatnonzero(samples.steps == step)
            if len(places):
                return Milestone(step, float(samples.times[places[which]]))
    raise AssertionError("a part has no point at the end of its extent")
