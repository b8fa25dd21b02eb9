"""The metric tap: points as they become durable, nothing dropped without a word, and ingest that never waits."""

from __future__ import annotations

import threading
from array import array
from pathlib import Path

import pytest

from muster.control.metric_tap import MetricTap, Taken
from muster.core.errors import Unavailable
from muster.store.base import Column
from record_kit import open_record


def column(*values: float) -> Column:
    return Column(array("q", range(len(values))), array("d", [1.0] * len(values)), array("d", values))


def names(taken: Taken) -> list[tuple[str, str, list[float]]]:
    return [(one.run, one.name, list(one.column.values)) for one in taken.points]


def test_by_run_and_by_name() -> None:
    tap = MetricTap()
    everything, loss, mine = tap.subscribe("a"), tap.subscribe("b", names=["loss"]), tap.subscribe("c", run="r1")
    tap.publish("r1", 1, 0, {"loss": column(1.0, 2.0), "lr": column(0.1)})
    tap.publish("r2", 1, 3, {"loss": column(3.0)})
    assert names(everything.take()) == [("r1", "loss", [1.0, 2.0]), ("r1", "lr", [0.1]), ("r2", "loss", [3.0])]
    assert names(loss.take()) == [("r1", "loss", [1.0, 2.0]), ("r2", "loss", [3.0])]
    assert names(mine.take()) == [("r1", "loss", [1.0, 2.0]), ("r1", "lr", [0.1])]
    assert everything.take() == Taken()
    tap.unsubscribe(mine)
    tap.publish("r1", 1, 0, {"loss": column(9.0)})
    assert (names(mine.take()), everything.waiting) == ([], 1)
    assert [one.name for one in tap.subscriptions()] == ["a", "b"]


def test_what_does_not_fit_is_told_by_run() -> None:
    tap = MetricTap()
    slow, quick = tap.subscribe("slow", size=3), tap.subscribe("quick", size=100)
    tap.publish("r1", 1, 0, {"loss": column(1.0, 2.0)})
    tap.publish("r2", 1, 0, {"loss": column(3.0, 4.0), "lr": column(5.0)})
    tap.publish("r1", 1, 0, {"loss": column(6.0)})
    taken = slow.take()
    assert names(taken) == [("r1", "loss", [1.0, 2.0]), ("r2", "lr", [5.0])]
    assert taken.missed == {"r2": 2, "r1": 1}
    assert len(quick.take().points) == 4
    tap.publish("r1", 1, 0, {"loss": column(7.0)})
    assert slow.take().missed == {}


def test_a_taker_waits_for_points() -> None:
    tap = MetricTap()
    subscription, found = tap.subscribe("a"), list[Taken]()
    thread = threading.Thread(target=lambda: found.append(subscription.take(None)))
    thread.start()
    tap.publish("r1", 1, 0, {"loss": column(1.0)})
    thread.join(180)
    assert names(found[0]) == [("r1", "loss", [1.0])]


def test_ingest_publishes_what_is_durable_and_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_record(f"sqlite:///{tmp_path}/m.db", tmp_path / "home") as record:
        subscription = record.ingest._tap.subscribe("test", names=["loss"])
        job = record.submit()
        record.start(job)
        record.report(job, rows=[(1, 0.5), (2, 0.25)])
        (points,) = subscription.take().points
        assert (points.run, points.attempt, points.rank, list(points.column.steps)) == (job, 1, 0, [1, 2])
        with monkeypatch.context() as patch:
            patch.setattr(type(record.store), "_write", lambda store, batch: (_ for _ in ()).throw(Unavailable("no")))
            with pytest.raises(Unavailable):
                record.report(job, rows=[(3, 0.1)])
        assert subscription.take() == Taken()
        record.sent.clear()
        record.report(job, rows=[(1, 0.5), (2, 0.25)])  # sent again from the first byte
        assert subscription.take() == Taken()
