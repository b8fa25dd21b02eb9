"""What engines are told beside launches and stops: jobs that are over need nothing that was kept for them."""

from __future__ import annotations

from muster.control.engine_hints import EngineHints
from muster.core.job import Job
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.engines.sim import SimEngine


class KeepingEngine(SimEngine):
    def __init__(self, *jobs: str) -> None:
        super().__init__([], lambda: 0.0)
        self.jobs = list(jobs)

    def kept(self) -> list[str]:
        return list(self.jobs)

    def release(self, job: str) -> None:
        self.jobs.remove(job)


def test_what_was_kept_for_a_job_is_dropped_when_it_is_over() -> None:
    state, engine = State(), KeepingEngine("waits-1", "over-2", "unknown-3")
    for name, phase in (("waits-1", "queued"), ("over-2", "failed")):
        state.jobs[name] = Job(
            name, 1, "default", "default", "ada", JobSpec(name="train", run="true"), 0.0, phase=phase
        )
    hints = EngineHints(engine)
    hints.look_at_kept(state)
    assert len(engine.jobs) == 3, "nothing is done between two commits"
    hints.send()
    assert engine.jobs == ["waits-1"]
    hints.send()
    assert engine.jobs == ["waits-1"]
