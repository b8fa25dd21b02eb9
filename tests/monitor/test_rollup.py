"""Buckets merge exactly, whatever the grouping; samples count what is there; figures are what arithmetic says."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.entities.node import NodeHealth, NodeLeft
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.core.state import State, apply
from muster.monitor import rollup
from muster.monitor.history import figures, grouped, resolution_for, step_for
from muster.monitor.rollup import (
    ALL,
    DAY,
    EMPTY,
    KEPT,
    MINUTE,
    QUARTER,
    Bucket,
    from_text,
    held,
    merge,
    to_text,
    waited,
)
from muster.monitor.sample import Sampler, add_usable, idle_nodes, sample
from scheduler_kit import entities, fold, job_event, node_event

NAMES = (rollup.USED, rollup.THERE, rollup.JOBS, rollup.ASKED, rollup.FREE)
MIDNIGHT = 20_000 * DAY
samples = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**7))
intervals = st.tuples(samples, st.integers(0, 10**8), st.integers(1, 10**6))
waits = st.floats(0, 10**9, allow_nan=False)


@st.composite
def buckets(draw: st.DrawFn) -> Bucket:
    parts = [part for s, at, ms in draw(st.lists(intervals, max_size=3)) for _, part in held(s, at, at + ms, DAY)]
    return merge([*parts, *map(waited, draw(st.lists(waits, max_size=5)))])


class TestMerging:
    @given(st.lists(buckets(), max_size=6), st.randoms())
    def test_any_grouping_in_any_order_gives_the_same(self, parts: list[Bucket], random: random.Random) -> None:
        once = merge(parts)
        shuffled = random.sample(parts, len(parts))
        while len(shuffled) > 1:
            at = random.randrange(len(shuffled) - 1)
            shuffled[at : at + 2] = [merge(shuffled[at : at + 2])]
        assert merge(shuffled) == once

    @given(samples, st.integers(0, 10**8), st.integers(1, 10**8))
    def test_a_day_is_the_same_from_minutes_and_from_quarters(self, values: dict[str, int], at: int, ms: int) -> None:
        days = [grouped(held(values, at, at + ms, resolution), DAY) for resolution in (MINUTE, QUARTER, DAY)]
        assert days[0] == days[1] == days[2] == dict(held(values, at, at + ms, DAY))
        assert sum(day.ms for day in days[0].values()) == ms

    @given(buckets())
    def test_text_holds_all_of_it(self, bucket: Bucket) -> None:
        assert from_text(to_text(bucket)) == bucket

    def test_nothing_is_neutral(self) -> None:
        bucket = merge([*(part for _, part in held({"used": 3}, 5, 90, DAY)), waited(7.5)])
        assert merge([EMPTY, bucket]) == merge([bucket, EMPTY]) == bucket


class TestFigures:
    def test_means_are_weighted_by_time(self) -> None:
        hours = [({rollup.USED: 8000, rollup.THERE: 8000}, 0, 45), ({rollup.USED: 0, rollup.THERE: 8000}, 45, 60)]
        day = merge(b for values, start, end in hours for _, b in held(values, start * 1000, end * 1000, DAY))
        found = figures(day)
        assert (found["accelerators"]["used"], found["accelerators"]["share"]) == (6.0, 0.75)
        assert (found["accelerators"]["most_used"], found["observed"]) == (8.0, 60.0)

    def test_the_peak_says_what_was_free_then(self) -> None:
        moments = [(6000, 2000), (9000, 3000), (9000, 0), (1000, 8000)]
        parts = [
            b
            for i, (asked, free) in enumerate(moments)
            for _, b in held({rollup.ASKED: asked, rollup.FREE: free}, i * 1000, i * 1000 + 1000, DAY)
        ]
        found = figures(merge(parts))["queued"]
        assert (found["most_accelerators"], found["free_then"]) == (9.0, 0.0)

    @given(st.lists(st.floats(0, 10**7, allow_nan=False), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 1.0]))
    def test_a_quantile_is_near_the_exact_one(self, seconds: list[float], share: float) -> None:
        found = merge(map(waited, seconds)).waits.quantile(share)
        exact = sorted(seconds)[max(1, -(-int(share * 100) * len(seconds) // 100)) - 1]
        assert found is not None
        assert found == pytest.approx(exact, rel=0.1, abs=0.51)  # under a second there is one bin

    def test_of_nothing(self) -> None:
        found = figures(EMPTY)
        assert found["waits"] == {"count": 0, "mean": None, "p50": None, "p90": None, "longest": None}
        assert found["accelerators"]["share"] is None

    def test_steps(self) -> None:
        assert [step_for(days * DAY) for days in (0.01, 1, 7, 90, 700)] == [60, 900, 7200, DAY, 7 * DAY]
        assert [resolution_for(step) for step in (60, 300, 900, 3600, DAY, 7 * DAY)] == [
            MINUTE, MINUTE, QUARTER, QUARTER, DAY, DAY,
        ]  # fmt: skip

    @given(st.floats(60, 100 * 365 * DAY))
    def test_what_a_step_needs_is_kept_for_as_long_as_it_shows(self, seconds: float) -> None:
        kept = KEPT[resolution_for(step_for(seconds))]
        assert kept is None or kept >= seconds


def planned(number: int, node: str, devices: list[int], share: int = 1000) -> Event:
    seats = [{"node": node, "devices": devices, "share": share}]
    return Event(decode("attempt.planned", {"seats": seats}), 50.0, project="default", job=f"job-{number}", attempt=1)


class TestSamples:
    def world(self) -> list[Event]:
        return [
            *entities(),
            node_event("a0", 4, 8, "a"),
            node_event("a1", 4, 8, "a"),
            node_event("b0", 0, 16, "b"),
            job_event(1, gpus=3, cpus=2),
            job_event(2, gpus=2, cpus=1, num_nodes=2),
            job_event(3, cpus=4),
            job_event(4, gpus=8, cpus=1),
            planned(1, "a0", [0, 1, 2]),
        ]

    def test_use_and_demand(self) -> None:
        found = sample(fold(self.world()))
        assert {name: found["a"][name] // 1000 for name in (rollup.USED, rollup.THERE, rollup.FREE)} == {
            rollup.USED: 3, rollup.THERE: 8, rollup.FREE: 5,
        }  # fmt: skip
        assert (found["a"][rollup.CPUS_USED], found["a"][rollup.CPUS]) == (2000, 16_000)
        # Job 2 fits in `a`, job 3 in both, job 4 nowhere.
        assert [found[pool][rollup.JOBS] // 1000 for pool in ("a", "b", ALL)] == [2, 1, 3]
        assert [found[pool][rollup.ASKED] // 1000 for pool in ("a", "b", ALL)] == [4, 0, 12]
        assert found[ALL][rollup.CPUS] == 32_000

    def test_what_is_unfit_is_not_free(self) -> None:
        ill = Event(NodeHealth(name="a0", health="draining", reason="drill"), 60.0)
        found = sample(fold([*self.world(), ill]))["a"]
        assert (found[rollup.FREE], found[rollup.OUT], found[rollup.USED]) == (4000, 1000, 3000)

    def test_a_part_of_an_accelerator(self) -> None:
        shared = [*entities(), node_event("n", 2, 8), job_event(1, gpus="0.25", cpus=1), planned(1, "n", [0], 250)]
        found = sample(fold(shared))["main"]
        assert (found[rollup.USED], found[rollup.FREE]) == (250, 1750)

    def test_what_is_usable_follows_from_what_is_free(self) -> None:
        found = sample(fold(self.world()))
        add_usable(found, {"a": 0.5})
        assert [found[pool][rollup.USABLE] for pool in ("a", "b", ALL)] == [2500, 0, 2500]

    def test_typical_gangs_are_the_common_ones(self) -> None:
        sampler, state = Sampler(), fold([*self.world(), job_event(5, gpus=2, cpus=1, num_nodes=2)])
        sampler.sample(state)
        shapes = Counter((ask.accelerators, workers) for ask, workers in sampler.typical())
        assert shapes == {(2, 2): 50, (3, 1): 25, (8, 1): 25}

    def test_idle_nodes_are_copies(self) -> None:
        state = fold(self.world())
        nodes = idle_nodes(state)
        assert [node.name for node in nodes] == ["a0", "a1"]
        nodes[0].parts[0] = 1
        assert state.nodes["a0"].parts == {}

    @given(st.integers(0, 10**6))
    def test_keeping_count_gives_what_counting_anew_gives(self, seed: int) -> None:
        """Over random histories, looked at every now and then."""
        choose, state, sampler = random.Random(seed), State(), Sampler()
        for event in random_history(choose):
            apply(state, event.stamped(state.version + 1))
            if choose.random() < 0.3:
                check(sampler, state)
        check(sampler, state)


def check(sampler: Sampler, state: State) -> None:
    anew = Sampler()
    assert sampler.sample(state) == anew.sample(state)
    assert sampler._common == anew._common


def random_history(choose: random.Random) -> list[Event]:
    """Jobs that come, start, end and are queued again; nodes that come, change pool, fall ill and leave."""
    events, state = [], State()

    def add(event: Event) -> None:
        apply(state, event.stamped(state.version + 1))
        events.append(event)

    for event in entities(2):
        add(event)
    why = reason("node_lost", node="n").to_dict()
    for number in range(1, 30):
        move = choose.choice(["submit", "submit", "node", "node", "start", "start", "end", "ill", "leave"])
        queued = [job for job in state.jobs.values() if job.phase == "queued"]
        active = [state.jobs[name] for name in state.active]
        if move == "submit":
            pool = choose.choice([None, "p0"])
            add(job_event(number, gpus=choose.randint(0, 3), cpus=1, num_nodes=choose.randint(1, 2), pool=pool))
        elif move == "node":
            add(node_event(f"n{choose.randrange(4)}", choose.randint(2, 4), 8, f"p{choose.randrange(2)}"))
        elif move == "start" and queued:
            job = choose.choice(queued)
            fits = [node for node in state.nodes.values() if node.free.holds(job.ask)]
            for node in fits[:1]:
                free = [i for i in range(node.total.accelerators) if node.free_devices >> i & 1]
                devices = free[: job.ask.accelerators]
                attempt = job.attempt.number + 1 if job.attempt else 1
                seats = [{"node": node.name, "devices": devices}]
                add(Event(decode("attempt.planned", {"seats": seats}), 5.0, job=job.id, attempt=attempt))
        elif move == "end" and active:
            job = choose.choice(active)
            assert job.attempt is not None
            ended = {"outcome": "failed", "reason": why}
            add(Event(decode("attempt.ended", ended), 6.0, job=job.id, attempt=job.attempt.number))
            again = {"reason": why, "charge": "node", "not_before": 0.0}
            kind, data = choose.choice([("job.requeued", again), ("job.failed", {"reason": why})])
            add(Event(decode(kind, data), 6.0, job=job.id))
        elif move == "ill" and state.nodes:
            name, health = choose.choice(list(state.nodes)), choose.choice(["healthy", "suspect"])
            add(Event(NodeHealth(name=name, health=health, reason="drill"), 7.0))
        elif move == "leave" and state.nodes and choose.random() < 0.5:
            add(Event(NodeLeft(name=choose.choice(list(state.nodes))), 8.0))
    return events
