"""What follows when a gang was stopped because it hung: a restart that is charged to the job, or its end."""

from __future__ import annotations

from typing import Any

import pytest

from muster.control.decide import attempt_verdicts
from muster.control.hangs import Hangs
from muster.core.job import Attempt, Job, Seat, StopOrder, Worker
from muster.core.reasons import reason
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.wire import Batch, Pulse, WorkerExit

HUNG = reason("hung", "no step for 45 s (limit 25 s); rank 1 on n0 is behind", ranks=[1])


def after(exit_of: WorkerExit, stop: StopOrder | None, charges: dict[str, int] | None = None, **spec: Any) -> list[Any]:
    """The payloads that follow the end of a gang with this one worker."""
    made = JobSpec(name="gpt", run="true", **spec)
    job = Job("gpt-1", 1, "default", "default", "ada", made, 0.0, phase="stopping", charges=charges or {})
    job.attempt = Attempt(1, 1.0, [Worker(Seat("n0"), "ended", exit_of.to_dict())], running_at=2.0)
    job.stop = stop
    state = State()
    state.jobs[job.id] = job
    return [event.data for event in attempt_verdicts(state, [job.id], 100.0)]


def ended(outcome: Any = "stopped", code: str = "hung") -> WorkerExit:
    return WorkerExit(outcome, code, "", 90.0)


def test_a_gang_that_hung_has_failed_and_its_restart_is_charged_as_a_workers() -> None:
    verdict, follows = after(ended(), StopOrder(HUNG, "queued", 5.0, 80.0))
    assert (verdict.outcome, verdict.reason) == ("failed", HUNG)
    assert (follows.KIND, follows.charge, follows.reason) == ("job.requeued", "worker", HUNG)


def test_a_launcher_that_had_to_be_killed_for_it_changes_nothing() -> None:
    verdict, follows = after(ended("failed", "launcher_lost"), StopOrder(HUNG, "queued", 5.0, 80.0))
    assert (verdict.reason, follows.charge) == (HUNG, "worker")


def test_a_job_that_hangs_again_and_again_fails() -> None:
    spent = {"worker": 3}
    _, follows = after(ended(), StopOrder(HUNG, "queued", 5.0, 80.0), spent)
    assert (follows.KIND, follows.reason.code) == ("job.failed", "restarts_spent")
    assert follows.reason.data["last"]["code"] == "hung"


def test_a_user_who_stops_it_meanwhile_has_the_last_word() -> None:
    stop = StopOrder(reason("user_stop"), "stopped", 5.0, 85.0)
    _, follows = after(ended(), stop)
    assert (follows.KIND, follows.reason.code) == ("job.stopped", "user_stop")


def test_a_gang_that_ends_well_within_its_grace_has_succeeded() -> None:
    _, follows = after(ended("succeeded", "completed"), StopOrder(HUNG, "queued", 5.0, 80.0))
    assert follows.KIND == "job.succeeded"


def test_a_preemption_is_still_charged_as_one() -> None:
    _, follows = after(ended("stopped", "preempted"), StopOrder(reason("preempted"), "queued", 5.0, 80.0))
    assert (follows.KIND, follows.charge) == ("job.requeued", "preempted")


@pytest.mark.parametrize(("outcome", "kinds"), [("succeeded", {"attempt.hung", "job.stopping"}), ("failed", set())])
def test_the_rest_of_a_gang_may_hang_after_one_worker_has_done_its_work(outcome: Any, kinds: set[str]) -> None:
    """If it failed, the gang is on its way out."""
    job = Job(
        "gpt-1", 1, "default", "default", "ada", JobSpec(name="gpt", run="true", num_nodes=2), 0.0, phase="running"
    )
    workers = [Worker(Seat("n0"), "ended", ended(outcome, "completed").to_dict()), Worker(Seat("n1"), "running")]
    job.attempt = Attempt(1, 1.0, workers, running_at=2.0)
    state, hangs, events = State(), Hangs(), list[Any]()
    state.jobs[job.id], state.active[job.id] = job, None
    for beat in range(0, 400, 2):
        batch = Batch(1, "running", clock=float(beat), pulses=(Pulse(1, 0, 0, 1.0, 0, "T"),))
        hangs.take(job.id, 1, batch, (), (), {}, 1000.0 + beat)
        events += hangs.look(state, 1000.0 + beat, lambda name, number: ())
    assert {event.data.KIND for event in events} == kinds
