"""What a job is told that had to leave: why, and whether it saved before it went."""

from __future__ import annotations

from muster.control.recovery import after_end, verdict
from muster.core.job import Attempt, CheckpointMark, Job, StopOrder, Worker
from muster.core.job_events import JobRequeued
from muster.core.reasons import Reason, reason
from muster.core.repair import Repair
from muster.core.seat import Seat
from muster.core.spec import JobSpec, Retry
from muster.wire import WorkerExit

OUT_OF_DEVICE_MEMORY = WorkerExit(
    "failed", "device_out_of_memory", "rank 3 asked for 60 GiB on GPU 0; 39 GiB was free\nTraceback ...", 5.0, 3, 1
)
WHY = reason("preempted", "j2 goes first", for_job="j2")


def told(mark: CheckpointMark | None) -> dict[str, object]:
    job = Job("j1", 1, "default", "default", "ada", JobSpec(name="train", run="true"), 0.0)
    job.attempt = Attempt(3, 10.0, [])
    job.stop = StopOrder(WHY, "queued", 30.0, at=100.0)
    job.checkpoint = mark
    event = after_end(job, "stopped", WHY, 112.0)
    assert event.kind == "job.requeued"
    return event.data.to_doc()["reason"]


def test_a_device_without_memory_fails_the_job_with_what_was_asked_and_the_ways_out() -> None:
    attempt = Attempt(1, 10.0, [Worker(Seat("gpu-1"), exit=OUT_OF_DEVICE_MEMORY.to_dict())])
    found = verdict(attempt)
    assert found is not None
    outcome, cause = found
    assert (outcome, cause.code, cause.category) == ("failed", "device_out_of_memory", "error")
    assert cause.message == (
        "an accelerator had no memory left (gpu-1): rank 3 asked for 60 GiB on GPU 0; 39 GiB was free"
    )
    assert "smaller batch" in cause.hint
    job = Job("j1", 1, "default", "default", "ada", JobSpec(name="train", run="true"), 0.0)
    job.attempt = attempt
    assert after_end(job, outcome, cause, 12.0).kind == "job.failed", "it would die of the same again"


def test_who_was_told_to_leave_with_its_gang_is_never_the_cause() -> None:
    """A node that is lost is found later than those that left because of it."""
    left = WorkerExit("failed", "gang_member_died", "asked to stop", 5.0)
    lost = WorkerExit("failed", "node_lost", "Slurm lost a node of the job", 9.0)
    workers = [Worker(Seat(f"n{i}"), exit=end.to_dict()) for i, end in enumerate((left, lost, left))]
    found = verdict(Attempt(1, 0.0, workers))
    assert found is not None
    assert (found[1].code, found[1].data["node"]) == ("node_lost", "n1")


def test_a_gang_that_asks_for_fewer_nodes_before_it_ran_is_told_nothing_of_checkpoints() -> None:
    job = Job("j1", 1, "default", "default", "ada", JobSpec(name="train", run="true"), 0.0)
    job.attempt = Attempt(1, 10.0, [])
    job.stop = StopOrder(reason("resizing", "asks for 2 of 3 nodes"), "queued", 0.0, at=30.0)
    found = after_end(job, "stopped", job.stop.reason, 31.0).data.to_doc()["reason"]
    assert (found["message"], found["data"]) == ("asks for 2 of 3 nodes", {"saved": False})


def test_it_saved_when_it_was_asked() -> None:
    found = told(CheckpointMark(120, "step-120", 104.0, 1, attempt=3))
    assert found["message"] == "j2 goes first; it saved step 120 before it left"
    assert found["data"] == {"for_job": "j2", "saved": True}


def test_it_went_without_saving() -> None:
    found = told(CheckpointMark(80, "step-80", 60.0, 1, attempt=3))
    assert found["message"] == "j2 goes first; it did not save in the 12 s before it left and goes on from step 80"
    assert found["data"]["saved"] is False


def test_what_an_earlier_attempt_saved_is_not_an_answer() -> None:
    assert told(CheckpointMark(80, "step-80", 104.0, 1, attempt=2))["data"]["saved"] is False


def test_it_never_saved() -> None:
    assert told(None)["message"] == "j2 goes first; it has reported no checkpoint and begins again"


def test_a_killed_rank_whose_attempt_went_further_starts_again_at_once_and_others_wait() -> None:
    killed, error = reason("killed_by_signal", "rank 0 was killed"), reason("user_error", "rank 0 ended with 1")
    job = Job("j1", 1, "default", "default", "ada", JobSpec(name="train", run="true"), 0.0)
    job.spec = job.spec.model_copy(update={"retry": Retry(on=("worker", "error"), backoff=10.0)})
    job.attempt = Attempt(2, 10.0, [])
    job.charges = {"worker": 1}
    job.repair = Repair(step=50)

    def waits(cause: Reason, step: int | None) -> float:
        event = after_end(job, "failed", cause, 100.0, step)
        assert isinstance(event.data, JobRequeued)
        return event.data.not_before - 100.0

    assert waits(killed, 51) == 0.0
    assert waits(killed, 50) == 20.0
    assert waits(killed, None) == 20.0
    assert waits(error, 51) == 20.0
