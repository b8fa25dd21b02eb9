"""What is left of a study's money and time for trials that do not run yet, and what still fits into it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from muster.core.entities.study import Trial
from muster.tune.decisions import Facts
from muster.tune.expected import Expected, Need
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import Stopping

MOST_RESERVED: Final = 0.5  # of the money and the time of a study, for the runs that confirm its winners


@dataclass(frozen=True, slots=True)
class Left:
    """None: it is not limited."""

    cost: float | None
    seconds: float | None

    def fits(self, need: Need) -> bool:
        """A need that is not known fits while anything is left."""
        return _fits(need.cost, self.cost) and _fits(need.seconds, self.seconds)


def left(facts: Facts, reserved: Need, running: Iterable[Need]) -> Left:
    """`running`: what trials that run still need. Only their money counts: their time passes side by side."""
    cost = seconds = None
    if facts.limit is not None:
        cost = facts.limit - facts.spent - min(reserved.cost or 0.0, MOST_RESERVED * facts.limit)
        cost -= sum(one.cost or 0.0 for one in running)
    if facts.until is not None:
        kept = min(reserved.seconds or 0.0, MOST_RESERVED * (facts.until - facts.began))
        seconds = facts.until - facts.now - kept
    return Left(cost, seconds)


def spent(facts: Facts) -> str:
    """Why no trial may run any more; "": some may."""
    if facts.limit is not None and facts.spent >= facts.limit:
        return "the money of the study is spent"
    return "the time of the study is over" if facts.until is not None and facts.now >= facts.until else ""


def need_of_confirmation(spec: StudySpec, expected: Expected) -> Need:
    """What the runs need that confirm the best trials."""
    if spec.confirm is None:
        return Need(0.0, 0.0)
    count, whole = spec.confirm.top * spec.confirm.seeds, expected.whole()
    waves = math.ceil(count / spec.parallel)
    return Need(
        whole.seconds * waves if whole.seconds is not None else None,
        whole.cost * count if whole.cost is not None else None,
    )


def need_of_running(trial: Trial, stopping: Stopping, expected: Expected, ran: float | None) -> Need:
    """What a trial needs until it passes its next level, or ends."""
    need = expected.segment(trial, stopping.next_level(trial))
    if need.seconds is None:
        return need
    since = (trial.seconds if ran is None else ran) - (trial.rungs[-1].seconds if trial.rungs else trial.seconds)
    part = max(1 - since / need.seconds, 0.0) if need.seconds else 0.0
    return Need(need.seconds * part, need.cost * part if need.cost is not None else None)


def _fits(need: float | None, some: float | None) -> bool:
    return some is None or (some > 0 if need is None else need <= some)
