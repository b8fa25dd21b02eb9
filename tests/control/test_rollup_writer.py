"""The recorder: exact sums, nothing twice and nothing lost, over restarts, outages and lost answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from live import until
from muster.control.rollup_writer import RollupWriter
from muster.core.attempt_events import AttemptRunning
from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.monitor.history import figures
from muster.monitor.rollup import ALL, DAY, KEPT, MINUTE, QUARTER, Bucket, from_text, merge
from muster.store.base import Proposal, Store
from muster.store.commit import GroupCommit
from muster.store.direct import DirectCommit
from muster.store.registry import open_store
from scheduler_kit import entities, job_event, node_event

NOON = 20_000 * DAY + DAY // 2


@dataclass
class HandClock:
    time: float = float(NOON)

    def now(self) -> float:
        return self.time


class Bench:
    """A store, a clock that is moved by hand, and a recorder that is told when to step."""

    def __init__(self, url: str) -> None:
        self.url, self.clock = url, HandClock()
        self.store = open_store(url)
        self.new_recorder()
        self.append(*entities(), node_event("n0", 4, 8), node_event("n1", 4, 8))

    def new_recorder(self) -> None:
        """As after a restart of the server."""
        self.commit = DirectCommit(self.store, lambda events: None)
        self.rollup_writer = RollupWriter(self.store, self.commit, self.clock, lambda: True)

    def step(self) -> None:
        """One round of the follower."""
        self.rollup_writer.follower.reach(None)

    def append(self, *events: Event) -> None:
        stamped = [Event(e.data, self.clock.now(), e.actor, e.project, e.job, e.attempt) for e in events]
        self.store.append(stamped)

    def submit(self, number: int, **spec: Any) -> None:
        self.append(job_event(number, cpus=1, **spec))

    def start(self, number: int, devices: list[int], node: str = "n0") -> None:
        job, seats = f"job-{number}", [{"node": node, "devices": devices}]
        known = self.store.state().jobs[job].attempt
        attempt = known.number + 1 if known else 1
        self.append(
            Event(decode("attempt.planned", {"seats": seats}), 0.0, project="default", job=job, attempt=attempt)
        )
        self.append(Event(AttemptRunning(), 0.0, project="default", job=job, attempt=attempt))

    def end(self, number: int, kind: str = "job.succeeded") -> None:
        job, why = f"job-{number}", reason("user_error").to_dict()
        attempt = self.store.state().jobs[job].attempt
        assert attempt is not None
        again = {"charge": "node", "not_before": 0.0} if kind == "job.requeued" else {}
        data = {"outcome": "failed", "reason": why}
        self.append(
            Event(decode("attempt.ended", data), 0.0, project="default", job=job, attempt=attempt.number),
            Event(decode(kind, {"reason": why, **again}), 0.0, project="default", job=job),
        )

    def pass_minutes(self, count: int) -> None:
        for _ in range(count):
            self.clock.time += 60
            self.step()

    def rows(self, resolution: int, pool: str = "main") -> dict[int, Bucket]:
        return {row.start: from_text(row.data) for row in self.store.rollups(resolution, pool, 0, 2**40)}

    def whole(self, resolution: int, pool: str = "main") -> Bucket:
        return merge(self.rows(resolution, pool).values())


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/m.db")
    yield made
    made.store.close()


def an_hour_of_work(bench: Bench) -> None:
    bench.step()
    bench.submit(1, gpus=4)
    bench.clock.time += 30
    bench.start(1, [0, 1, 2, 3])
    bench.step()
    bench.submit(2, gpus=8)  # more than any node has
    bench.pass_minutes(20)
    bench.end(1)
    bench.submit(3, gpus=2)
    bench.pass_minutes(10)
    bench.start(3, [0, 1])
    bench.pass_minutes(30)


class TestSums:
    def test_the_resolutions_agree(self, bench: Bench) -> None:
        an_hour_of_work(bench)
        for pool in ("main", ALL):
            days = bench.whole(DAY, pool)
            assert bench.whole(MINUTE, pool) == bench.whole(QUARTER, pool) == days
            assert len(bench.rows(DAY, pool)) == 1
            assert days.ms == 60_000 * 60 + 30_000

    def test_use_waits_and_demand(self, bench: Bench) -> None:
        an_hour_of_work(bench)
        found, everyone = figures(bench.whole(DAY)), figures(bench.whole(DAY, ALL))
        # A sample holds until the next: 4 accelerators for 21 minutes less the half before, then 2 for 29.
        assert bench.whole(DAY).gauges["used"].total == 1000 * (4000 * 60 * 20 + 2000 * 60 * 29) + 4000 * 60_000
        assert (found["waits"]["count"], found["waits"]["longest"]) == (2, 600.0)
        assert found["waits"]["mean"] == pytest.approx(315.0)
        assert (found["queued"]["most_accelerators"], everyone["queued"]["most_accelerators"]) == (2.0, 10.0)
        assert found["accelerators"]["there"] == 8.0

    def test_a_wait_belongs_to_the_minute_of_its_start(self, bench: Bench) -> None:
        bench.step()
        bench.clock.time += 59.5
        bench.submit(1, gpus=1)
        bench.start(1, [0])
        bench.clock.time += 45
        bench.step()
        counts = {start - NOON: bucket.waits.count for start, bucket in bench.rows(MINUTE).items()}
        assert counts == {0: 1, 60: 0}

    def test_a_restart_of_the_job_is_no_second_wait(self, bench: Bench) -> None:
        bench.step()
        bench.submit(1, gpus=1)
        bench.start(1, [0])
        bench.pass_minutes(1)
        bench.end(1, "job.requeued")
        bench.start(1, [0])
        bench.pass_minutes(1)
        assert bench.whole(DAY).waits.count == 1

    def test_a_job_that_came_and_went_within_a_minute_is_counted(self, bench: Bench) -> None:
        bench.step()
        bench.submit(1, gpus=1)
        bench.clock.time += 7
        bench.start(1, [0], "n1")
        bench.end(1)
        bench.pass_minutes(1)
        assert (bench.whole(DAY).waits.count, bench.whole(DAY).waits.total) == (1, 7000)


class TestRestarts:
    def test_it_goes_on_in_the_stored_buckets(self, bench: Bench) -> None:
        bench.step()
        bench.clock.time += 20
        bench.step()
        bench.submit(1, gpus=1)
        bench.start(1, [0])  # after the last that was stored, and before the next server
        bench.new_recorder()
        bench.step()
        bench.clock.time += 20
        bench.step()
        (minute,) = bench.rows(MINUTE).values()
        assert (minute.ms, minute.waits.count) == (40_000, 1)
        bench.pass_minutes(2)
        assert bench.whole(DAY).waits.count == 1

    def test_nothing_is_made_up_of_a_time_that_nobody_saw(self, bench: Bench) -> None:
        bench.step()
        bench.clock.time += 3600
        bench.step()
        bench.clock.time += 60
        bench.step()
        assert bench.whole(DAY).ms == 60_000

    def test_what_is_old_goes_and_days_stay(self, bench: Bench) -> None:
        bench.step()
        bench.pass_minutes(1)
        kept = KEPT[MINUTE]
        assert kept is not None
        bench.clock.time += kept
        bench.step()
        bench.pass_minutes(1)
        assert (len(bench.rows(MINUTE)), len(bench.rows(QUARTER)), len(bench.rows(DAY))) == (1, 2, 2)


class Flaky(DirectCommit):
    """A commit that fails when it is told to, before or after it is done; one word for each call."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, lambda events: None)
        self.calls: list[str] = []

    def submit(self, proposal: Proposal) -> Any:
        lose = self.calls.pop(0) if self.calls else "nothing"
        if lose == "request":
            raise Unavailable("The database went away.")
        future = super().submit(proposal)
        if lose == "answer":
            future.result()
            raise Unavailable("The connection broke during the commit.")
        return future


class TestOutages:
    @pytest.mark.parametrize("lose", ["request", "answer"])
    @pytest.mark.parametrize("before", [0, 3])
    def test_nothing_is_lost_and_nothing_twice(self, bench: Bench, lose: str, before: int) -> None:
        flaky = Flaky(bench.store)
        bench.rollup_writer = RollupWriter(bench.store, flaky, bench.clock, lambda: True)
        bench.step()
        bench.pass_minutes(before)
        bench.submit(1, gpus=1)
        bench.start(1, [0])
        flaky.calls = ["nothing", lose]  # the look at the state, and the write
        bench.clock.time += 60
        with pytest.raises(Unavailable):
            bench.step()
        bench.clock.time += 60
        bench.step()
        assert (bench.whole(DAY).ms, bench.whole(DAY).waits.count) == (60_000 * (before + 2), 1)
        assert bench.whole(MINUTE) == bench.whole(DAY)

    def test_the_thread_outlives_them_and_writes_when_it_is_closed(self, bench: Bench) -> None:
        class Patchy(GroupCommit):
            broken = True

            def submit(self, proposal: Proposal) -> Any:
                if self.broken:
                    tried.append(1)
                    raise Unavailable("no database")
                return super().submit(proposal)

        tried: list[int] = []
        commit = Patchy(bench.store, lambda events: None)
        rollup_writer = RollupWriter(bench.store, commit, bench.clock, lambda: True)
        bench.clock.time += 59.99  # so that its next turn comes soon
        commit.start()
        rollup_writer.follower.start()
        until(lambda: len(tried) > 1, "a second try")
        commit.broken = False
        until(lambda: rollup_writer._last is not None, "a sample")
        bench.clock.time += 5
        rollup_writer.follower.close(once_more=True)
        commit.close()
        assert bench.whole(DAY).ms > 0

    def test_without_the_lease_it_writes_nothing(self, bench: Bench) -> None:
        rollup_writer = RollupWriter(bench.store, bench.commit, bench.clock, lambda: False)
        rollup_writer.follower.start()
        bench.clock.time += 60
        rollup_writer.follower.close(once_more=True)
        assert bench.rows(DAY) == {}
