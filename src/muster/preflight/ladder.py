"""Runs the rungs of preflight for one job, each as one job or several, and has the server judge them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from muster.api.preflight import PreflightPlan, RungPlan, RungVerdict
from muster.api.words import Rung
from muster.client import Client, Job
from muster.core.errors import Invalid, MusterError
from muster.core.parse import parse_job
from muster.core.spec import JobSpec, Preflight
from muster.drill.drill import Drill
from muster.drill.measure import Result
from muster.drill.scenario import Setting
from muster.drill.scenarios import find
from muster.drill.watch import POLL, Stalled, Watch

KILLED: Final = "kill-rank"  # what the rung `resume` does to a job
FAILURES: Final = (
    "kill-rank", "damaged-checkpoint", "full-disk", "host-memory", "device-memory", "corrupt-sample",
    "server-unreachable", "peer-reset", "store-refuses",
)  # fmt: skip
ENOUGH: Final = 10  # steps beyond those before a fault that show that a job has recovered
PAST: Final = 2  # steps past its limit after which a program that knows no limit is stopped
NO_CHECKS: Final = 3  # steps after which a job of the rung `unit` is training instead of checking
GRACE: Final = 30.0  # seconds beyond a job's own `max_duration` that its start and end may take


def _nothing(text: str) -> None:
    pass


@dataclass(slots=True)
class Ladder:
    """`say` is told what happens; `on_look` sees every look at a running job."""

    client: Client
    spec: JobSpec
    plan: PreflightPlan
    engine: str = "local"  # the kind of the engine
    local: bool = True  # the server is on this machine
    say: Callable[[str], None] = _nothing
    on_look: Callable[[Watch], None] = lambda watch: None
    running: list[str] = field(default_factory=list)  # jobs that may not have ended

    def run(self, rung: Rung) -> RungVerdict:
        """Raises MusterError if a job can't be submitted."""
        planned = next(one for one in self.plan["rungs"] if one["rung"] == rung)
        spec = parse_job(planned["job"], source=f"the rung {rung}")
        if rung == "resume":
            return self._resume(spec)
        if rung == "failure":
            return self._failure(spec)
        job = self._ended(rung, spec)
        return self._judged(rung, [job.id])

    def stop_all(self) -> None:
        """Stops what was not waited for."""
        for job in self.running:
            try:
                self.client.stop(job, force=True)
            except MusterError:
                self.say(f"{job} could not be stopped; see `muster status {job}`")
        self.running.clear()

    def _ended(self, rung: Rung, spec: JobSpec) -> Job:
        """One job of a rung, when it is over. A program that does not know the rung's limit is stopped past it."""
        job = self.client.submit(spec, inherit=False)
        self.running.append(job.id)
        self.say(f"{job.id}: {spec.run.splitlines()[0][:80]}")
        assert spec.preflight is not None
        most = NO_CHECKS if rung == "unit" else spec.preflight.steps
        watch = Watch(self.client, job, self.on_look, patience=(spec.max_duration or 0.0) + GRACE)
        try:
            if watch.until(lambda seen: most is not None and seen.step_now >= most + PAST):
                self.say(f"{job.id}: stopped after {watch.step_now} steps")
                job.stop()
                watch.until(lambda seen: False)
        except Stalled as error:
            self.say(f"{job.id}: {error}")
            job.stop(force=True)
            job.wait(GRACE)
        self.running.remove(job.id)
        return job

    def _resume(self, spec: JobSpec) -> RungVerdict:
        """The program's own checks, if it has some. Else the job with a rank killed, and then undisturbed to the same
        step."""
        killed = self._drilled(spec, (KILLED,))[0].job
        first = self._judged("resume", [killed])
        steps = self._last_step(killed)
        if first["findings"][0]["name"] != "killed" or not steps:
            return first
        preflight = Preflight(rung="resume", steps=steps)
        straight = self._ended("resume", spec.model_copy(update={"preflight": preflight}))
        return self._judged("resume", [straight.id, killed])

    def _last_step(self, job: str) -> int:
        progress = self.client.job(job).progress
        return int(progress["step"] or 0) if progress is not None else 0

    def _failure(self, spec: JobSpec) -> RungVerdict:
        results = [one for one in self._drilled(spec, FAILURES) if one.job]
        if not results:
            raise Invalid("No fault applies to this job.", "See `muster drill --list`.")
        told = {one.scenario: {"verdict": one.verdict, "why": one.why} for one in results}
        return self._judged("failure", [one.job for one in results], told)

    def _drilled(self, spec: JobSpec, names: tuple[str, ...]) -> list[Result]:
        drill = Drill(self.client, spec, Setting(spec, self.engine, self.local), self.say, self.on_look)
        drill.running, drill.enough = self.running, ENOUGH  # what is left is stopped with the rest
        return drill.run(find(names), lambda result: self.say(_line(result)))

    def _judged(self, rung: Rung, jobs: list[str], told: Mapping[str, Mapping[str, str]] | None = None) -> RungVerdict:
        time.sleep(POLL)  # the last figures of a job are written with its end
        return self.client.certify(self.spec, rung, jobs, told=told, inherit=False)


def due(plan: PreflightPlan, wanted: tuple[Rung, ...], again: bool) -> list[RungPlan]:
    """The rungs to run, in the ladder's order: those that are wanted, or all, without those that hold already."""
    rungs = [one for one in plan["rungs"] if not wanted or one["rung"] in wanted]
    return [one for one in rungs if again or one["certificate"] is None]


def _line(result: Result) -> str:
    why: Any = f": {result.why}" if result.why else ""
    return f"{result.scenario}: {result.verdict}{why}"
