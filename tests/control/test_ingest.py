"""What launchers ship is stored once, however often and however cut it arrives, and late words change nothing."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig import KILLED, OK, Rig

from metric_kit import PointIntake
from muster.control.ingest import Ingest
from muster.control.shipping import LATE
from muster.core.entities.rules_in_force import RulesSet
from muster.core.errors import Invalid, NotFound, Unavailable
from muster.core.event import Event
from muster.store.registry import open_store
from muster.track.metrics import Metrics
from muster.track.record_db import RecordDb
from muster.wire import Batch, Piece, WorkerExit, doc_record, row_struct, shape_record

LIMIT = 1 << 20


def rows(*steps: int) -> bytes:
    layout = row_struct(1)
    return b"".join(layout.pack(1, 0, layout.size, step, float(step), step / 10) for step in steps)


SPOOL = (
    shape_record(0, ("loss",)) + rows(1, 2, 3) + doc_record({"type": "progress", "time": 5.0, "step": 3, "total": 9})
)


@pytest.fixture
def rig(tmp_path: Path):
    made = Rig(store=open_store(f"sqlite:///{tmp_path}/m.db"))
    yield made
    made.close()
    made.store.close()


def started(rig: Rig, **spec: object) -> tuple[str, Ingest]:
    job = rig.submit(**spec)
    rig.tick(1)
    return job, ingest_of(rig)


def ingest_of(rig: Rig) -> Ingest:
    """With a record, where there is a database to keep it in."""
    database = rig.store.database
    keeper = PointIntake(Metrics(RecordDb(database, rig.commit, rig.clock.now))) if database is not None else None
    return Ingest(rig.store, rig.commit, rig.clock, LIMIT, keeper)


def batch(*pieces: Piece, worker: int = 0, ended=None) -> Batch:
    return Batch(worker, "ended" if ended else "running", ended, pieces)


def steps(rig: Rig, job: str) -> list[int]:
    points = Metrics(RecordDb(rig.store.database, rig.commit, rig.clock.now)).points(job, "loss", attempt=1)
    return points.step.tolist()


def test_the_same_batch_twice_is_stored_once(rig: Rig) -> None:
    job, ingest = started(rig)
    sent = batch(Piece(0, "spool", 0, SPOOL), Piece(0, "log", 0, b"hello\n"))
    first, second = ingest.accept(job, 1, sent), ingest.accept(job, 1, sent)
    assert first.acked == second.acked == {(0, "spool"): len(SPOOL), (0, "log"): 6}
    assert steps(rig, job) == [1, 2, 3]
    assert b"".join(chunk.data for chunk in rig.store.logs(job, 1, None, 0, 10)) == b"hello\n"
    assert rig.store.run(job)["progress"]["step"] == 3


LOSS = shape_record(0, ("loss",))


def told(rig: Rig, job: str) -> dict[str, object]:
    found = rig.store.run(job)["progress"]
    return {name: found[name] for name in ("step", "total", "expected", "rate", "eta")}


def test_the_steps_of_reports_are_the_progress_of_a_program_that_gives_none(rig: Rig) -> None:
    job, ingest = started(rig)
    spool = LOSS + rows(2, 4, 6)  # a row of step N is written at the time N
    ingest.accept(job, 1, batch(Piece(0, "spool", 0, spool)))
    assert told(rig, job) == {"step": 6, "total": None, "expected": None, "rate": 1.0, "eta": None}
    assert rig.store.run(job)["latest"] == {"loss": 0.6}
    ingest.accept(job, 1, batch(Piece(0, "spool", len(spool), rows(3))))
    assert told(rig, job)["step"] == 6, "a metric of another clock does not take it back"
    spool += rows(3)
    stated = doc_record({"type": "progress", "time": 7.0, "step": 2, "total": 9, "unit": "epoch"})
    ingest.accept(job, 1, batch(Piece(0, "spool", len(spool), stated)))
    ingest.accept(job, 1, batch(Piece(0, "spool", len(spool + stated), rows(50))))
    assert told(rig, job) == {"step": 2, "total": 9, "expected": None, "rate": None, "eta": None}


def test_the_lowest_rank_says_how_far_a_gang_is(rig: Rig) -> None:
    job, ingest = started(rig, nproc=2)
    ingest.accept(job, 1, batch(Piece(1, "spool", 0, LOSS + rows(9)), Piece(0, "spool", 0, LOSS + rows(4))))
    assert told(rig, job)["step"] == 4
    ingest.accept(job, 1, batch(Piece(1, "spool", len(LOSS + rows(9)), rows(20))))
    assert told(rig, job)["step"] == 4


def test_the_end_is_guessed_from_the_last_run_of_that_name_that_succeeded(rig: Rig) -> None:
    for name, last in (("learn", 40), ("learn", 80), ("other", 500)):
        job, ingest = started(rig, name=name)
        ingest.accept(job, 1, batch(Piece(0, "spool", 0, LOSS + rows(1, last))))
        rig.end(job)
        rig.tick()
    job, ingest = started(rig, name="learn")
    ingest.accept(job, 1, batch(Piece(0, "spool", 0, LOSS + rows(10, 20))))
    assert told(rig, job) == {"step": 20, "total": None, "expected": 80, "rate": 1.0, "eta": 60.0}
    ingest = ingest_of(rig)  # a server that was started again
    ingest.accept(job, 1, batch(Piece(0, "spool", len(LOSS + rows(10, 20)), rows(90))))
    assert told(rig, job)["expected"] is None, "it goes past where the other ended"


def test_the_end_of_a_job_is_expected_by_the_progress_that_it_reported_lately(rig: Rig) -> None:
    job, ingest = started(rig)
    rig.tick()
    assert ingest.expected_ends() == {}
    first = doc_record({"type": "progress", "time": 5.0, "step": 10, "total": 100})
    second = doc_record({"type": "progress", "time": 15.0, "step": 20, "total": 100})
    ingest.accept(job, 1, batch(Piece(0, "spool", 0, first)))
    assert ingest.expected_ends() == {}, "one point has no rate"
    ingest.accept(job, 1, batch(Piece(0, "spool", len(first), second)))
    assert ingest.expected_ends() == {job: rig.clock.now() + 80.0}, "by our clock, whatever the node's is"
    rig.clock.time += 301.0
    assert ingest.expected_ends() == {}, "it may hang"
    rig.clock.time -= 301.0
    rig.end(job)
    rig.tick()
    assert ingest.expected_ends() == {}


@given(cuts=st.lists(st.integers(0, 40), max_size=8), again=st.integers(0, 7))
def test_however_a_log_is_cut_and_repeated_it_is_whole(cuts: list[int], again: int) -> None:
    rig = Rig()
    job, ingest = started(rig)
    text = bytes(range(65, 105))
    places = sorted({0, len(text), *cuts})
    pieces = [Piece(0, "log", a, text[a:b]) for a, b in pairwise(places)]
    for index, piece in enumerate(pieces):
        ingest.accept(job, 1, batch(piece))
        if index == again % len(pieces):
            ingest.accept(job, 1, batch(Piece(0, "log", 0, text[: piece.offset + len(piece.data)])))
    assert b"".join(chunk.data for chunk in rig.store.logs(job, 1, 0, 0, 100)) == text
    rig.close()


def test_a_new_server_goes_on_where_the_old_one_stopped(rig: Rig) -> None:
    job, ingest = started(rig)
    ingest.accept(job, 1, batch(Piece(0, "spool", 0, SPOOL)))
    fresh = ingest_of(rig)
    assert fresh.accept(job, 1, batch()).acked == {(0, "spool"): len(SPOOL)}
    fresh.accept(job, 1, batch(Piece(0, "spool", len(SPOOL), rows(4))))
    assert steps(rig, job) == [1, 2, 3, 4]


def test_a_gap_or_garbage_in_a_spool_is_refused_and_stores_nothing(rig: Rig) -> None:
    job, ingest = started(rig)
    with pytest.raises(Invalid, match="goes on at 8"):
        ingest.accept(job, 1, batch(Piece(0, "spool", 8, SPOOL)))
    with pytest.raises(Invalid, match="damaged"):
        ingest.accept(job, 1, batch(Piece(0, "spool", 0, b"garbage!"), Piece(0, "log", 0, b"x")))
    assert ingest.accept(job, 1, batch()).acked == {}


def test_workers_come_up_and_end_by_their_own_word(rig: Rig) -> None:
    rig.engine.slow = True  # it says nothing of the workers itself
    job, ingest = started(rig, num_nodes=2)
    ingest.accept(job, 1, batch(worker=0))
    assert rig.job(job).phase == "starting"
    ingest.accept(job, 1, batch(worker=1))
    assert rig.job(job).phase == "running"
    reply = ingest.accept(job, 1, batch(worker=0, ended=OK))
    assert reply.done
    rig.engine.end(job, 1, OK)
    rig.tick()
    assert rig.job(job).phase == "succeeded"
    assert rig.kinds(job).count("worker.ended") == 2
    other, _ = started(rig)
    with pytest.raises(Invalid, match="there is no worker 7"):
        ingest.accept(other, 1, batch(worker=7))


def test_a_late_word_of_an_old_attempt_changes_nothing_but_its_data_is_kept(rig: Rig) -> None:
    job, ingest = started(rig, retry={"backoff": 0})
    rig.tick()
    rig.end(job, KILLED)
    rig.tick(3)
    assert rig.job(job).attempt.number == 2
    before = rig.state.version
    ingest.accept(job, 1, batch(Piece(0, "spool", 0, SPOOL), ended=OK))
    assert rig.state.version == before
    assert steps(rig, job) == [1, 2, 3]
    assert rig.job(job).phase == "running"


def test_an_attempt_that_never_was_is_unknown(rig: Rig) -> None:
    job, ingest = started(rig)
    for name, number in (("nobody-9", 1), (job, 2)):
        with pytest.raises(NotFound):
            ingest.accept(name, number, batch())


def test_a_checkpoint_becomes_an_event_and_the_next_attempt_knows_it(rig: Rig) -> None:
    job, ingest = started(rig, retry={"backoff": 0})
    rig.tick()
    saved = doc_record(
        {"type": "checkpoint", "time": 1.0, "step": 40, "path": "/c/step-40", "bytes": 7, "seconds": 0.1}
    )
    ingest.accept(job, 1, batch(Piece(0, "spool", 0, saved)))
    assert rig.job(job).checkpoint.step == 40
    rig.end(job, KILLED)
    rig.tick(3)
    assert rig.job(job).attempt.from_step == 40


def test_a_store_that_is_away_is_told_and_nothing_is_lost(rig: Rig) -> None:
    job, ingest = started(rig)
    write, failures = rig.store._write, [Unavailable("disk full")]

    def failing(batch) -> None:
        if failures:
            raise failures.pop()
        write(batch)

    rig.store._write = failing
    with pytest.raises(Unavailable):
        ingest.accept(job, 1, batch(Piece(0, "spool", 0, SPOOL)))
    ingest.accept(job, 1, batch(Piece(0, "spool", 0, SPOOL)))
    assert steps(rig, job) == [1, 2, 3]


def test_the_latest_value_that_is_not_a_number_is_text(rig: Rig) -> None:
    job, ingest = started(rig)
    layout = row_struct(1)
    spool = b"".join([
        shape_record(0, ("loss",)),
        layout.pack(1, 0, layout.size, 1, 1.0, float("nan")),
        doc_record({"type": "params", "time": 1.0, "values": {"lr": 0.1}}),
        doc_record({"type": "params", "time": 2.0, "values": {"wd": 0.2}}),
        doc_record({"type": "note", "time": 3.0, "text": "warm"}),
        doc_record({"type": "filler", "time": 4.0}),
        doc_record({}),
    ])  # fmt: skip
    ingest.accept(job, 1, batch(Piece(0, "spool", 0, spool)))
    run = rig.store.run(job)
    assert set(run) <= {"latest", "progress", "shipped"}, "parameters and notes are the record's"
    assert json.loads(json.dumps(run["latest"], allow_nan=False)) == {"loss": "NaN"}


def test_the_tail_of_an_attempt_is_taken_until_every_worker_has_shipped_the_whole(rig: Rig) -> None:
    job, ingest = started(rig, num_nodes=2)
    log = Piece(0, "log", 0, b"first\n")
    ingest.accept(job, 1, Batch(0, "ended", OK, (log,), whole=True))
    ingest.accept(job, 1, Batch(1, "ended", OK))  # its files are still on their way
    rig.tick(1)
    assert rig.store.job(job).phase == "succeeded"
    ingest.accept(job, 1, Batch(1, "ended", OK, (Piece(1, "log", 0, b"late\n"),)))
    ingest.accept(job, 1, Batch(1, "ended", OK, whole=True))
    for one in (ingest, ingest_of(rig)):  # a new server knows it too
        with pytest.raises(NotFound, match="all of it was shipped"):
            one.accept(job, 1, Batch(1, "ended", OK, (Piece(1, "log", 5, b"never\n"),)))
        with pytest.raises(NotFound):
            one.check_open(job, 1)
        assert one.accept(job, 1, Batch(0, "ended", OK, (log,), whole=True)).done  # a repetition ends well


def test_a_launcher_that_never_said_so_may_deliver_for_some_days(rig: Rig) -> None:
    job, ingest = started(rig)
    ingest.accept(job, 1, Batch(0, "ended", OK))
    rig.tick(1)
    rig.clock.time += LATE - 60
    ingest.accept(job, 1, Batch(0, "ended", OK, (Piece(0, "log", 0, b"late\n"),)))
    rig.clock.time += 120
    with pytest.raises(NotFound, match="ended more than 7d ago"):
        ingest.accept(job, 1, Batch(0, "ended", OK, (Piece(0, "log", 5, b"too late\n"),)))
    assert ingest.accept(job, 1, Batch(0, "ended", OK)).done


def test_only_ranks_of_the_gang_report(rig: Rig) -> None:
    job, ingest = started(rig, num_nodes=2, nproc=2)
    ingest.accept(job, 1, batch(Piece(3, "log", 0, b"x"), worker=1))
    for rank in (4, 2**31 - 1):
        with pytest.raises(Invalid, match=f"no rank {rank}"):
            ingest.accept(job, 1, batch(Piece(rank, "log", 0, b"x")))


def test_output_is_stored_with_the_times_at_which_its_lines_were_written(rig: Rig) -> None:
    job, ingest = started(rig)
    rig.clock.time = 5000.0
    text = "één\ntwee\ndrie\nvier\n".encode()
    middle = text.index(b"drie") + 2
    # A moment within a line, or within a character, is that of its line; what lies in the future is not believed.
    times = ((0, 100.0), (1, 100.5), (text.index(b"twee"), 200.0), (middle, 300.0), (text.index(b"vier"), 9e9))
    ingest.accept(job, 1, batch(Piece(0, "log", 0, text, times)))
    ingest.accept(job, 1, batch(Piece(0, "log", len(text), b"vijf\n")))
    ingest.accept(job, 1, batch(Piece(0, "log", len(text), b"vijf\nzes\n", ((len(text) + 5, 4000.0),))))
    stored = [(chunk.data.decode(), chunk.time) for chunk in rig.store.logs(job, 1, None, 0, 99)]
    late = rig.clock.now()
    assert stored == [
        ("één\n", 100.5),
        ("twee\n", 200.0),
        ("drie\n", 300.0),
        ("vier\n", late),
        ("vijf\n", late),
        ("zes\n", 4000.0),
    ]
    recent = [chunk.data for chunk in rig.store.logs(job, 1, None, 0, 99, since=3000.0)]
    assert recent == [b"vier\n", b"vijf\n", b"zes\n"]


@pytest.mark.parametrize(
    "times", [[[0]], "x", [["a", 1.0]], [[0, None]], [[1e400, 1.0]], 7, [[0, 1.0]] * 2, [[[0, float("nan")]]]]
)
def test_times_that_make_no_sense_are_refused_or_not_believed(rig: Rig, times: object) -> None:
    job, ingest = started(rig)
    sent = batch(Piece(0, "log", 0, b"hello\n")).encode()
    size = int.from_bytes(sent[:4], "little")
    head = json.dumps({**json.loads(sent[4 : 4 + size]), "times": times}).encode()
    body = len(head).to_bytes(4, "little") + head + sent[4 + size :]
    try:
        ingest.accept(job, 1, Batch.decode(body))
    except ValueError:
        return
    assert [chunk.time for chunk in rig.store.logs(job, 1, None, 0, 9)] == [rig.clock.now()]


@pytest.mark.parametrize(("spot", "code"), [(True, "spot_notice"), (False, "node_lost")])
def test_a_node_of_a_spot_pool_that_the_cluster_takes_is_taken_away_and_not_lost(
    rig: Rig, spot: bool, code: str
) -> None:
    """Also when the worker has ended before the server was told that it leaves."""
    job, _ = started(rig)
    attempt = rig.store.state().jobs[job].attempt
    assert attempt is not None
    rig.store.append([Event(RulesSet({"pools": {attempt.pool: {"spot": spot}}}, ""), rig.clock.now())])
    ingest = Ingest(rig.store, rig.commit, rig.clock, LIMIT, cause=lambda *_: ("node_lost", "the machine goes"))
    ingest.accept(job, 1, batch(ended=WorkerExit("failed", "node_lost", "told to leave", rig.clock.now())))
    end = rig.store.state().jobs[job].attempt
    assert end is not None
    assert end.workers[0].exit is not None
    assert (end.workers[0].exit["reason"], end.workers[0].exit["detail"]) == (code, "the machine goes")
    node = rig.store.state().find_node(end.workers[0].node)
    assert node is not None
    assert (node.health, node.by) == (("draining", "spot notice") if spot else ("healthy", ""))
