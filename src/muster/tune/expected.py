"""What trials are expected to take, to cost and to improve, by what the trials of their study took and reached so far.

Times are of running, in seconds; costs in millionths. A trial that is paused goes on at its own pace and price, a new
one has the median pace and price. Where nothing is known of a study, what its control estimates before is used, else
None is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Final

from muster.core.entities.study import Trial
from muster.tune.tables import Entry, Row, Tables

PAIRS: Final = 5  # trials that must have passed two levels before improvements are compared
_SAMPLE: Final = 100  # of trials of a level that are looked at
_TAIL: Final = 0.2  # the part of the best trials by whose distances the next improvement is estimated


@dataclass(frozen=True, slots=True)
class Need:
    seconds: float | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class Expected:
    """`tables` have the rows of `entries`. `seconds` and `cost`: of a whole trial, as estimated before any has run."""

    tables: Tables
    sign: float
    seconds: float | None = None
    cost: float | None = None

    @property
    def ends(self) -> bool:
        """Whether a trial has run to its end."""
        return bool(self.tables.rows("whole"))

    def whole(self) -> Need:
        """A new trial, to its end."""
        seconds = _median(self.tables.rows("whole"))
        if seconds is None and (end := self._end()) is not None and (pace := _median(self.tables.rows("pace"))):
            seconds = end * pace
        return self._need(self.seconds if seconds is None else seconds, None)

    def segment(self, trial: Trial, level: float | None) -> Need:
        """What a trial needs for the way from the last level that it passed to this one; None: to its end."""
        passed, pace = _passed(trial), _pace(trial) or _median(self.tables.rows("pace"))
        end = self._end() if level is None else level
        if end is not None and pace is not None:
            return self._need(max(end - passed, 0.0) * pace, trial)
        whole = self.whole().seconds
        return self._need(None if whole is None else max(whole - trial.seconds, 0.0), trial)

    def improvement(self, trial: Trial, level: float) -> float | None:
        """By how much a paused trial is expected to be better than the best at a level, for each second of its way."""
        gains = self._gains(trial.rungs[-1].level, level)
        seconds = self.segment(trial, level).seconds
        if gains is None or not seconds:
            return None
        loss = self.sign * trial.rungs[-1].values[0]
        return _improvement(self._best(level), loss - gains.mean, gains.stdev) / seconds

    def improvement_of_new(self, level: float) -> float | None:
        """The same of a new trial, which is paused on the way as often as others were."""
        levels = sorted(one for _, _, one in self.tables.keys("loss") if one <= level)
        gains, pace = self._gains(levels[0], level), _median(self.tables.rows("pace"))
        first = _sample(self.tables.rows("loss", 0, levels[0]))
        if gains is None or not pace or len(first) < PAIRS:
            return None
        losses = [loss for loss, _ in first]
        spread = math.hypot(stdev(losses), gains.stdev)
        counts = [len(self.tables.rows("loss", 0, one)) for one in levels]
        ways = [one - before for before, one in zip([0.0, *levels], levels, strict=False)]
        seconds = pace * sum(way * count / counts[0] for way, count in zip(ways, counts, strict=True))
        return _improvement(self._best(level), fmean(losses) - gains.mean, spread) / seconds

    def _need(self, seconds: float | None, trial: Trial | None) -> Need:
        price = _price(trial) if trial is not None else None
        price = _median(self.tables.rows("price")) if price is None else price
        if price is not None and seconds is not None:
            return Need(seconds, seconds * price)
        return Need(seconds, self.cost)

    def _end(self) -> float | None:
        """The level at which programs end."""
        return _median(self.tables.rows("end"))

    def _best(self, level: float) -> float:
        return self.tables.rows("loss", 0, level)[0][0]

    def _gains(self, level: float, other: float) -> NormalDist | None:
        """What trials gained from one level to another that both passed."""
        before = {number: loss for loss, number in self.tables.rows("loss", 0, level)}
        after = _sample(self.tables.rows("loss", 0, other))
        gained = [before[number] - loss for loss, number in after if number in before]
        return NormalDist(fmean(gained), stdev(gained)) if len(gained) >= PAIRS else None


def entries(sign: float) -> Callable[[Trial], Iterator[Entry]]:
    """The rows of a trial: `loss` by level; `pace`, seconds for each unit of a level; `price` of a second; of one that
    is complete, `whole`, its seconds, and `end`, the level that they would have been at its pace."""

    def rows(trial: Trial) -> Iterator[Entry]:
        if trial.origin == "confirm" or trial.outcome == "lost":
            return
        for rung in trial.rungs:
            if math.isfinite(rung.values[0]):
                yield ("loss", 0, rung.level), (sign * rung.values[0], trial.number)
        if (pace := _pace(trial)) is not None:
            yield ("pace", 0, 0.0), (pace, trial.number)
        if (price := _price(trial)) is not None:
            yield ("price", 0, 0.0), (price, trial.number)
        if trial.outcome == "complete" and trial.phase == "ended" and trial.origin != "exploit" and trial.seconds > 0:
            yield ("whole", 0, 0.0), (trial.seconds, trial.number)
            if pace is not None:
                yield ("end", 0, 0.0), (trial.seconds / pace, trial.number)

    return rows


def next_gain(losses: Sequence[float]) -> float | None:
    """By how much one more trial is expected to improve on the best of these; None of fewer than ten.

    The next of n draws from one distribution is the best with a chance of 1/(n + 1). By how much, the distances between
    the best so far say: if the tail is exponential, k times the distance from the k-th to the next is, for every k, a
    draw with the mean of what the next best would gain. Of a thinner tail it is too much, and a
    search that learns does better for a while.
    """
    count = len(losses)
    if count < 10:
        return None
    best = sorted(losses)[: max(5, int(count * _TAIL)) + 1]
    scale = fmean(k * (best[k] - best[k - 1]) for k in range(1, len(best)))
    return scale / (count + 1)


def _passed(trial: Trial) -> float:
    return trial.rungs[-1].level if trial.rungs else 0.0


def _pace(trial: Trial) -> float | None:
    last = trial.rungs[-1] if trial.rungs and trial.origin != "exploit" else None
    return last.seconds / last.level if last is not None and last.seconds > 0 else None


def _price(trial: Trial) -> float | None:
    return trial.cost / trial.seconds if trial.seconds > 0 and trial.cost > 0 else None


def _median(table: Sequence[Row]) -> float | None:
    return table[len(table) // 2][0] if table else None


def _sample(table: Sequence[Row]) -> Sequence[Row]:
    return table[:: max(1, len(table) // _SAMPLE)]


def _improvement(best: float, mean: float, spread: float) -> float:
    """The expected value of what is better than the best, of a normal distribution."""
    if spread <= 0:
        return max(best - mean, 0.0)
    normal, at = NormalDist(), (best - mean) / spread
    return spread * (normal.pdf(at) + at * normal.cdf(at))
