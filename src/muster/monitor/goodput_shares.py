"""Sums of the ledger of held time over attempts, and the three goodputs in use.

`training` is Google's: the share of the held time that trained, with what the rest went to. `effective` is Meta's
effective training time ratio: the same over the time since the first seats, with the waits between attempts.
`iterations` is MegaScale's: the steps that count × the mean time of a step, over that time; waits for data are part of
steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from muster.core.resources import WHOLE
from muster.monitor.time_ledger import CLASSES, SECOND

_STEPPING: Final = ("training", "done_again", "data")


class Held(NamedTuple):
    """Time that an attempt held; `units` in thousandths, times in microseconds."""

    units: int
    parts: Mapping[str, int]
    waited: int = 0
    steps: int = 0
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """In unit-seconds. `parts` has every class."""

    held: float
    waited: float
    parts: dict[str, float]
    training: float | None
    effective: float | None
    iterations: float | None
    largest_loss: str | None  # the class, other than training, that took the most


def totals(times: Iterable[Held]) -> Totals:
    sums, waited, counted, stepped = dict.fromkeys(CLASSES, 0), 0, Fraction(0), False
    for units, parts, wait, steps, repeats in times:
        for kind, spent in parts.items():
            sums[kind] = sums.get(kind, 0) + units * spent
        waited += units * wait
        if steps:
            stepped = True
            stepping = units * sum(parts.get(kind, 0) for kind in _STEPPING)
            counted += Fraction(stepping * (steps - repeats), steps)
    held = sum(sums.values())
    good, whole = sums["training"], held + waited
    losses = {kind: spent for kind, spent in sums.items() if kind != "training" and spent}
    return Totals(
        held=_seconds(held),
        waited=_seconds(waited),
        parts={kind: _seconds(spent) for kind, spent in sums.items()},
        training=good / held if held else None,
        effective=good / whole if whole else None,
        iterations=float(counted / whole) if stepped and whole else None,
        largest_loss=max(losses, key=lambda kind: losses[kind], default=None),
    )


def _seconds(amount: int) -> float:
    return amount / (WHOLE * SECOND)
