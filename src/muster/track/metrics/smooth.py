"""Smoothing of a curve: an exponential moving average over its points, computed before they are thinned."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from muster.track.metrics import block, downsampled, source
from muster.track.metrics.block import Floats, Ints
from muster.track.metrics.downsampled import Downsampled
from muster.track.metrics.source import SeriesQuery, Superseded

WEIGHT_MAX: Final = 0.9999  # of what was before a point
_FORGOTTEN: Final = 1e-9  # points that weigh less together are not read


def history(connection: Connection, want: SeriesQuery, cut: Superseded, weight: float) -> Downsampled:
    """The last points before the range, as many as still weigh something in it."""
    if want.start is None or weight == 0:
        return downsampled.join([])
    before = replace(want, start=None, stop=want.start)
    needed, taken = ceil(log(_FORGOTTEN) / log(weight)), []
    for part in sorted(source.parts(connection, before, cut), key=lambda one: _end(one, want), reverse=True):
        taken.append(part)
        needed -= part.points if source.is_whole(part, before) else 0
        if needed <= 0:
            break
    run = block.join([points for _, points in source.runs(connection, taken, before)])
    return downsampled.of_points(run.take(np.argsort(run.steps if want.axis == "step" else run.times, kind="stable")))


def smoothed(rows: Downsampled, weight: float) -> Floats:
    """The average at each row, without the bias of its beginning, as TensorBoard has it.

    A row of several points counts as so many points of its mean. What is not finite is left out, and has NaN.
    """
    there = np.isfinite(rows.mean)
    keep = np.power(weight, np.where(there, rows.count - rows.nans, 0))
    sums = np.stack([np.where(there, rows.mean, 0.0) * (1 - keep), 1 - keep])
    _accumulate(keep, sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(there, sums[0] / sums[1], np.nan)


def thinned(values: Floats, rows: Downsampled, starts: Ints) -> Floats:
    """The mean of smoothed values in each bucket; a bucket begins at each of `starts`."""
    counts = np.where(np.isnan(values), 0, rows.count - rows.nans)
    whole = np.add.reduceat(counts, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.add.reduceat(np.nan_to_num(values) * counts, starts) / whole)


def _accumulate(keep: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
    """Makes `sums[k]` into `keep[k] * sums[k - 1] + sums[k]`, one after the other, in log2(n) passes over all.

    Of `keep` only a copy is changed.
    """
    factor, shift = keep.copy(), 1
    while shift < len(factor) and factor[shift:].max() > _FORGOTTEN**2:
        sums[:, shift:] += factor[shift:] * sums[:, :-shift]
        factor[shift:] = factor[shift:] * factor[:-shift]
        shift *= 2


def _end(part: source.Part, want: SeriesQuery) -> float:
    return part.steps[1] if want.axis == "step" else part.times[1]
