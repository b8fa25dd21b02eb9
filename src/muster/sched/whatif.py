"""Prediction for a job that is not submitted yet: where and when it starts, which jobs it preempts, and which changes
would start it sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

import yaml

from muster.api.why import VariantView, WhatIfView
from muster.core.history import groups_of
from muster.core.job import Job, Seat
from muster.core.parse import parse_job
from muster.core.reasons import Reason
from muster.core.spec import JobSpec, ask, dump_job, fewest_nodes
from muster.core.state import State
from muster.core.units import format_accelerators
from muster.sched.explain import Explainer
from muster.sched.forecast import Forecast, forecast_snapshot
from muster.sched.future import Future
from muster.sched.offers import Offer, offers
from muster.sched.snapshot import Snapshot
from muster.sched.unblock import Suggestion, unblock

PROMPT: Final = 60.0  # seconds: a job that starts within them needs no advice
VARIANT_SAMPLES: Final = 6
VARIANT_ROUNDS: Final = 500
RAISED: Final = 75  # priority
SOONER: Final = 0.8  # a variant is proposed only if its wait is below this fraction of the job's own wait


@dataclass(frozen=True, slots=True)
class Variant:
    """The job with a change in its job file, and when it would start then."""

    change: Suggestion
    p50: float | None

    def to_dict(self) -> VariantView:
        return {**self.change.to_dict(), "p50": self.p50}


@dataclass(frozen=True, slots=True)
class WhatIf:
    starts_now: bool
    nodes: tuple[str, ...]  # nodes on which it would start at once, or that are cleared for it
    pool: str
    preempts: tuple[str, ...]  # jobs that would be preempted for it
    reasons: tuple[Reason, ...]  # why it would wait
    forecast: Forecast
    sooner: tuple[Variant, ...]
    waits_for: tuple[Suggestion, ...]  # what else would let it start, without a change of the job file
    offers: tuple[Offer, ...] = ()  # one per pool, where there are several pools

    def to_dict(self) -> WhatIfView:
        return {
            "starts_now": self.starts_now,
            "nodes": list(self.nodes),
            "pool": self.pool,
            "preempts": list(self.preempts),
            "reasons": [one.to_dict() for one in self.reasons],
            "forecast": self.forecast.to_dict(),
            "sooner": [one.to_dict() for one in self.sooner],
            "waits_for": [one.to_dict() for one in self.waits_for],
            "offers": [one.to_dict() for one in self.offers],
        }


def unsubmitted_job(state: State, spec: JobSpec, user: str, now: float, needs: Mapping[str, str] | None = None) -> Job:
    """The job as it would exist if it were submitted now. `needs`: ids of needed jobs, and how each has to end."""
    history, number = state.history, state.next_number
    expect = history.quantile(groups_of(user, spec), 0.5) if history.ends else None
    name = f"{spec.name}-{number}"
    job = Job(name, number, spec.project, spec.queue, user, spec, now, since=now, ask=ask(spec), expect=expect)
    job.needs = tuple((needs or {}).items())
    job.awaits = tuple([needed for needed, _ in job.needs if needed in state.jobs])
    return job


def what_if(snapshot: Snapshot, job: Job, sees: Callable[[Job], bool] = lambda job: True) -> WhatIf:
    """Predicts a job made by `unsubmitted_job` on the snapshot's state. `sees` says which jobs may be named."""
    if job.seatless:
        forecast = Forecast(job.id, snapshot.now, snapshot.now, snapshot.now, 1, considered=len(snapshot.jobs))
        return WhatIf(True, (), "", (), (), forecast, (), (), ())
    future = Future(snapshot, _endless, 0)
    future.settle()
    future.submit(job)
    future.settle()
    state, board = future.state, future.board
    live = state.jobs[job.id]
    explainer = Explainer.of(state, future.now, board, lambda one: one.id == job.id or sees(one), snapshot.ends)
    stops = [(state.jobs[name], stop) for name in state.active if (stop := state.jobs[name].stop) is not None]
    preempts = tuple([explainer.named(one) for one, stop in stops if stop.reason.data.get("for_job") == job.id])
    if live.active and live.attempt is not None:
        seats = tuple([worker.seat for worker in live.attempt.workers])
        forecast = Forecast(job.id, snapshot.now, snapshot.now, snapshot.now, 1, considered=len(snapshot.jobs))
        return WhatIf(
            True, _nodes(seats), board.pool_of(seats), preempts, (), forecast, (), (), tuple(offers(snapshot, job))
        )
    reasons = tuple(explainer.explain(live))
    advice = unblock(explainer, board.waiting.queued[job.id]) if not live.awaits else []
    forecast = forecast_snapshot(snapshot.with_job(job), [job.id])[job.id]
    other = tuple([one for one in advice if "set" not in one.data])
    where = (_nodes(live.claim), board.pool_of(live.claim))
    sooner = _sooner(snapshot, job, forecast, advice)
    return WhatIf(False, *where, preempts, reasons, forecast, sooner, other, tuple(offers(snapshot, job)))


def _sooner(snapshot: Snapshot, job: Job, forecast: Forecast, advice: list[Suggestion]) -> tuple[Variant, ...]:
    """Variants that would start at once. Without any, variants that start clearly sooner in a simulation."""
    if forecast.p50 is not None and forecast.p50 - snapshot.now <= PROMPT:
        return ()
    at_once = tuple([Variant(one, snapshot.now) for one in advice if "set" in one.data])
    if at_once:
        return at_once
    found = []
    for change in _smaller(job.spec):
        spec = changed(job.spec, change.data["set"])
        variant = replace(job, spec=spec, ask=ask(spec))
        p50 = forecast_snapshot(snapshot.with_job(variant), [job.id], VARIANT_SAMPLES, rounds=VARIANT_ROUNDS)[
            job.id
        ].p50
        if p50 is not None and (forecast.p50 is None or p50 - snapshot.now < SOONER * (forecast.p50 - snapshot.now)):
            found.append(Variant(change, p50))
    return tuple(sorted(found, key=lambda one: one.p50 or 0.0))


def _smaller(spec: JobSpec) -> Iterator[Suggestion]:
    """Variants with half of the requested nodes or accelerators, or with a higher priority."""
    fewest, wants = fewest_nodes(spec), spec.resources
    if fewest > 1:
        yield Suggestion("fewer_nodes", f"`num_nodes: {fewest // 2}`", {"set": {"num_nodes": fewest // 2}})
    if wants.accelerators > 1:
        text = format_accelerators(wants.accelerator, wants.accelerators // 2)
        yield Suggestion(
            "fewer_accelerators", f"`accelerators: {text}`", {"set": {"resources": {"accelerators": text}}}
        )
    if spec.priority < RAISED:
        yield Suggestion("raise_priority", "`priority: high`", {"set": {"priority": RAISED}})


def changed(spec: JobSpec, change: dict[str, Any]) -> JobSpec:
    """The spec after a change of fields in its job file."""
    # Scalars stay text, as in a job file.
    written = yaml.load(dump_job(spec), yaml.BaseLoader)  # noqa: S506  (it makes strings, lists and mappings alone)
    return parse_job(change, defaults=written)


def _nodes(seats: tuple[Seat, ...]) -> tuple[str, ...]:
    return tuple([seat.node for seat in seats])


def _endless(job: Job, age: float, sample: int) -> float:
    return inf
