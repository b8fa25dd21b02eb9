"""Certificates of preflight: the jobs of a rung are judged by their record, and what was found is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from muster.api.words import FINAL, Rung
from muster.checks.findings import Report
from muster.checks.rungs import Evidence, JobFacts, judge, passed
from muster.control.admission.certificate import certificate_for
from muster.core.entities.certificate import CERTIFICATES, PreflightPassed, PreflightRevoked, PreflightWaived
from muster.core.entities.price_book import prices_of
from muster.core.errors import Invalid, NotFound
from muster.core.event import Event
from muster.core.job import Job
from muster.core.preflight import PARTS, THROUGHPUT, TOUCHES, Part, is_rung_of, parts_of, throughput_of
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.cost.budgets import amount_of, held_by
from muster.monitor.damage import LOSSES
from muster.store.base import Entry, Proposal, Store
from muster.track.tracking import Tracking
from muster.wire import PREFLIGHT_REPORT

REPORT_BYTES: Final = 4 << 20
STEPS_MAX: Final = 100_000  # of a series that is judged
_STEP_SECONDS: Final = "step_s"
_MEMORY: Final = ("system/gpu_memory", "system/gpu_memory_share")
_SCENARIO: Final = "drill"  # the tag of a drill's jobs: `drill-NAME`
_FACTS: Final = 40  # findings that an event keeps


@dataclass(frozen=True, slots=True)
class Claim:
    """What is asked for: that these jobs are the rung of this job. `told`: what a drill found, by scenario."""

    spec: JobSpec
    rung: Rung
    jobs: Sequence[Job]
    told: Mapping[str, Any]


def check_claim(claim: Claim, code: str) -> str:
    """The digest of the code that the jobs ran. Raises Invalid for jobs that are not this rung of this job."""
    if not claim.jobs:
        raise Invalid("No job is named.", "Name those that ran as the rung.")
    for job in claim.jobs:
        if job.phase not in FINAL:
            raise Invalid(f"Job {job.id} is {job.phase}.", f"Wait for its end: `muster wait {job.id}`.")
        if not is_rung_of(job.spec, claim.spec, claim.rung):
            what = f"it is not the rung {claim.rung} of {claim.spec.name!r}"
            raise Invalid(f"Job {job.id} proves nothing: {what}.", "`muster preflight JOB_FILE` runs the right ones.")
    trees = {job.code for job in claim.jobs}
    if trees != {code} or not code:
        what = "no snapshot of its code was taken" if not code else "they did not run the code that the job has"
        raise Invalid(f"No certificate: {what}.", "Run them again from the job's `workdir`.")
    return code


def judged(store: Store, track: Tracking, claim: Claim, now: float) -> Report:
    """The verdict on the jobs, by their record."""
    job, spec = claim.jobs[0], claim.spec
    price = None
    if job.attempt is not None:
        price = prices_of(store.state()).hourly(job.attempt.pool, held_by(job), now)
    budget = amount_of(spec.budget)
    evidence = Evidence(
        [facts_of(store, track, one) for one in claim.jobs],
        price_per_hour=price / 1e6 if price else None,
        max_hours=spec.max_duration / 3600 if spec.max_duration is not None else None,
        max_cost=budget / 1e6 if budget is not None else None,
        throughput=throughput_of(spec),
        told=claim.told,
    )
    return judge(claim.rung, evidence, spec.name)


def facts_of(store: Store, track: Tracking, job: Job) -> JobFacts:
    """What the record has of a job that has ended."""
    names = [one.name for one in track.metrics.series(job.id)]
    loss = next((name for name in sorted(LOSSES) if name in names), None)
    points = track.metrics.points(job.id, loss) if loss is not None else None
    steps = points.step[:STEPS_MAX].tolist() if points is not None else []
    times = points.time[:STEPS_MAX] if points is not None else np.zeros(0)
    began = next((one["running_at"] for one in track.runs.attempts(job.id) if one.get("running_at")), None)
    memory = next((name for name in _MEMORY if name in names), None)
    rate = next((name for name in THROUGHPUT if name in names), None)
    doc = store.run(job.id).get("progress") or {}
    total = doc.get("total")
    return JobFacts(
        job.id, job.phase, job.reason.message if job.reason is not None else "",
        attempts=job.attempt.number if job.attempt is not None else 0,
        resumed_from=job.attempt.from_step if job.attempt is not None else None,
        steps=steps,
        losses=points.value[:STEPS_MAX].tolist() if points is not None else [],
        seconds=_seconds(track, job, names, times, steps),
        memory=track.metrics.points(job.id, memory).value[:STEPS_MAX].tolist() if memory is not None else [],
        capacity=1.0 if memory == _MEMORY[1] else _capacity(track, job.id),
        saved=track.runs.saved_steps(job.id),
        metrics=names,
        rates=track.metrics.points(job.id, rate).value[:STEPS_MAX].tolist() if rate is not None else [],
        start_up=max(0.0, float(times[0]) - began) if began is not None and len(times) else 0.0,
        report=_report(track, job.id),
        scenario=job.spec.tags.get(_SCENARIO, "").removeprefix("drill-"),
        kind=job.spec.kind,
        total=int(total) if isinstance(total, int | float) and 0 < total < 2**53 else None,
    )  # fmt: skip


def issue(store: Store, claim: Claim, code: str, report: Report, actor: str, now: float) -> Proposal:
    """The certificate of a rung that has passed."""
    assert passed(report)
    findings = [
        {"name": one.name, "status": one.status, "detail": one.finding.detail[:500]} for one in report.results[:_FACTS]
    ]
    facts: dict[str, Any] = {"findings": findings}
    if report.about.get("full_run"):
        facts["full_run"] = report.about["full_run"]
    jobs, parts = [job.id for job in claim.jobs], parts_of(claim.spec, code)
    named = _named(parts)

    def propose(state: State) -> Entry:
        known = certificate_for(claim.rung, claim.spec, code, state)
        if known is not None and known.jobs == jobs:  # the request was sent again
            return Entry()
        made = PreflightPassed(
            _id(claim.rung, parts, now),
            claim.rung,
            claim.spec.name,
            named,
            jobs,
            facts,
        )
        return Entry([Event(made, max(now, state.time), actor, claim.spec.project)])

    return propose


def waive(spec: JobSpec, rungs: Sequence[Rung], code: str, why: str, actor: str, now: float) -> Proposal:
    parts = parts_of(spec, code)
    named = _named(parts)

    def propose(state: State) -> Entry:
        made = [PreflightWaived(_id(rung, parts, now), rung, spec.name, named, why) for rung in rungs]
        return Entry([Event(one, max(now, state.time), actor, spec.project) for one in made])

    return propose


def revoke(certificate: str, why: str, actor: str, now: float) -> Proposal:
    def propose(state: State) -> Entry:
        known = CERTIFICATES.all(state).get(certificate)
        if known is None:
            raise NotFound(f"There is no certificate {certificate!r}.", "See `muster preflight ls`.")
        return Entry([Event(PreflightRevoked(certificate, why), max(now, state.time), actor, known.project)])

    return propose


def _named(parts: Mapping[Part, str]) -> dict[str, Any]:
    return {str(part): digest for part, digest in parts.items()}


def _id(rung: Rung, parts: Mapping[Part, str], now: float) -> str:
    text = json.dumps([rung, [parts[part] for part in PARTS if part in TOUCHES[rung]], now])
    return f"{rung}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _seconds(track: Tracking, job: Job, names: Sequence[str], times: Any, steps: Sequence[int]) -> list[float]:
    """Of each step: what the program reported, else the time between its reports."""
    if _STEP_SECONDS in names:
        return [float(each) for each in track.metrics.points(job.id, _STEP_SECONDS).value[:STEPS_MAX]]
    if len(steps) < 2:
        return []
    apart = np.diff(times) / np.maximum(1, np.diff(np.asarray(steps)))
    return [float(each) for each in apart if each >= 0]


def _capacity(track: Tracking, run: str) -> float | None:
    """The memory of its smallest device, as its driver gave it."""
    attempts = track.runs.attempts(run)
    environment = attempts[-1].get("environment") if attempts else None
    devices = environment.get("devices") if isinstance(environment, dict) else None
    found = [
        float(one["memory"])
        for one in (devices if isinstance(devices, list) else ())
        if isinstance(one, dict) and isinstance(one.get("memory"), int | float)
    ]
    return min(found, default=None)


def _report(track: Tracking, run: str) -> Mapping[str, Any] | None:
    kept = track.artifacts.get(run, PREFLIGHT_REPORT)
    if kept is None or (kept.bytes or 0) > REPORT_BYTES:
        return None
    try:
        found = json.loads(b"".join(track.artifacts.open(kept)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
