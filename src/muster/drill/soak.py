"""Random faults at an interval, for a while: jobs one after the other, each compared with the undisturbed run."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muster.drill.drill import Drill, ready
from muster.drill.inject import NotInjected
from muster.drill.measure import Result, result_of
from muster.drill.scenario import Case, Scenario
from muster.drill.watch import Stalled, Watch

HOLDS: Final = "Every job ends with the same weights, none is lost, and nothing is left running."
_RETRIES: Final = 1_000_000  # a soak is not to end because the restarts of the job file are spent
_NODE_MOST: Final = 15  # faults of one job that are charged to a node: the platform gives a job 20


@dataclass(slots=True)
class Soak:
    """`every` and `seconds` are in seconds; the same `seed` gives the same faults in the same order."""

    drill: Drill
    scenarios: Sequence[Scenario]
    every: float
    seconds: float
    seed: int
    done: Counter[str] = field(default_factory=Counter)  # faults by scenario
    refused: Counter[str] = field(default_factory=Counter)  # faults that could not be injected, by what was said

    def run(self) -> list[Result]:
        """The result of each job."""
        rng, until, results = random.Random(self.seed), time.monotonic() + self.seconds, []
        retry = self.drill.spec.retry
        on = tuple(dict.fromkeys([*retry.on, "node", "worker", "preempted"]))
        changes = {"retry": retry.model_copy(update={"max_restarts": _RETRIES, "backoff": 0.0, "on": on})}
        while time.monotonic() < until:
            results.append(self._one(rng, until, changes))
        return self.drill.compared(results)

    def _one(self, rng: random.Random, until: float, changes: dict[str, Any]) -> Result:
        drill = self.drill
        job = drill.submit("drill-soak", f"a soak with the seed {self.seed}", changes)
        watch = Watch(drill.client, job, drill.on_look)
        case = Case(drill.client, job.id, drill.setting, watch, pick=rng.choice)
        injected: list[str] = []
        try:
            while time.monotonic() < until:
                due, step = time.monotonic() + self.every, watch.step
                # A fault needs a step that is new, or three attempts without one would end the job.
                if not watch.until(lambda seen, s=step, d=due: _next(seen, s, d)):  # type: ignore[misc]
                    break
                self._inject(rng, case, injected)
            watch.until(lambda seen: False)
        except Stalled as error:
            result = Result("soak", HOLDS, "did not hold", f"the run succeeded: {error}", job.id, ", ".join(injected))
            drill.client.stop(job.id, force=True)
            drill.running.remove(job.id)
            return result
        summary = drill.client.summary(job.id)
        facts = {
            "job": job.id, "fault": f"{len(injected)} faults", "steps_again": summary["steps_repeated"],
            "attempts": summary["attempts"],
        }  # fmt: skip
        checks = drill.checks(watch, None, 0, None)
        drill.running.remove(job.id)
        return result_of("soak", HOLDS, checks, facts)

    def _inject(self, rng: random.Random, case: Case, injected: list[str]) -> None:
        spent = sum(name in ("node", "kill-launcher") for name in injected)
        usable = [one for one in self.scenarios if spent < _NODE_MOST or one.name not in ("node", "kill-launcher")]
        scenario = rng.choice(usable or list(self.scenarios))
        try:
            fault = scenario.inject(case)
        except NotInjected as error:  # the rank was gone already
            self.refused[f"{scenario.name}: {error}"] += 1
            return
        injected.append(scenario.name)
        self.done[scenario.name] += 1
        self.drill.say(f"{case.job}: {fault.text}, at step {case.watch.step}")


def _next(watch: Watch, step: int, due: float) -> bool:
    """Whether it is time for the next fault."""
    return time.monotonic() >= due and watch.step > step and ready(watch, 1)
