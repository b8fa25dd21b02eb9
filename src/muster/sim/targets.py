"""Targets of waits and completions, such as `p90 wait <= 1h`: how they are written, and whether a replay meets them.

A target is about all jobs of the trace, or of one queue. A job that is refused, or never ends, took forever. A replay
need not go to its end to be judged: a time that a job has waited already can only grow, so a percentile is missed for
certain as soon as too many jobs are beyond the limit, and met as soon as enough have ended within it. These are
bounds, not estimates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final, Literal, NamedTuple

from muster.core.errors import Problem, SpecError
from muster.core.suggest import did_you_mean
from muster.core.units import InvalidValue, parse_duration, parse_number
from muster.sim.model import DEFAULT, JobResult, TraceJob
from muster.sim.summary import percentile
from muster.sim.table import span

Metric = Literal["wait", "start", "completion"]
METRICS: Final[dict[str, Metric]] = {
    "wait": "wait", "queueing": "wait", "start": "start", "completion": "completion",
}  # fmt: skip
_FORM: Final = re.compile(
    r"\s*(?P<stat>p\d+(?:\.\d+)?|median|mean|max)\s+(?P<metric>[a-z]+)(?:\s+of\s+(?P<queue>[^\s<]+))?"
    r"\s*(?:<=|≤|<)\s*(?P<limit>\S+)\s*"
)
_EXPECTED: Final = "a target such as `p90 wait <= 1h` or `mean completion of vision <= 6h`"
_HINT: Final = (
    "Write p50 to p100, median, mean or max; then wait (without any node), start (the first) or completion; "
    "`of QUEUE` where it is about one queue; then `<=` and a duration."
)


@dataclass(frozen=True, slots=True)
class Target:
    metric: Metric
    percent: float | None  # None: the mean
    limit: float  # seconds
    queue: str | None = None  # None: all jobs

    def concerns(self, job: TraceJob) -> bool:
        return self.queue is None or (job.queue or DEFAULT) == self.queue

    def __str__(self) -> str:
        return f"{self.what} <= {span(self.limit)}"

    @property
    def what(self) -> str:
        """What is measured, without the limit."""
        stat = "mean" if self.percent is None else "median" if self.percent == 50 else f"p{self.percent:g}"
        return f"{stat} {self.metric}{f' of {self.queue}' if self.queue is not None else ''}"

    def value(self, jobs: Iterable[JobResult]) -> float:
        """The figure at the end of a replay; infinite where it includes a job that never got there, 0 without jobs."""
        return self.of([_final(self.metric, job) for job in jobs if self.concerns(job.job)])

    def of(self, values: Sequence[float]) -> float:
        if not values:
            return 0.0
        if self.percent is None:
            return sum(values) / len(values)
        ordered = sorted(values)
        finite = [value for value in ordered if isfinite(value)]
        place = (len(ordered) - 1) * self.percent / 100
        if int(place) == place:
            return ordered[int(place)]
        return percentile(ordered, self.percent) if int(place) + 1 < len(finite) else inf


def parse_target(text: str) -> Target:
    """SpecError where it is not one."""
    found = _FORM.fullmatch(text)
    metric = METRICS.get(found["metric"]) if found else None
    if found is None or metric is None:
        raise _unfit(text)
    stat = found["stat"]
    try:
        limit = parse_duration(found["limit"])
        percent = {"median": 50.0, "mean": None, "max": 100.0}[stat] if stat[0] != "p" else parse_number(stat[1:])
    except InvalidValue:
        raise _unfit(text) from None
    if not 0 <= limit < inf or not (percent is None or 0 < percent <= 100):
        raise _unfit(text)
    return Target(metric, percent, limit, found["queue"])


def check_targets(targets: Iterable[Target], jobs: Sequence[TraceJob]) -> None:
    """SpecError where a target is about no job at all."""
    for target in targets:
        if not any(map(target.concerns, jobs)):
            queues = sorted({job.queue or DEFAULT for job in jobs})
            hint = did_you_mean(target.queue or "", queues, quote="'") if queues else "The trace has no jobs."
            problem = Problem(f"--target '{target}'", f"no job of {target.queue}", "a queue of the trace", hint)
            raise SpecError([problem], "--target")


class Going(NamedTuple):
    """A job in the system; `job` has times of the clock."""

    job: JobResult
    age: float  # seconds since it was submitted
    without: float  # of these, seconds in which it held no node


class Judge:
    """Whether one target is certain to be met or missed, from the jobs that ended and the least of all others."""

    def __init__(self, target: Target, trace: Iterable[TraceJob], zero: float) -> None:
        self._target, self._zero = target, zero
        concerned = [job for job in trace if target.concerns(job)]
        self._count = len(concerned)
        self._within = self._above = 0  # jobs that ended, refused ones included
        # Of a mean: what the jobs take at least, where that is known before they come.
        self._least = sum(job.duration for job in concerned) if target.metric == "completion" else 0.0

    def ended(self, job: JobResult) -> None:
        if self._target.concerns(job.job):
            self._note(_final(self._target.metric, job) - self._zero)
            if self._target.percent is None:
                self._least += _final(self._target.metric, job) - self._zero - self._floor(job)

    def refused(self, job: JobResult) -> None:
        if self._target.concerns(job.job):
            self._note(inf)
            self._least = inf

    def verdict(self, going: Iterable[Going]) -> bool | None:
        """None: still open. `going`: the jobs in the system."""
        above, more = self._above, 0.0
        target = self._target
        for job, age, without in going:
            if not target.concerns(job.job):
                continue
            least = self._so_far(job, age, without)
            above += least > target.limit
            more += max(least - self._floor(job), 0.0)
        if target.percent is None:
            return False if self._count and (self._least + more) / self._count > target.limit else None
        place = (self._count - 1) * target.percent / 100
        below = int(place)
        if self._count and above >= self._count - below:
            return False
        needed = below + (1 if place == below else 2)
        return True if self._within >= min(needed, self._count) else None

    def _so_far(self, job: JobResult, age: float, without: float) -> float:
        if self._target.metric == "completion":
            return max(age, job.job.duration)
        if self._target.metric == "start":
            return age if job.started is None else job.started - self._zero - job.job.submit
        return without

    def _floor(self, job: JobResult) -> float:
        return job.job.duration if self._target.metric == "completion" else 0.0

    def _note(self, value: float) -> None:
        if value <= self._target.limit:
            self._within += 1
        else:
            self._above += 1


def _final(metric: Metric, job: JobResult) -> float:
    """The time of a job whose replay is over, by the clock that its times are of."""
    if job.refused or job.finished is None or job.started is None:
        return inf
    return {
        "wait": lambda: job.queueing,
        "start": lambda: (job.started or 0.0) - job.job.submit,
        "completion": lambda: job.completion,
    }[metric]()


def _unfit(text: str) -> SpecError:
    return SpecError([Problem(f"--target {text!r}", "something else", _EXPECTED, _HINT)], "--target")
