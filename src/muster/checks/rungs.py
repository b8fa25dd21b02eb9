"""Judges the jobs that ran as a rung of preflight by what the platform saw of them. Pure: from facts to a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muster.checks.canary import Canary, Planned, check_canary, full_run
from muster.checks.findings import Finding, Level, Report, Result, Status, failed, not_applicable, ok, some, unknown

EQUAL: Final = 0.02  # relative difference of a step's loss after a restart that may come from the hardware's rounding
_STATUS: Final[tuple[Status, ...]] = ("ok", "failed", "not applicable", "unknown")
_HOOK: Final = "Call `muster.train.preflight.run_if_asked(build, batch, loss)` before the training."


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the platform knows of a job that has ended. Series are by step, of each step from its last attempt."""

    id: str
    phase: str
    told: str = ""  # why it ended so
    attempts: int = 1
    resumed_from: int | None = None  # the step of the checkpoint from which the last attempt began
    steps: Sequence[int] = ()
    losses: Sequence[float] = ()
    seconds: Sequence[float] = ()  # of each step
    memory: Sequence[float] = ()  # bytes in use, over time
    capacity: float | None = None  # bytes of a device
    saved: Sequence[int] = ()  # steps of its checkpoints
    metrics: Sequence[str] = ()  # names
    rates: Sequence[float] = ()  # items of the whole job in a second, as the program reported them
    start_up: float = 0.0  # seconds until its first step
    report: Mapping[str, Any] | None = None  # of the program's own checks, as it gave it
    scenario: str = ""  # of a drill
    kind: str = "train"  # of the job
    total: int | None = None  # steps of the full run, as the program gave them


@dataclass(frozen=True, slots=True)
class Evidence:
    """The jobs of a rung, and what is planned of the full run, for a canary."""

    jobs: Sequence[JobFacts]
    price_per_hour: float | None = None
    max_hours: float | None = None
    max_cost: float | None = None
    throughput: float | None = None  # items of the whole job in a second
    told: Mapping[str, Any] = field(default_factory=dict)  # scenario → what a drill says of it


def judge(rung: Level, evidence: Evidence, name: str = "a job") -> Report:
    """A rung has passed if everything that applies is ok, and something applies."""
    results = _JUDGES[rung](evidence)
    about: dict[str, Any] = {"jobs": [job.id for job in evidence.jobs]}
    if rung == "canary" and evidence.jobs:
        job = evidence.jobs[0]
        found = full_run(_canary(job), _planned(job, evidence)) if job.total else None
        about["full_run"] = {"steps": found.steps, "hours": list(found.hours), "cost": found.cost} if found else None
    return Report(name, results, (), about)


def passed(report: Report) -> bool:
    return report.passed and any(result.status == "ok" for result in report.results)


def _unit(evidence: Evidence) -> list[Result]:
    job = evidence.jobs[0]
    if job.report is None:
        if job.phase == "failed":
            return [_result("unit", "checks", failed(f"{job.id} failed: {job.told}", f"See `muster logs {job.id}`."))]
        return [_result("unit", "checks", unknown(f"{job.id} ran no checks of its own", _HOOK))]
    return _reported("unit", job)


def _resume(evidence: Evidence) -> list[Result]:
    straight = evidence.jobs[0]
    if straight.report is not None:
        return _reported("resume", straight)
    if len(evidence.jobs) < 2:
        hint = (
            "Save with `runtime.checkpoint(step)` when `runtime.checkpoint_every()` seconds have passed, which are few "
            "in this rung, and report the steps."
        )
        return [_result("resume", "killed", unknown(f"{straight.id} was over before it could be killed", hint))]
    killed = evidence.jobs[1]
    return [
        _result("resume", "continues", _continues(killed)),
        _result("resume", "same", _same(straight, killed)),
    ]


def _continues(job: JobFacts) -> Finding:
    if job.phase == "failed":
        return failed(f"{job.id} failed after it was killed: {job.told}", f"See `muster logs {job.id}`.")
    if job.attempts < 2:
        return unknown(f"{job.id} was over before it could be killed", "Let it run longer: `--steps`.")
    if job.resumed_from is None:
        hint = "Save with `runtime.checkpoint(step)` and load `runtime.last_checkpoint()` at the start."
        return failed("the attempt after the kill began without a checkpoint", hint)
    return ok(f"it went on from the checkpoint of step {job.resumed_from}", step=job.resumed_from)


def _same(straight: JobFacts, killed: JobFacts) -> Finding:
    if killed.resumed_from is None:
        return unknown("not judged, as continues failed", "Mend continues first.")
    first, again = dict(zip(straight.steps, straight.losses, strict=True)), {}
    for step, loss in zip(killed.steps, killed.losses, strict=True):
        if step > killed.resumed_from and step in first:
            again[step] = loss
    if not again:
        return unknown("no loss was reported for the same steps of both runs", "Let it report its loss in every step.")
    worst = max(again, key=lambda step: _difference(first[step], again[step]))
    apart = _difference(first[worst], again[worst])
    what = f"{len(again)} losses after the restart; the worst, of step {worst}, differs by {apart:.2g}"
    if apart > EQUAL:
        hint = (
            "Save and load the optimizer, the schedule, the random generators and the place in the data; seed what the "
            "program draws at its start."
        )
        return failed(f"{what} ({first[worst]:.6g} undisturbed, {again[worst]:.6g} resumed)", hint, difference=apart)
    return ok(what, difference=apart)


def _smoke(evidence: Evidence) -> list[Result]:
    job = evidence.jobs[0]
    bad = [str(step) for step, loss in zip(job.steps, job.losses, strict=True) if not math.isfinite(loss)]
    if not job.losses and job.kind == "data":
        logged = not_applicable("a data job has no loss")
    elif not job.losses:
        logged = unknown("no step reported a loss", "Report it: `runtime.report(step=step, loss=loss)`.")
    elif bad:
        logged = failed(f"the loss is not finite in steps {some(bad)}", "Look at the steps before.")
    else:
        logged = ok(f"{len(job.losses)} losses, all finite")
    seen = [name for name in job.metrics if any(word in name.lower() for word in ("val", "eval", "test"))]
    return [
        _result("smoke", "ends", _ends(job)),
        _result("smoke", "logs", logged),
        _result("smoke", "saves", ok(f"saved at step {job.saved[-1]}") if job.saved else not_applicable(
            "it saved no checkpoint", "A run that can't be resumed loses all of its work when a node is lost.")),
        _result("smoke", "evaluates", ok(f"measured {some(seen)}") if seen else not_applicable(
            "no metric with val, eval or test in its name")),
    ]  # fmt: skip


def _ends(job: JobFacts) -> Finding:
    if job.phase == "succeeded":
        return ok(f"{job.id} succeeded after {len(job.steps)} steps")
    if job.phase == "stopped" and job.steps:
        return ok(f"{job.id} was stopped after {len(job.steps)} steps")
    return failed(f"{job.id} {job.phase}: {job.told}", f"See `muster why {job.id}` and `muster logs {job.id}`.")


def _failure(evidence: Evidence) -> list[Result]:
    found = []
    for job in evidence.jobs:
        claim = evidence.told.get(job.scenario) or {}
        verdict, why = str(claim.get("verdict", "")), str(claim.get("why", ""))
        if verdict == "held" and job.phase not in ("succeeded", "failed", "stopped"):
            finding = unknown(f"{job.id} is {job.phase}", "Run the rung again.")
        elif verdict == "held":
            finding = ok(f"{job.id} {job.phase} in {job.attempts} attempts")
        elif verdict == "not applicable":
            finding = not_applicable(why or "it does not apply")
        else:
            finding = failed(why or f"{job.id} {job.phase}: {job.told}", f"See `muster why {job.id}`.")
        found.append(_result("failure", job.scenario or job.id, finding))
    return found


def _canary_results(evidence: Evidence) -> list[Result]:
    job = evidence.jobs[0]
    report = check_canary(_canary(job), _planned(job, evidence), name=job.id)
    return [_result("canary", "ends", _ends(job)), *report.results]


def _canary(job: JobFacts) -> Canary:
    return Canary(job.losses, job.seconds, job.memory, None, job.start_up, rates=job.rates)


def _planned(job: JobFacts, evidence: Evidence) -> Planned:
    return Planned(
        steps=job.total or len(job.steps), capacity=job.capacity, price_per_hour=evidence.price_per_hour,
        max_hours=evidence.max_hours, max_cost=evidence.max_cost, items_per_second=evidence.throughput,
    )  # fmt: skip


def _reported(rung: Level, job: JobFacts) -> list[Result]:
    """What the program's own checks found. The report comes from the program: nothing in it is trusted to be there."""
    reports = job.report.get("reports") if job.report is not None else None
    found = []
    for one in reports if isinstance(reports, list) else ():
        checks = one.get("checks") if isinstance(one, Mapping) else None
        found += [_read(rung, each) for each in checks if isinstance(each, Mapping)] if isinstance(checks, list) else []
    if not found:
        return [_result(rung, "checks", unknown(f"the report of {job.id} has no checks", f"`muster logs {job.id}`."))]
    ended = ok("ended in order") if job.phase == "succeeded" else failed(f"{job.id} {job.phase}: {job.told}", "")
    if ended.status == "failed" and any(one.status in ("failed", "unknown") for one in found):
        return found  # a failed check is why it failed
    return [*found, _result(rung, "ends", ended)]


def _read(rung: Level, each: Mapping[str, Any]) -> Result:
    status: Status = next((known for known in _STATUS if known == each.get("status")), "unknown")
    texts = {name: str(each.get(name, ""))[:1000] for name in ("name", "proves", "detail", "hint")}
    return Result(rung, texts["name"][:60], texts["proves"], Finding(status, texts["detail"], texts["hint"]))


def _result(rung: Level, name: str, finding: Finding) -> Result:
    return Result(rung, name, _PROVES.get((rung, name), ""), finding)


def _difference(one: float, other: float) -> float:
    if not (math.isfinite(one) and math.isfinite(other)):
        return 0.0 if str(one) == str(other) else math.inf
    return abs(one - other) / max(abs(one), abs(other), 1e-12)


_JUDGES: Final[Mapping[Level, Callable[[Evidence], list[Result]]]] = {
    "unit": _unit, "resume": _resume, "smoke": _smoke, "failure": _failure, "canary": _canary_results,
}  # fmt: skip
_PROVES: Final[Mapping[tuple[Level, str], str]] = {
    ("unit", "checks"): "The program checks itself.",
    ("resume", "continues"): "A killed run goes on from its checkpoint.",
    ("resume", "same"): "The steps after the restart are those of an undisturbed run.",
    ("smoke", "ends"): "The job's own command reaches its end.",
    ("smoke", "logs"): "It reports a finite loss.",
    ("smoke", "saves"): "It commits a checkpoint.",
    ("smoke", "evaluates"): "It evaluates.",
    ("canary", "ends"): "The job ran to the limit that was set.",
}
