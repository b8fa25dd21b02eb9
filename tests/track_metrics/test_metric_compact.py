"""Compaction moves every point once: while others append and read, when the run is purged under it, and when killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from metric_kit import MetricStore, column, curve_of, expected_points, metric_store, seen
from muster.core import faults
from muster.track.metrics.compact import BLOCK
from muster.track.metrics.compactor import FULL, IDLE, LONG_IDLE, MANY_POINTS, MANY_ROWS, Backlog, Compactor

HERE = Path(__file__).parent


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def sizes(metric_store: MetricStore, name: str = "loss") -> list[int]:
    with metric_store.db.reading() as connection:
        sql = f"SELECT points FROM metric_blocks WHERE name = '{name}' ORDER BY id"
        return list(connection.exec_driver_sql(sql).scalars())


class TestMoving:
    def test_series_ranks_and_attempts_stay_apart(self, metric_shop: MetricStore) -> None:
        for attempt, rank in ((1, 0), (1, 1), (2, 0)):
            metric_shop.add("r", attempt, rank, loss=curve_of(range(9), 10 * attempt + rank), acc=curve_of([attempt]))
        metric_shop.add("other", 1, 0, loss=curve_of([5]))
        assert metric_shop.metrics.compact("r") == 30
        assert (metric_shop.count("metric_tail", "r"), metric_shop.count("metric_tail", "other")) == (0, 1)
        for attempt, rank in ((1, 0), (1, 1), (2, 0)):
            expected = expected_points(attempt, [(i, 1000.0 + i, (10.0 * attempt + rank) * i) for i in range(9)])
            assert metric_shop.seen("r", "loss", rank=rank, attempt=attempt) == expected
        assert metric_shop.metrics.compact() == 1
        assert metric_shop.metrics.compact() == 0

    def test_blocks_fill_up_and_few_are_left_open(self, lite: MetricStore) -> None:
        random, at = Random(2), 0
        most_open = 0
        while at < 2 * BLOCK:
            step = random.choice([1, 3, 200, 1500])
            lite.add("r", 1, 0, loss=curve_of(range(at, at + step)))
            at += step
            lite.metrics._compaction.compact("r")
            found = sizes(lite)
            assert max(found) <= BLOCK
            assert sum(found) == at
            most_open = max(most_open, len([size for size in found if size < BLOCK]))
        assert most_open <= 16  # each is at least twice the next, or nearly so
        assert lite.metrics.compact("r") == 0
        lite.metrics._compaction.compact("r", settle=True)
        assert sizes(lite) == [BLOCK] * (at // BLOCK) + [at % BLOCK]
        assert lite.metrics.points("r", "loss").step.tolist() == list(range(at))

    def test_a_long_tail_is_moved_in_several_transactions(
        self, lite: MetricStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("muster.track.metrics.compact._SLICE", 1_000)
        for at in range(0, 5_000, 300):
            lite.add("r", 1, 0, loss=curve_of(range(at, at + 300)))
        assert lite.metrics.compact("r") == 5_100
        assert lite.metrics.points("r", "loss").step.tolist() == list(range(5_100))

    def test_points_that_come_meanwhile_stay_and_a_purged_run_does_not_come_back(
        self, metric_shop: MetricStore
    ) -> None:
        metrics = metric_shop.metrics
        metric_shop.add("r", 1, 0, loss=curve_of(range(5)))
        plan = metrics._compaction._plan("r", settle=False)
        assert plan is not None
        metric_shop.add("r", 1, 0, loss=curve_of(range(5, 8)))
        metric_shop.db.write(plan.record())
        assert metrics.points("r", "loss").step.tolist() == list(range(8))
        for tail in (True, False):  # with points that are on their way, and with blocks alone
            metric_shop.add("r", 1, 0, loss=curve_of(range(8, 9)))
            if not tail:
                metrics._compaction.compact("r")
            plan = metrics._compaction._plan("r", settle=True)
            assert plan is not None
            metric_shop.db.write(metrics.forget("r"))
            metric_shop.db.write(plan.record())
            assert len(metrics.points("r", "loss", superseded=True)) == 0
            assert [metric_shop.count(table, "r") for table in ("metric_tail", "metric_blocks", "metric_series")] == [
                0
            ] * 3
            metric_shop.add("r", 1, 0, loss=curve_of(range(3)))
            metrics._compaction.compact("r")
        assert metrics.points("r", "loss").step.tolist() == list(range(3))

    def test_a_reader_sees_every_point_once_throughout(self, metric_shop: MetricStore) -> None:
        over, wrong = threading.Event(), list[str]()

        def read() -> None:
            most = 0
            while not over.is_set():
                steps = metric_shop.metrics.points("r", "loss").step.tolist()
                if steps != list(range(len(steps))) or len(steps) < most:
                    wrong.append(f"{len(steps)} after {most}: {steps[:50]}")
                most = len(steps)

        reader = threading.Thread(target=read)
        reader.start()
        for at in range(0, 600, 3):
            metric_shop.add("r", 1, 0, loss=curve_of(range(at, at + 3)))
            if at % 9 == 0:
                metric_shop.metrics._compaction.compact("r", settle=at % 27 == 0)
        over.set()
        reader.join()
        assert wrong == []


class TestKilled:
    def grow(self, url: str, fault: str = "") -> subprocess.Popen[str]:
        path = os.pathsep.join([str(HERE), str(HERE.parent)])
        environment = {**os.environ, "PYTHONPATH": path, faults.VARIABLE: fault}
        command = [sys.executable, str(HERE / "grower.py"), url]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def check(self, url: str, acknowledged: int) -> None:
        with metric_store(url) as made:
            for name, scale in (("a", 1.0), ("b", 0.1)):
                found = made.seen("r", name)
                assert len(found) >= acknowledged
                assert found == seen((1, i, 1000.0 + i, scale * i) for i in range(len(found)))
                assert made.metrics.summaries(["r"])["r"][name].points == len(found)

    def test_at_random(self, url: str) -> None:
        random, acknowledged = Random(3), 0
        for _ in range(2):
            process = self.grow(url)
            assert process.stdout is not None
            for _ in range(random.randrange(20, 120)):
                acknowledged = int(process.stdout.readline())
            process.kill()
            rest = [int(line) for line in process.stdout if line.endswith("\n")]
            acknowledged = max([acknowledged, *rest])
            process.stdout.close()
            process.wait()
            self.check(url, acknowledged)

    @pytest.mark.parametrize("place", ["store.before_commit", "store.after_commit"])
    def test_around_the_commit(self, url: str, place: str) -> None:
        process = self.grow(url, f"{place}:5")  # appends and compactions take turns, more or less
        lines, _ = process.communicate(timeout=180)
        assert process.returncode == -signal.SIGKILL
        self.check(url, max((int(line) for line in lines.splitlines()), default=0))


class TestCompactor:
    def test_when_a_run_is_due(self) -> None:
        def due(points: int, rows: int = 1, series: int = 1, idle: float = 0.0, ended: bool = False) -> bool:
            return Backlog(100.0, points, rows, {(1, 0): series}, ended).due(100.0 + idle)

        assert due(MANY_POINTS)
        assert not due(MANY_POINTS - 1)
        assert not due(10_000 * FULL - 1, series=10_000)  # many series: rarely, so that each brings a whole piece
        assert due(10_000 * FULL, series=10_000)
        assert due(5_000, rows=MANY_ROWS)
        assert not due(5_000, rows=MANY_ROWS, series=5_000)
        assert due(50, idle=IDLE)
        assert not due(50, series=50, idle=IDLE)
        assert due(1, series=50, idle=LONG_IDLE)
        assert due(0, ended=True)

    def test_it_compacts_what_grows_what_ended_and_what_an_earlier_server_left(self, metric_shop: MetricStore) -> None:
        metric_shop.add("left", 1, 0, loss=curve_of(range(MANY_POINTS)))
        settled: dict[str, bool] = {}
        done = {name: threading.Event() for name in ("left", "grown", "ended")}
        compaction, real = metric_shop.metrics._compaction, metric_shop.metrics._compaction.compact

        def compact(run: str, settle: bool = False) -> int:
            points = real(run, settle)
            if points:
                settled[run] = settle
                done[run].set()
            return points

        compaction.compact = compact  # type: ignore[method-assign]
        metric_shop.metrics._compactor = compactor = Compactor(metric_shop.db, compaction)
        metric_shop.add("small", 1, 0, loss=curve_of(range(9)))
        compactor.start()
        metric_shop.add("grown", 1, 0, loss=curve_of(range(MANY_POINTS)))
        metric_shop.add("ended", 1, 0, loss=curve_of(range(9)))
        metric_shop.metrics.ended("ended")
        assert all(event.wait(180) for event in done.values())
        compactor.close()
        assert settled == {"left": False, "grown": False, "ended": True}
        assert [metric_shop.count("metric_blocks", run) for run in ("left", "grown", "ended")] == [4, 4, 1]
        assert metric_shop.count("metric_tail", "small") == 1

    def test_a_failure_is_tried_again(self, lite: MetricStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("muster.track.metrics.compactor._RETRY", 0.01)
        failures, done = [RuntimeError("first"), OSError("then")], threading.Event()

        class Failing:
            def compact(self, run: str, settle: bool = False) -> int:
                if failures:
                    raise failures.pop()
                done.set()
                return 0

        compactor = Compactor(lite.db, Failing())  # type: ignore[arg-type]
        compactor.start()
        compactor.ended("r")
        assert done.wait(180)
        compactor.close()
        assert failures == []


def test_equal_and_backward_times_survive_many_merges(lite: MetricStore) -> None:
    random, expected = Random(5), []
    for _ in range(60):
        points = [(random.randrange(40), random.choice([1.0, 2.0, 1e9]), random.random()) for _ in range(20)]
        expected += points
        lite.add("r", 1, 0, loss=column(points))
        lite.metrics._compaction.compact("r")
    assert lite.seen("r", "loss") == expected_points(1, sorted(expected, key=lambda point: point[0]))
