"""Runs a job undisturbed and once for each scenario, and checks what must hold."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from muster.client import Client, Job, MusterError
from muster.core.errors import Invalid
from muster.core.spec import JobSpec
from muster.drill import weights
from muster.drill.inject import NotInjected
from muster.drill.leftovers import LEFT_SECONDS
from muster.drill.measure import Check, Result, result_of, times
from muster.drill.must_hold import SUCCEEDED, Over, ledger, left, of_scenario, succeeded
from muster.drill.proxy import StoreProxy, endpoint_of
from muster.drill.read_files import ReadFiles
from muster.drill.scenario import Case, Fault, Scenario, Setting
from muster.drill.watch import Stalled, Watch

NO_STEPS: Final = 20.0  # seconds after which a program that reports nothing gets its fault all the same
SETTLED: Final = 10.0  # seconds in which a fault that need not end an attempt has had its effect
_MANY: Final = 3  # further checkpoints after which a step without one is not waited for: it may save every step


def _nothing(text: str) -> None:
    pass


@dataclass(slots=True)
class Drill:
    """One drill of one job. `say` is told what happens; `on_look` sees every look at a running job."""

    client: Client
    spec: JobSpec
    setting: Setting
    say: Callable[[str], None] = _nothing
    on_look: Callable[[Watch], None] = lambda watch: None
    reference: str = ""  # the id of the undisturbed job
    mute: bool = False  # the undisturbed job has reported neither a step nor a checkpoint
    running: list[str] = field(default_factory=list)  # jobs of the drill that may not have ended
    # A job that has gone so many steps beyond what it had reached when it was disturbed is stopped: it recovered.
    enough: int | None = None
    recovered: set[str] = field(default_factory=set)  # jobs that were stopped so

    def run_reference(self) -> str:
        """Runs the job undisturbed. Raises Invalid if it fails by itself."""
        job = self.submit("drill-reference", "a drill: the undisturbed run", {})
        self.say(f"{job.id}: the undisturbed run")
        watch = Watch(self.client, job, self.on_look)
        watch.until(lambda seen: False)
        self.running.remove(job.id)
        if job.phase != "succeeded":
            told = job.reason.message if job.reason else job.phase
            raise Invalid(f"The undisturbed run {job.id} has not succeeded: {told}.", f"See `muster why {job.id}`.")
        self.reference, self.mute = job.id, not (watch.steps or watch.saved)
        return job.id

    def run(self, scenarios: Sequence[Scenario], on_result: Callable[[Result], None]) -> list[Result]:
        """Every scenario in turn, then the comparison of all their weights."""
        results = []
        for scenario in scenarios:
            why = scenario.applies(self.setting)
            result = self._one(scenario) if not why else _not_applicable(scenario, why)
            on_result(result)
            results.append(result)
        return self.compared(results)

    def compared(self, results: Sequence[Result]) -> list[Result]:
        """The results with a check of the weights of each job that succeeded."""
        jobs = [one.job for one in results if one.checks and one.checks[0] == Check(SUCCEEDED, True)]
        if not self.reference or not jobs:
            return list(results)
        self.say("comparing the weights")
        found = weights.compare(self.client, self.spec, self.reference, jobs)
        return [with_check(one, found[one.job]) if one.job in found else one for one in results]

    def submit(self, name: str, purpose: str, changes: Mapping[str, Any]) -> Job:
        update = {"name": name, "purpose": purpose, "tags": {**self.spec.tags, "drill": name}, **changes}
        job = self.client.submit(self.spec.model_copy(update=update), inherit=False)
        self.running.append(job.id)
        return job

    def stop_all(self) -> None:
        """Stops what was not waited for."""
        for job in self.running:
            try:
                self.client.stop(job, force=True)
                self.client.wait(job, timeout=LEFT_SECONDS)
            except (MusterError, TimeoutError):
                self.say(f"{job} could not be stopped; see `muster status {job}`")
        self.running.clear()

    def checks(self, watch: Watch, scenario: Scenario | None, attempt: int, seen_at: float | None) -> list[Check]:
        """What must hold of a job that is over. `attempt`: the one that the first fault hit."""
        over = Over(self.client, watch.job, attempt, watch.job.id in self.recovered, self.reference)
        found = of_scenario(over, scenario, seen_at) if scenario is not None else [succeeded(over)]
        return [*found, ledger(over), left(over, self.setting)]

    def _one(self, scenario: Scenario) -> Result:
        with ExitStack() as stack:
            changes = dict(scenario.change(self.spec)) if scenario.change else {}
            proxy = reads = None
            if scenario.in_proxy and (endpoint := endpoint_of(self.spec.envs)):
                proxy = stack.enter_context(StoreProxy(endpoint[1]))
                changes["envs"] = {**self.spec.envs, endpoint[0]: proxy.url}
            if scenario.sees_reads:
                reads = ReadFiles(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-drill-"))))
                changes["envs"] = reads.install(self.spec.envs)
            job = self.submit(f"drill-{scenario.name}"[:50], f"a drill: {scenario.breaks}", changes)
            self.say(f"{job.id}: {scenario.breaks}")
            watch = Watch(self.client, job, self.on_look)
            case = Case(self.client, job.id, self.setting, watch, proxy=proxy, reads=reads)
            try:
                return self._disturbed(scenario, case)
            except NotInjected as error:
                return self._given_up(scenario, job, "not applicable", str(error))
            except Stalled as error:
                return self._given_up(scenario, job, "did not hold", f"the run succeeded: {error}")

    def _disturbed(self, scenario: Scenario, case: Case) -> Result:
        watch = case.watch
        if not watch.until(lambda seen: ready(seen, scenario.saved, self.mute)):
            told = f"it was over before it had {scenario.saved} checkpoints and a step after them: let it run longer"
            return self._given_up(scenario, watch.job, "not applicable", told)
        attempt, reached = watch.job.attempt, watch.step
        fault = scenario.inject(case)
        self.say(f"{watch.job.id}: {fault.text}")

        def went_on(seen: Watch) -> bool:
            # Until it reports its own, a new attempt shows the last step of the one before, perhaps not seen yet.
            mine = [one.step for one in seen.steps if one.attempt == seen.job.attempt]
            before = [one.step for one in seen.steps if one.attempt < seen.job.attempt]
            moved = self.enough is not None and seen.step_now > max([reached, *before, *mine[:1]]) + self.enough
            restarted = seen.job.attempt > attempt
            return moved and (restarted or (scenario.restarts is not True and time.time() - fault.time > SETTLED))

        watch.until(went_on)
        if scenario.resumes and watch.job.phase in ("failed", "stopped"):
            told = watch.job.reason.message.partition("\n")[0] if watch.job.reason else watch.job.phase
            self.say(f"{watch.job.id}: {watch.job.phase} ({told}); resumed, as a person would")
            self.client.resume(watch.job.id)
            watch.until(went_on)
        if not watch.job.final:
            self.say(f"{watch.job.id}: it went on to step {watch.step_now}; stopped")
            self.recovered.add(watch.job.id)
            _stop(watch.job)
            watch.until(lambda seen: False)
        if case.reads is not None and not case.reads.used:
            return self._given_up(scenario, watch.job, "not applicable", "it did not read its data again")
        return self._judged(scenario, watch, fault, attempt)

    def _judged(self, scenario: Scenario, watch: Watch, fault: Fault, attempt: int) -> Result:
        of_server = self.client.events(kind="server.leads") if "server.leads" in scenario.sees else ()
        events = [*watch.events, *of_server]
        found = times(events, watch.steps, fault.time, attempt, scenario.sees)
        summary = self.client.summary(watch.job.id)
        facts = {
            "job": watch.job.id, "fault": fault.text, "times": found, "steps_again": summary["steps_repeated"],
            "attempts": summary["attempts"],
        }  # fmt: skip
        checks = self.checks(watch, scenario, attempt, found.detected)
        self.running.remove(watch.job.id)
        return result_of(scenario.name, scenario.holds, checks, facts)

    def _given_up(self, scenario: Scenario, job: Job, verdict: Any, why: str) -> Result:
        if not job.refresh().final:
            _stop(job, force=True)
            job.wait(LEFT_SECONDS)
        self.running.remove(job.id)
        return Result(scenario.name, scenario.holds, verdict, why, job.id)


def _stop(job: Job, force: bool = False) -> None:
    with suppress(Invalid):  # it has ended since it was looked at
        job.stop(force=force)


def ready(watch: Watch, saved: int, mute: bool = False) -> bool:
    """Whether the job runs, with so many checkpoints and a step after the last; or for a while, if it is `mute`."""
    job = watch.job
    if job.phase != "running":
        return False
    if mute:
        return time.time() - job.since > NO_STEPS
    after = watch.step_now > max(watch.saved, default=0) or len(watch.saved) > saved + _MANY
    return len(watch.saved) >= saved and watch.step_now > 0 and after


def with_check(result: Result, check: Check) -> Result:
    """The result with one more check."""
    checks = (*result.checks, check)
    if check.ok is False and result.verdict == "held":
        return replace(result, verdict="did not hold", why=f"{check.name}: {check.told}", checks=checks)
    return replace(result, checks=checks)


def _not_applicable(scenario: Scenario, why: str) -> Result:
    return Result(scenario.name, scenario.holds, "not applicable", why)
