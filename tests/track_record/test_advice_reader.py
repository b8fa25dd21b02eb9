"""Advice from the record: what is read of charges, devices, saves, scores, failures and demand, and of whose runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metric_kit import column
from muster.control.cost_advice import AdviceReader
from muster.control.costs import CostLedger
from muster.control.follow import Follower
from muster.control.goodput import GoodputLedger
from muster.control.spot_history import SpotHistory
from muster.core.entities.pool import PoolSet
from muster.core.entities.price_book import PricesSet
from muster.core.event import Event
from muster.core.reasons import reason
from muster.cost.charge import charge
from muster.monitor.rollup import QUARTER, held, to_text
from muster.store.base import Entry, Rollup
from record_kit import Record
from scheduler_kit import node_event

HOUR = 3600.0
BOOK = {"version": 1, "currency": "EUR", "pools": {"main": [{"accelerator": 2 * 10**9}]}}
GPU = {"accelerator": "H100", "accelerators": 1}


class Seeded:
    def __init__(self, record: Record) -> None:
        self.record = record
        record.moment[0] = 1_790_000_000.0
        goodput = GoodputLedger(record.store, record.track, lambda: record.moment[0])
        costs = CostLedger(record.store, record.track, goodput)
        self.costs = Follower("costs", costs.fold, record.store, record.commit)
        pool = PoolSet("main", "sim", accelerator="H100")
        now = record.moment[0]
        record.events(Event(pool, now), node_event("n0", 8, 64), Event(PricesSet(BOOK), now))

    def run(self, hours: float, use: float, memory: float = 0.1, end: bool = True, **fields: object) -> str:
        """A run on one device, which it uses so much of the time."""
        record = self.record
        job = record.submit("x", resources=GPU, **fields)
        record.start(job)
        began = record.moment[0]
        points = [(step, began + step * 60, 1.0 if step % 100 < use * 100 else 0.0) for step in range(200)]
        columns = {"system/gpu.0": points, "system/gpu_memory_share.0": [(1, began, memory)]}
        found = {name: column(some) for name, some in columns.items()}
        record.track.db.write(record.track.metrics.append(job, 1, 0, found))
        record.moment[0] += hours * HOUR
        if end:
            self.end(job)
        return job

    def end(self, job: str) -> None:
        state = self.record.store.state()
        made = charge(state, state.jobs[job], "succeeded", reason("completed"), self.record.moment[0])
        assert made is not None
        project = state.jobs[job].project
        self.record.end(job, 1)
        charged = Event(made, self.record.moment[0], "muster", project, job, 1)
        self.record.commit.submit(lambda state: Entry([charged])).result()

    def reader(self, projects: Sequence[str] | None = None) -> AdviceReader:
        self.costs.reach()
        record, now = self.record, self.record.moment[0]
        risks = SpotHistory(record.track).risks(record.store.state(), now)
        return AdviceReader(record.store, record.track, risks, projects, now, now - 30 * 86_400.0)


@pytest.fixture
def seeded(light: Record) -> Seeded:
    return Seeded(light)


def test_facts_of_runs_are_what_was_recorded(seeded: Seeded) -> None:
    first = seeded.run(2.0, use=0.25, memory=0.4, name="small-1", priority=20)
    live = seeded.run(1.0, use=0.0, end=False, name="notebook", kind="session")
    found = {one.run: one for one in seeded.reader().facts().runs}
    small, session = found[first], found[live]
    assert (small.name, small.pool, small.nodes, small.accelerators, small.priority) == ("small", "main", 1, 1, 20)
    assert (small.amount, small.hours) == (pytest.approx(4_000_000, rel=0.01), pytest.approx(2.0, rel=0.01))
    assert (small.device_use, small.memory_share) == (pytest.approx(0.25, abs=0.02), pytest.approx(0.4))
    assert session.idle_share == 1.0
    assert session.amount == pytest.approx(2_000_000, rel=0.01), "what it has cost so far"
    (one,) = [each for each in seeded.reader().advice(None)["advice"] if each["kind"] == "idle-session"]
    assert (one["subject"], one["command"]) == (live, f"muster stop {live}")
    assert seeded.reader().advice(None)["currency"] == "EUR"


def test_a_member_is_told_of_the_runs_of_their_projects_alone(seeded: Seeded) -> None:
    seeded.run(2.0, use=0.0, kind="session", name="theirs", project="vision")
    mine = seeded.run(2.0, use=0.0, kind="session", name="mine")
    some = seeded.reader(["default"]).advice(None, reserve_price=1)
    assert [one["subject"] for one in some["advice"]] == [mine]
    assert (some["whole"], some["runs"]) == (False, 1)
    assert seeded.reader([]).advice(None)["advice"] == []
    assert seeded.reader().advice(None)["runs"] == 2


def test_demand_comes_from_the_rollups_and_sweeps_from_the_scores_of_their_trials(seeded: Seeded) -> None:
    record, now = seeded.record, seeded.record.moment[0]
    start = int(now - 8 * 86_400) // QUARTER * QUARTER
    sample = {"used": 2000, "there": 8000}
    rollups = [
        Rollup(QUARTER, at, "main", (at + QUARTER) * 1000, to_text(bucket))
        for at, bucket in held(sample, start * 1000, int(now) * 1000, QUARTER)
    ]
    record.commit.submit(lambda state: Entry(rollups=rollups)).result()
    found = seeded.reader().advice("reserve", reserve_price=1_000_000)["advice"]
    assert [one["subject"] for one in found] == ["pool main: 2 accelerators reserved for a year"]
    assert found[0]["saves"] == 2 * 730 * 1_000_000
    assert seeded.reader(["default"]).advice("reserve", reserve_price=1_000_000)["advice"] == []
    sweep = record.submit("", kind="sweep", num_nodes=0, name="lr")
    for number in range(6):
        trial = seeded.run(0.5, use=1.0, memory=0.9, name=f"lr-{number}", parent=sweep)
        score = {"val_loss": column([(1, now, 1.0 + number)])}
        record.track.db.write(record.track.metrics.append(trial, 1, 0, score))
    (one,) = seeded.reader().advice("sweep")["advice"]
    assert (one["subject"], one["command"]) == (sweep, f"muster stop {sweep}")
