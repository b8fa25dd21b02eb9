"""What a launcher hears in the answer to a batch: to stop, or that it is given up; and who knows why it left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rig import KILLED, OK, Rig, nodes
from test_ingest import LIMIT, batch, ingest_of, started

from muster.control.ingest import Ingest
from muster.core.attempt_events import CheckpointCommitted
from muster.core.event import Event
from muster.core.reasons import REASONS
from muster.store.registry import open_store
from muster.wire import Batch, Command, Piece, WorkerExit, doc_record

LEFT = WorkerExit("failed", "node_lost", "the launcher was told to leave its node", 0.0)


@pytest.fixture
def rig(tmp_path: Path):
    made = Rig(store=open_store(f"sqlite:///{tmp_path}/m.db"))
    yield made
    made.close()
    made.store.close()


def test_a_worker_that_runs_hears_that_it_is_to_stop_and_how_long_it_has(rig: Rig) -> None:
    job, ingest = started(rig, num_nodes=2)
    assert [ingest.accept(job, 1, batch(worker=worker)).command for worker in (0, 1)] == [None, None]
    rig.stop(job, grace=30.0)
    rig.clock.time += 12.0
    first = ingest.accept(job, 1, batch(worker=0)).command
    assert first == Command(first.id, "stop", "user_stop", 18.0)
    rig.clock.time += 100.0
    assert ingest.accept(job, 1, batch(worker=1)).command == Command(first.id, "stop", "user_stop", 0.0)
    assert ingest.accept(job, 1, batch(worker=0, ended=OK)).command is None


def test_a_worker_hears_which_of_its_checkpoints_others_have_yet_to_start_from(rig: Rig) -> None:
    job, ingest = started(rig)
    assert ingest.accept(job, 1, batch()).keep == ()
    rig.tell(
        Event(CheckpointCommitted(30, f"/c/{job}/step-000000030", 1), rig.clock.now(), "muster", "default", job, 1)
    )
    starts = [rig.submit(name="tune", start_from=text) for text in (f"{job}@20", f"{job}@10", f"{job}@20", job)]
    assert ingest.accept(job, 1, batch()).keep == (10, 20)
    for one in starts[1:]:
        rig.stop(one)
    assert ingest.accept(job, 1, batch()).keep == (20,)
    rig.tick()
    attempt = rig.job(starts[0]).attempt
    assert attempt is not None
    doc = {
        "type": "taken",
        "step": 20,
        "path": "/c/x/step-000000020",
        "bytes": 5,
        "how": "link",
        "why": "",
        "time": 1.0,
    }
    ingest.accept(starts[0], 1, Batch(0, "running", None, (Piece(0, "host", 0, doc_record(doc)),)))
    found = rig.job(starts[0])
    assert (found.start.taken, found.checkpoint.path) == (20, "/c/x/step-000000020")
    assert ingest.accept(job, 1, batch()).keep == ()
    assert rig.kinds(starts[0]).count("checkpoint.taken") == 1
    again = doc_record(doc)
    ingest.accept(starts[0], 1, Batch(0, "running", None, (Piece(0, "host", len(again), again),)))
    assert rig.kinds(starts[0]).count("checkpoint.taken") == 1, "the same report again"


def test_a_worker_hears_that_its_gang_is_broken(rig: Rig) -> None:
    job, ingest = started(rig, num_nodes=2)
    ingest.accept(job, 1, batch(worker=0))
    ingest.accept(job, 1, batch(worker=1, ended=KILLED))
    heard = ingest.accept(job, 1, batch(worker=0)).command
    assert heard == Command(heard.id, "stop", "gang_member_died", 5.0)
    rig.clock.time += 1.0
    rig.stop(job, grace=5.0)
    assert ingest.accept(job, 1, batch(worker=0)).command.id > heard.id, "a later order is not heard"


def test_a_worker_whose_peer_has_done_its_work_hears_nothing(rig: Rig) -> None:
    job, ingest = started(rig, num_nodes=2)
    ingest.accept(job, 1, batch(worker=0))
    ingest.accept(job, 1, batch(worker=1, ended=OK))
    assert ingest.accept(job, 1, batch(worker=0)).command is None


def test_a_later_order_has_a_later_number(rig: Rig) -> None:
    job, ingest = started(rig, retry={"backoff": 0})
    ids = []
    for number in (1, 2):
        ingest.accept(job, number, batch())
        rig.stop(job, grace=5.0)
        ids.append(ingest.accept(job, number, batch()).command.id)
        rig.end(job, KILLED)
        rig.tick(3, seconds=1.0)
        if number == 1:
            rig.resume(job)
            rig.tick(3)
    assert ids[0] < ids[1]


def test_a_worker_that_was_given_up_is_told_to_go_at_once(rig: Rig) -> None:
    """Its node was away: the next attempt runs, and what this one holds may be another's."""
    job, ingest = started(rig, retry={"backoff": 0})
    ingest.accept(job, 1, batch())
    rig.end(job, KILLED)
    rig.tick(3)
    assert rig.job(job).attempt.number == 2
    old, new = ingest.accept(job, 1, batch()).command, ingest.accept(job, 2, batch()).command
    assert (old.kind, new) == ("kill", None)
    rig.stop(job, grace=5.0)
    assert ingest.accept(job, 2, batch()).command.id < old.id
    rig.end(job)
    rig.tick(3)
    assert rig.job(job).final
    assert ingest_of(rig).accept(job, 2, batch()).command == old


def test_where_a_worker_ran_is_known_even_if_it_ends_before_the_engine_says_so(tmp_path: Path) -> None:
    """A cluster chooses the machine, and a short job is over before anyone has looked."""
    slot, machine = nodes(2)
    listed = [replace(slot, name="main/1", role="slot"), replace(machine, name="m1", role="machine")]
    rig = Rig(listed, store=open_store(f"sqlite:///{tmp_path}/slots.db"))
    try:
        job, ingest = started(rig)
        ingest.accept(job, 1, replace(batch(), node="elsewhere"))  # not a machine of the cluster
        assert rig.job(job).attempt.workers[0].at == ""
        ingest.accept(job, 1, replace(batch(ended=OK), node="m1"))
        rig.tick()
        ended = rig.job(job)
        assert (ended.phase, ended.attempt.workers[0].node) == ("succeeded", "m1")
        assert rig.kinds(job).count("worker.placed") == 1
    finally:
        rig.close()
        rig.store.close()


def knowing(rig: Rig, answer: object) -> tuple[Ingest, list[tuple[str, int, int]]]:
    asked = []

    def cause(job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        asked.append((job, attempt, worker))
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Ingest(rig.store, rig.commit, rig.clock, LIMIT, None, cause), asked


def test_the_engine_may_know_why_a_worker_was_told_to_leave(rig: Rig) -> None:
    job, _ = started(rig, retry={"backoff": 0})
    ingest, asked = knowing(rig, ("preempted", "a job of higher priority took its node"))
    ingest.accept(job, 1, batch())
    ingest.accept(job, 1, batch(ended=LEFT))
    assert asked == [(job, 1, 0)]
    (ended,) = [event for event in rig.events if event.kind == "worker.ended"]
    assert (ended.data.exit["reason"], ended.data.exit["detail"]) == (
        "preempted",
        "a job of higher priority took its node",
    )
    rig.engine.end(job, 1, LEFT)
    rig.tick(3)
    assert rig.job(job).charges == {"preempted": 1}


@pytest.mark.parametrize("answer", [None, RuntimeError("the cache is gone")])
def test_an_engine_that_knows_nothing_leaves_the_workers_word(rig: Rig, answer: object) -> None:
    job, _ = started(rig)
    ingest, _ = knowing(rig, answer)
    ingest.accept(job, 1, batch(ended=LEFT))
    (ended,) = [event for event in rig.events if event.kind == "worker.ended"]
    assert ended.data.exit["reason"] == "node_lost"


def test_of_any_other_end_the_engine_is_not_asked(rig: Rig) -> None:
    job, _ = started(rig)
    ingest, asked = knowing(rig, ("preempted", ""))
    ingest.accept(job, 1, batch(ended=KILLED))
    assert asked == []


def test_the_code_for_a_lost_node_is_one_of_the_list() -> None:
    assert LEFT.reason in REASONS
