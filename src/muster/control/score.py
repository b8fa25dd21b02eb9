"""Scores forecasts of starts: the share of jobs that started before the P50 and before the P90 of their forecast.

Forecasts are calibrated if half of the jobs start before their P50 and nine of ten before their P90. A job that still
waits counts as late once the time has passed. A job that was stopped before it started does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final, cast

from muster.api.why import Calibration, ScoreView
from muster.core.job import Job
from muster.core.job_events import JobForecast
from muster.store.base import EventFilter, JobFilter, Store

MOST: Final = 20_000  # forecasts that are scored, the newest
_PAGE: Final = 500  # jobs per read
_SIZES: Final = ((0.0, "no accelerator"), (1.0, "up to 1"), (8.0, "2 to 8"), (64.0, "9 to 64"))


@dataclass(frozen=True, slots=True)
class Scored:
    """One forecast and the actual start."""

    job: str
    queue: str
    size: str
    at: float  # when the forecast was made
    p50: float
    p90: float | None
    started: float | None  # None: not yet


@dataclass(frozen=True, slots=True)
class Score:
    """Shares are ideally 0.5 and 0.9. Errors are in seconds, of jobs that started; above 0: later than the forecast."""

    jobs: int
    before_p50: float | None
    before_p90: float | None
    counted_p50: int
    counted_p90: int
    error: float | None  # median
    size_of_error: float | None  # median of the absolute error
    wait: float | None  # median seconds from the forecast to the start

    def to_dict(self) -> ScoreView:
        return cast(ScoreView, asdict(self))


def calibration(
    store: Store, since: float, now: float, projects: Sequence[str] | None = None, queue: str | None = None
) -> Calibration:
    """Scores of all forecasts together, by queue and by size."""
    found = [one for one in scored(store, since, projects) if queue in (None, one.queue)]
    return {
        "since": since,
        "now": now,
        "all": score(found, now).to_dict(),
        "queues": {name: score(part, now).to_dict() for name, part in _by(found, lambda one: one.queue).items()},
        "sizes": {name: score(part, now).to_dict() for name, part in _by(found, lambda one: one.size).items()},
    }


def scored(store: Store, since: float, projects: Sequence[str] | None = None) -> list[Scored]:
    """The first forecast of each job, among the newest `MOST`."""
    said: dict[str, JobForecast] = {}
    for event in store.events(EventFilter(projects=projects, kind="job.forecast", last=True, limit=MOST)):
        if event.time >= since and isinstance(event.data, JobForecast):
            said.setdefault(event.job, event.data)
    names, found = list(said), list[Scored]()
    for start in range(0, len(names), _PAGE):
        part = names[start : start + _PAGE]
        for job in store.jobs(JobFilter(ids=part, limit=len(part))):
            if job.attempt is not None or not job.final:
                forecast = said[job.id]
                began = _began(store, job)
                size = size_of(job)
                found.append(Scored(job.id, job.queue, size, forecast.at, forecast.p50, forecast.p90, began))
    return found


def score(found: Iterable[Scored], now: float) -> Score:
    all_ = list(found)
    halves = [one.started is not None and one.started <= one.p50 for one in all_ if one.started or now > one.p50]
    p90s = [(one, one.p90) for one in all_ if one.p90 is not None]
    nines = [one.started is not None and one.started <= p90 for one, p90 in p90s if one.started or now > p90]
    errors = [one.started - one.p50 for one in all_ if one.started is not None]
    waits = [one.started - one.at for one in all_ if one.started is not None]
    return Score(
        len(all_), _share(halves), _share(nines), len(halves), len(nines),
        median(errors) if errors else None, median(map(abs, errors)) if errors else None,
        median(waits) if waits else None,
    )  # fmt: skip


def size_of(job: Job) -> str:
    """The size class of a job, by the accelerators of the whole gang."""
    weight = job.ask.weight * job.spec.num_nodes
    return next((name for most, name in _SIZES if weight <= most), "65 and more")


def _began(store: Store, job: Job) -> float | None:
    """When the first attempt got its seats."""
    if job.attempt is None or job.attempt.number == 1:
        return job.attempt.planned_at if job.attempt else None
    attempts = store.attempts(job.id)
    return attempts[0].planned_at if attempts else None


def _by(found: Iterable[Scored], name: Callable[[Scored], str]) -> dict[str, list[Scored]]:
    groups: dict[str, list[Scored]] = {}
    for one in found:
        groups.setdefault(name(one), []).append(one)
    return dict(sorted(groups.items()))


def _share(hits: list[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None
