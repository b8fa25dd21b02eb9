"""What workers ship reaches the metric store once, by whichever stream, also for runs that are no jobs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from metric_kit import MetricStore, PointIntake, expected_points
from muster.control.ingest import Ingest
from muster.core.errors import Conflict, Invalid, NotFound
from muster.wire import Batch, Piece, Stream, doc_record, row_struct, shape_record

RUN = "outside-1"
SHAPE = shape_record(0, ("loss", "acc"))


@dataclass
class StillClock:
    def now(self) -> float:
        return 5.0


def rows(*steps: int) -> bytes:
    layout = row_struct(2)
    return b"".join(layout.pack(1, 0, layout.size, step, 10.0 + step, step / 10, -step) for step in steps)


def ingest_of(metric_store: MetricStore, **outside: str) -> Ingest:
    return Ingest(
        metric_store.store,
        metric_store.commit,
        StillClock(),
        1 << 20,
        PointIntake(metric_store.metrics, outside or {RUN: "p"}),
    )


def sent(data: bytes, offset: int = 0, stream: Stream = "spool", rank: int = 0) -> Batch:
    return Batch(0, "running", None, (Piece(rank, stream, offset, data),))


def losses(*steps: int, attempt: int = 1) -> list:
    return expected_points(attempt, [(step, 10.0 + step, step / 10) for step in steps])


def test_a_run_that_is_no_job_is_written_from_its_first_attempt_on(metric_shop: MetricStore) -> None:
    ingest = ingest_of(metric_shop)
    ingest.accept(RUN, 1, sent(SHAPE + rows(1, 2)))
    ingest.accept(RUN, 2, sent(SHAPE + rows(2, 3)))
    assert metric_shop.seen(RUN, "loss") == losses(1, 2) + losses(2, 3, attempt=2)
    assert metric_shop.seen(RUN, "loss", superseded=False) == losses(1) + losses(2, 3, attempt=2)
    for run, attempt in ((RUN, 0), ("nobody", 1)):
        with pytest.raises(NotFound):
            ingest.accept(run, attempt, sent(b""))


def test_a_checkpoint_of_a_run_that_is_no_job_is_no_event(lite: MetricStore) -> None:
    """The log knows jobs alone: such a word would make no sense in it."""
    version = lite.store.state().version
    saved = doc_record({"type": "checkpoint", "time": 1.0, "step": 4, "path": "/c", "bytes": 7})
    assert ingest_of(lite).accept(RUN, 1, sent(saved)).acked == {(0, "spool"): len(saved)}
    assert lite.store.state().version == version


def test_a_host_stream_is_a_spool_that_says_nothing_of_progress(metric_shop: MetricStore) -> None:
    ingest = ingest_of(metric_shop)
    host = shape_record(0, ("system/cpu", "system/memory")) + rows(0, 10)
    ingest.accept(RUN, 1, Batch(0, "running", None, (Piece(0, "spool", 0, SHAPE + rows(7)), Piece(0, "host", 0, host))))
    assert metric_shop.store.run(RUN)["latest"] == {"loss": 0.7, "acc": -7.0}
    assert [one.name for one in metric_shop.metrics.series(RUN)] == ["acc", "loss", "system/cpu", "system/memory"]
    with pytest.raises(Invalid, match="host of rank 0 goes on at"):
        ingest.accept(RUN, 1, sent(rows(20), len(host) + 8, "host"))
    ingest.accept(RUN, 1, sent(rows(20), len(host), "host"))
    assert metric_shop.metrics.points(RUN, "system/cpu").step.tolist() == [0, 10, 20]
    # Seconds since the launch don't go back behind steps.
    ingest.accept(RUN, 2, sent(shape_record(0, ("system/cpu", "system/gpu")) + rows(0), stream="host"))
    assert metric_shop.seen(RUN, "loss", superseded=False) == losses(7)


def test_one_who_did_not_hear_that_it_is_stored_is_told_to_ask_again(metric_shop: MetricStore) -> None:
    """Two that take in the same attempt, as when its offsets were dropped from memory in the middle of a batch."""
    stale, other = ingest_of(metric_shop), ingest_of(metric_shop)
    data = SHAPE + rows(1, 2)
    stale.accept(RUN, 1, sent(b""))  # it believes that nothing is there
    other.accept(RUN, 1, sent(data))
    with pytest.raises(Conflict, match="stored meanwhile"):
        stale.accept(RUN, 1, sent(data))
    assert stale.accept(RUN, 1, sent(data)).acked == {(0, "spool"): len(data)}
    assert metric_shop.seen(RUN, "loss") == losses(1, 2)
