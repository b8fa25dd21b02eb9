"""What must hold of a job that is over after a fault: one function a check."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.client import Client, Job
from muster.drill.leftovers import named, processes_left
from muster.drill.measure import Check, adds_up, from_checkpoint
from muster.drill.scenario import Scenario, Setting

SUCCEEDED: Final = "the run succeeded"
LEDGER_SECONDS: Final = 20.0  # for the ledger of an attempt that has just ended
RECORD_SECONDS: Final = 10.0  # for the last reports of a run that has just ended
POINTS: Final = 100_000  # of a curve that is compared
_OWN_ERROR: Final = "user_error"
_SKIPPED: Final = "skip"  # in the name of a metric: it counts samples that were left out


@dataclass(frozen=True, slots=True)
class Over:
    """A job that is over. `attempt`: the one that the first fault hit. `recovered`: the drill stopped it because it had
    recovered. `reference`: the id of the undisturbed run, if there is one."""

    client: Client
    job: Job
    attempt: int
    recovered: bool
    reference: str

    @property
    def good(self) -> bool:
        return self.job.phase == "succeeded" or self.recovered

    @property
    def told(self) -> str:
        reason = self.job.reason
        return reason.message.partition("\n")[0] if reason and not self.good else ""


def of_scenario(over: Over, scenario: Scenario, seen_at: float | None) -> list[Check]:
    """What the scenario says. `seen_at`: when its fault was noticed."""
    attempts, job = over.client.attempts(over.job.id), over.job
    found = [succeeded(over)]
    if scenario.may_fail:
        found = [finite(over)] if over.good else [says_why(over)]
    if scenario.restarts is True:
        found.append(Check("it was restarted from a checkpoint", from_checkpoint(attempts, over.attempt)))
    if scenario.restarts is False:
        found.append(Check("it was not restarted", len(attempts) == over.attempt, f"{len(attempts)} attempts"))
    if scenario.sees and scenario.restarts is not None:
        found.append(Check("it was noticed", seen_at is not None, f"by {' or '.join(scenario.sees)}"))
    if scenario.causes:
        reason = next((one["reason"] for one in attempts if one["number"] == over.attempt), None)
        code = reason["code"] if reason else ""
        told = reason["message"].partition("\n")[0] if reason else "it did not end"
        found.append(Check(f"the attempt ended as {' or '.join(scenario.causes)}", code in scenario.causes, told))
    if scenario.charged:
        charged = ", ".join(f"{count} as {name}" for name, count in job.restarts.items() if count)
        others = any(count for name, count in job.restarts.items() if name != scenario.charged)
        found.append(Check("the restarts of `retry` are not spent", not others, charged))
    if scenario.whole:
        found.append(record(over))
    return found


def succeeded(over: Over) -> Check:
    return Check(SUCCEEDED, over.good, over.told)


def says_why(over: Over) -> Check:
    """A job that failed: by an error of its own, with a message, and not by a signal or in silence."""
    attempts = over.client.attempts(over.job.id)
    reason = attempts[-1]["reason"] if attempts else None
    clear = reason is not None and reason["code"] == _OWN_ERROR and ": " in reason["message"]
    return Check("it succeeded, or failed with an error that says why", clear, over.told)


def finite(over: Over) -> Check:
    """A job that went on, with its last losses."""
    last = last_losses(over.client, over.job.id)
    bad = [name for name, (_, value) in last.items() if not isinstance(value, int | float) or not math.isfinite(value)]
    if bad:
        return Check(SUCCEEDED, False, f"it went on with a {bad[0]} that is not finite")
    return Check(SUCCEEDED, True)


def skipped(client: Client, job: str) -> str:
    """The metric by which a run reported that it left samples out; "" if it did not."""
    for name in metric_names(client, job):
        values = [value for _, value in curve(client, job, name)]
        if _SKIPPED in name and any(isinstance(value, int | float) and value > 0 for value in values):
            return name
    return ""


def record(over: Over) -> Check:
    """Whether each metric has the steps that it has in the undisturbed run."""
    what = "the record has every report"
    if not over.reference:
        return Check(what, None, "there is no undisturbed run to compare it with")
    until = time.monotonic() + RECORD_SECONDS
    while (missing := missing_reports(over.client, over.job.id, over.reference)) and time.monotonic() < until:
        time.sleep(0.5)
    points = sum(len(steps) for steps in steps_of(over.client, over.job.id).values())
    return Check(what, not missing, ", ".join(missing) or f"{points:,} points")


def missing_reports(client: Client, job: str, reference: str) -> list[str]:
    """The first step that a job's metric lacks of those that the reference has, for each metric."""
    ours, theirs = steps_of(client, job), steps_of(client, reference)
    lost = {name: steps - ours.get(name, set()) for name, steps in theirs.items()}
    return [f"{name} at step {min(steps)}" for name, steps in lost.items() if steps]


def ledger(over: Over) -> Check:
    until = time.monotonic() + LEDGER_SECONDS
    while True:
        found = adds_up(over.client.goodput(over.job.id))
        if found.ok or time.monotonic() > until:
            return found
        time.sleep(0.5)


def left(over: Over, setting: Setting) -> Check:
    """Processes of the job on this machine, or elsewhere its workers by the server's account."""
    job = over.job.id
    if setting.local and setting.engine == "local":
        saved = over.client.job(job).checkpoint
        folder = saved["path"].rpartition("/")[0] if saved is not None else ""
        pids = processes_left([job], setting.server, saves_in=folder)
        return Check("nothing of it is left running", not pids, ", ".join(map(named, pids)))
    workers = [one for each in over.client.attempts(job)[-1:] for one in each["workers"]]
    still = [f"worker on {one['node']}" for one in workers if one["state"] != "ended"]
    return Check("nothing of it is left running", not still, ", ".join(still))


def last_losses(client: Client, job: str) -> dict[str, tuple[int, Any]]:
    """The last step and value of every metric with `loss` in its name."""
    found = {}
    for name in metric_names(client, job):
        if "loss" in name and (points := curve(client, job, name)):
            found[name] = max(enumerate(points), key=lambda item: (item[1][0], item[0]))[1]
    return found


def steps_of(client: Client, job: str) -> dict[str, set[int]]:
    return {name: {step for step, _ in curve(client, job, name)} for name in metric_names(client, job)}


def metric_names(client: Client, job: str) -> list[str]:
    """What the program reported."""
    known: Mapping[str, Any] = client.metrics(job)
    return [name for name in known["names"] if not name.startswith("system/")]


def curve(client: Client, job: str, name: str) -> list[tuple[int, Any]]:
    """Steps and values, in all attempts."""
    found: Mapping[str, Any] = client.metrics(job, name, points=POINTS)
    return [point for one in found["attempts"] for point in zip(one["steps"], one["values"], strict=True)]
