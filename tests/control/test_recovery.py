"""What a job is told that had to leave: why, and whether it saved before it went."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from rig import Rig, nodes

from muster.control.ingest import Ingest
from muster.control.recovery import after_end, verdict
from muster.core.job import Attempt, CheckpointMark, Job, StopOrder, Worker
from muster.core.job_events import JobRequeued
from muster.core.reasons import Reason, reason
from muster.core.repair import Repair
from muster.core.seat import Seat
from muster.core.spec import JobSpec, Retry
from muster.engines.slurm.gang import SlurmGang, cause_of, end_of
from muster.engines.slurm.shared import AttemptRecord, Shared
from muster.wire import Batch, RankExit, WorkerExit

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


def test_who_was_told_why_it_has_to_leave_comes_before_who_was_told_that_another_left() -> None:
    died = WorkerExit("stopped", "gang_member_died", "asked to stop", 3.0)
    named = WorkerExit("stopped", "node_lost", "Slurm lost a node of the job", 5.0)
    for ends in permutations((died, named, died)):
        found = verdict(Attempt(1, 0.0, [Worker(Seat(f"n{i}"), exit=end.to_dict()) for i, end in enumerate(ends)]))
        assert found is not None
        assert found[1].code == "node_lost"


@pytest.mark.parametrize("heard", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize("script_is_lost", [False, True])
def test_a_node_that_slurm_lost_is_the_cause_whoever_is_heard_first(
    tmp_path: Path, heard: tuple[int, ...], script_is_lost: bool
) -> None:
    """Worker 1 is lost and leaves no word. The others were told by Slurm to leave; the later one is heard, the earlier
    it ended. Where the script is lost too, nobody says why."""
    rig = Rig(nodes(3))
    job = rig.submit(num_nodes=3)
    rig.tick()
    shared, gang = Shared(tmp_path), SlurmGang((job, 1), AttemptRecord(3, "", "5"))
    shared.folder(gang.key).mkdir(parents=True)
    if not script_is_lost:
        (shared.folder(gang.key) / "told").write_text("*** JOB 5 ON n1 CANCELLED AT 1 DUE TO NODE FAILURE ***")
    ingest = Ingest(rig.store, rig.commit, rig.clock, 1, cause=lambda *key: cause_of(gang, key[:2], key[2], shared))
    for place, worker in enumerate(heard):
        ranks = (RankExit(worker, None, 15, 8.0),)
        outcome = "failed" if script_is_lost else "stopped"
        end = WorkerExit(outcome, "node_lost", "told to leave", 9.0 - place, ranks=ranks)
        if worker == 1:  # found by a look, after or before the order that follows from the first end
            found = end_of(gang, shared, "NODE_FAIL" if script_is_lost else "")[1].exit
            assert found is not None
            end = found
        ingest.accept(job, 1, Batch(worker, "ended", end))
        gang.order, gang.ended = (5.0, "gang_member_died"), None
    attempt = rig.job(job).attempt
    assert attempt is not None
    found_cause = verdict(attempt)
    assert found_cause is not None
    lost = attempt.workers[1].node
    assert (found_cause[1].code, found_cause[1].data["node"]) == ("node_lost", lost), [w.exit for w in attempt.workers]
    rig.close()


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


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (CheckpointMark(7, "step-7", 95.0, 1, attempt=3), "it saved step 7 before it left"),
        (CheckpointMark(7, "step-7", 50.0, 1, attempt=3), "it did not save in the 30 s before it left and goes on"),
        (None, "it has reported no checkpoint and begins again"),
    ],
)
def test_who_was_taken_away_before_the_server_was_told_says_too_whether_it_saved(
    mark: CheckpointMark | None, said: str
) -> None:
    job = Job("j1", 1, "default", "default", "ada", JobSpec(name="train", run="true", stop_grace=30.0), 0.0)
    job.attempt, job.checkpoint = Attempt(3, 10.0, []), mark
    event = after_end(job, "failed", reason("spot_notice", "n1 goes"), 112.0)
    assert isinstance(event.data, JobRequeued)
    assert event.data.charge == "preempted"
    assert event.data.reason.message.startswith(f"n1 goes; {said}")
