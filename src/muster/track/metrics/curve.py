"""Reads one series as points or as a downsampled curve, which uses precomputed pieces if they are fine enough.

Buckets have about the same number of points each, whatever the gaps between their steps: a jump of a billion steps
costs no resolution on either side. No bucket mixes two attempts unless there are too many attempts for that.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from muster.track.metrics import block, downsampled, smooth, source
from muster.track.metrics.block import Floats, Ints
from muster.track.metrics.downsampled import PIECE, Downsampled
from muster.track.metrics.shapes import Axis, Band, Curve, Points
from muster.track.metrics.source import Part, SeriesQuery, Superseded

Attempts = NDArray[np.int32]


def read_curve(connection: Connection, want: SeriesQuery, buckets: int, weight: float = 0) -> Curve:
    """`weight`: of what was before, in the moving average that smooths it; 0: it is not smoothed."""
    cut = source.cuts(connection, want.run, want.name)
    wanted = source.parts(connection, want, cut)
    drawn = _sorted(*_drawn(connection, wanted, want, buckets), want)
    if drawn is None:  # overlapping pieces can't be sorted, only their points can
        drawn = _sorted(*_gathered(connection, wanted, want), want)
        assert drawn is not None, "points have no extent"
    rows, attempts = drawn
    found, starts = rows, _starts(rows, attempts, buckets)
    averages = _averages(connection, want, cut, rows, weight) if weight else None
    if starts is not None:
        found, attempts = downsampled.reduce(rows, starts), attempts[np.append(starts[1:], len(rows)) - 1]
        averages = smooth.thinned(averages, rows, starts) if averages is not None else None
    return Curve(want.name, want.rank, want.axis, found, attempts, _bands(want, cut, found, attempts), averages)


def read_points(connection: Connection, want: SeriesQuery) -> Points:
    cut = source.cuts(connection, want.run, want.name)
    loaded = list(source.runs(connection, source.parts(connection, want, cut), want))
    run = block.join([run for _, run in loaded])
    attempts = _repeated([part.attempt for part, _ in loaded], [len(run) for _, run in loaded])
    order = _order(_along(run.steps, run.times, want.axis), attempts, want)
    if order is not None:
        run, attempts = run.take(order), attempts[order]
    return Points(run.steps, run.times, run.values, attempts)


def _drawn(connection: Connection, wanted: list[Part], want: SeriesQuery, buckets: int) -> tuple[Downsampled, Attempts]:
    """The precomputed pieces of blocks that are wanted whole, if they are fine enough, and the points of the rest."""
    whole = [part for part in wanted if part.run is None and source.is_whole(part, want)]
    if sum(part.points for part in whole) < PIECE * buckets:
        return _gathered(connection, wanted, want)
    ready = source.blobs(connection, [part.id for part in whole], "buckets")
    rest = [part for part in wanted if part.id not in ready]
    others = {id(part): downsampled.of_points(run) for part, run in source.runs(connection, rest, want)}
    each: list[Downsampled] = []
    for is_ready, group in groupby(wanted, key=lambda part: part.id in ready):
        some = list(group)
        each += [downsampled.decode_all([ready[part.id] for part in some])] if is_ready else []
        each += [] if is_ready else [others[id(part)] for part in some]
    pieces = [-(-part.points // PIECE) if part.id in ready else len(others[id(part)]) for part in wanted]
    return downsampled.join(each), _repeated([part.attempt for part in wanted], pieces)


def _gathered(connection: Connection, wanted: list[Part], want: SeriesQuery) -> tuple[Downsampled, Attempts]:
    loaded = [(part.attempt, run) for part, run in source.runs(connection, wanted, want)]
    attempts = _repeated([attempt for attempt, _ in loaded], [len(run) for _, run in loaded])
    return downsampled.of_points(block.join([run for _, run in loaded])), attempts


def _sorted(found: Downsampled, attempts: Attempts, want: SeriesQuery) -> tuple[Downsampled, Attempts] | None:
    """Sorted along the axis; None if pieces overlap on it."""
    first = _along(found.first_step, found.first_time, want.axis)
    order = _order(first, attempts, want)
    if order is not None:
        found, attempts = found.take(order), attempts[order]
        first = first[order]
    last = _along(found.last_step, found.last_time, want.axis)
    apart = last[:-1] <= first[1:]
    if want.superseded:
        apart |= attempts[:-1] != attempts[1:]
    return (found, attempts) if bool(apart.all()) else None


def _order(along: NDArray[Any], attempts: Attempts, want: SeriesQuery) -> NDArray[np.intp] | None:
    """The sorting order; None if sorted already, as nearly all data is."""
    ahead = along[1:] >= along[:-1]
    if want.superseded:
        ahead |= attempts[1:] > attempts[:-1]
    if bool(ahead.all()):
        return None
    return np.lexsort((along, attempts)) if want.superseded else np.argsort(along, kind="stable")


def _starts(found: Downsampled, attempts: Attempts, buckets: int) -> Ints | None:
    """Where the buckets begin; None if there are not more pieces than buckets."""
    total = int(found.count.sum())
    if len(found) <= buckets:
        return None
    changes = attempts[1:] != attempts[:-1]
    breaks = int(changes.sum())
    apart = breaks < buckets // 2
    before = np.cumsum(found.count) - found.count
    cells = before * (buckets - breaks if apart else buckets) // total
    new = cells[1:] != cells[:-1]
    return np.flatnonzero(np.append(True, new | changes if apart else new))


def _averages(connection: Connection, want: SeriesQuery, cut: Superseded, found: Downsampled, weight: float) -> Floats:
    """The moving average at each piece, which begins before the range that is wanted."""
    before = smooth.history(connection, want, cut, weight)
    return smooth.smoothed(downsampled.join([before, found]), weight)[len(before) :]


def _bands(want: SeriesQuery, cut: Superseded, found: Downsampled, attempts: Attempts) -> list[Band]:
    bands = []
    for attempt in sorted({*cut.attempts, *np.unique(attempts).tolist()}):
        if want.attempt not in (None, attempt):
            continue
        of = attempts == attempt
        first = int(found.first_step[of].min()) if of.any() else None
        last = int(found.last_step[of].max()) if of.any() else None
        bands.append(Band(attempt, first, last, cut.of(attempt)))
    return bands


def _along(steps: NDArray[Any], times: NDArray[Any], axis: Axis) -> NDArray[Any]:
    return steps if axis == "step" else times


def _repeated(attempts: list[int], counts: list[int]) -> Attempts:
    return np.repeat(np.array(attempts, np.int32), counts)
