"""Small traces through the real controller: nothing is lost or counted twice, and equal input gives equal results."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import muster.control.loop
import muster.sim.run
from muster.control import recovery
from muster.control.quota import Quota
from muster.core.job import Job
from muster.core.plan import Plan, Preempt, Start
from muster.core.reasons import Reason, reason
from muster.core.repair import STALLED_MAX
from muster.core.rules import Preemption, QueueRules, Rules
from muster.core.seat import Seat
from muster.core.state import State
from muster.monitor.alerts.rule_file import default_rules
from muster.sim.model import Cluster, Costs, JobResult, PoolShape, Result, Setup, TraceJob
from muster.sim.run import EPOCH, replay
from strategy_kit import pick

FIFO = Rules(defaults=QueueRules(order="fifo", backfill="none"), preemption=Preemption(enabled=False))
TWO = Cluster((PoolShape("main", 2, 8),))
FREE = Costs()


def setup(rules: Rules = FIFO, cluster: Cluster = TWO, costs: Costs = FREE, exact: bool = False) -> Setup:
    return Setup("test", rules, cluster, costs, exact)


def job(number: int, submit: float, duration: float, accelerators: int = 8, nodes: int = 1, **more: object) -> TraceJob:
    return TraceJob(str(number), submit, duration, nodes, accelerators, **more)


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    """Whole seconds, so that many things happen at one instant."""
    return [
        job(
            number,
            draw(st.integers(0, 300)),
            draw(st.integers(0, 400)),
            draw(st.integers(0, 8)),
            draw(st.integers(1, 3)),
            user=draw(pick("ada", "bob", "")),
            queue=draw(pick("a", "b", "")),
            priority=draw(pick(20, 50, 90)),
        )
        for number in range(draw(st.integers(1, 25)))
    ]


def check_accounts(found: JobResult) -> None:
    """What a job held is its work, and what was paid twice."""
    assert found.started is not None
    assert found.finished is not None
    assert found.job.submit <= found.started
    assert found.started + found.job.duration <= found.finished + 1e-6
    assert found.held <= found.finished - found.started + 1e-6
    assert found.held * found.job.size == pytest.approx(found.job.duration * found.job.size + found.lost)


def check_cluster(result: Result) -> None:
    for sample in result.samples:
        assert 0 <= sample.used <= sample.total
        assert sum(sample.by_queue.values()) == sample.used


@given(trace=traces(), calm=st.booleans(), costs=st.sampled_from([Costs(), Costs(checkpoint_every=50.0)]))
@settings(max_examples=12, deadline=None)
def test_every_job_finishes_once_or_is_refused(trace: list[TraceJob], calm: bool, costs: Costs) -> None:
    result = replay(trace, setup(FIFO if calm else Rules(), costs=costs))
    assert [found.job for found in result.jobs] == trace
    for found in result.jobs:
        assert bool(found.refused) == (found.job.nodes > 2)
        if not found.refused:
            check_accounts(found)
            assert found.preemptions == 0 or not calm
    check_cluster(result)


@given(trace=traces(), seed=st.integers(0, 5))
@settings(max_examples=7, deadline=None)
def test_nodes_that_fail_lose_work_and_no_jobs(trace: list[TraceJob], seed: int) -> None:
    costs = Costs(node_failures=200.0, repair=60.0, seed=seed, checkpoint_every=30.0, checkpoint_cost=2.0)
    stalled: list[str] = []  # jobs that were ended because their attempts made no progress
    decide = recovery._no_progress

    def noted(job: Job, cause: Reason, step: int | None) -> Reason | None:
        ends = decide(job, cause, step)
        stalled.extend([job.id] if ends is not None else [])
        return ends

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "_no_progress", noted)
        result = replay(trace, setup(costs=costs))
    for found in result.jobs:
        if not found.refused and found.finished is not None:
            assert found.held >= found.job.duration - 1e-6
    # A job's node may fail twenty times before the job does, unless three attempts in a row reach no new checkpoint.
    given_up = [found for found in result.jobs if found.finished is None and not found.refused]
    assert all(found.failures >= STALLED_MAX for found in given_up)
    assert sum(found.failures <= 20 for found in given_up) <= len(stalled) <= len(given_up)
    check_cluster(result)


@given(trace=traces())
@settings(max_examples=5, deadline=None)
def test_the_same_input_gives_the_same_result(trace: list[TraceJob]) -> None:
    given_ = setup(Rules(), costs=Costs(node_failures=50.0, repair=30.0))
    first, second = replay(trace, given_), replay(trace, given_)
    second.wall = first.wall
    assert first == second


@given(trace=traces())
@settings(max_examples=5, deadline=None)
def test_what_the_engine_tells_is_all_there_is(trace: list[TraceJob]) -> None:
    """A full poll at every tick finds nothing that the engine had not said by itself."""
    costs = Costs(node_failures=50.0, repair=30.0)
    told = replay(trace, setup(Rules(), costs=costs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(muster.sim.run, "AUDIT_EVERY", 0.0)
        polled = replay(trace, setup(Rules(), costs=costs))
    assert (told.jobs, told.events) == (polled.jobs, polled.events)


def test_first_come_first_served_by_hand() -> None:
    trace = [job(0, 0, 100), job(1, 5, 50, nodes=2), job(2, 6, 10), job(3, 120, 10), job(4, 5, 7, accelerators=4)]
    found = replay(trace, setup()).jobs
    assert [one.started for one in found] == [0, 100, 150, 157, 150]
    assert [one.finished for one in found] == [100, 150, 160, 167, 157]
    assert [one.queueing for one in found] == [0, 95, 144, 37, 145]


def test_jobs_that_can_never_run_are_refused_and_the_rest_goes_on() -> None:
    trace = [job(0, 0, 10, nodes=3), job(1, 0, 10, accelerator="H100"), job(2, 0, 10), job(3, 1, 5, priority=500)]
    found = replay(trace, setup()).jobs
    assert [bool(one.refused) for one in found] == [True, True, False, True]
    assert "only 2 such exist" in found[0].refused
    assert "H100" in found[1].refused
    assert "priority" in found[3].refused
    assert found[2].finished == 10


def test_a_queue_bound_to_a_pool_stays_there() -> None:
    cluster = Cluster((PoolShape("a", 1, 8), PoolShape("b", 5, 8)), {"qa": "a"})
    found = replay([job(n, 0, 10, queue="qa") for n in range(3)], setup(cluster=cluster)).jobs
    assert sorted(one.finished for one in found) == [10, 20, 30]


@pytest.mark.parametrize("exact", [False, True])
def test_declared_times_are_known_and_not_enforced(
    monkeypatch: pytest.MonkeyPatch, exact: bool, policy: Policy_
) -> None:
    seen: list[float | None] = []

    def look(state: State, now: float) -> Plan:
        seen.extend(one.spec.max_duration for one in state.jobs.values() if one.phase == "queued")
        return first_fit(state, now)

    policy(look)
    (found,) = replay([job(0, 0, 100, declared=10.0)], setup(exact=exact)).jobs
    assert found.finished == 100
    assert seen == [100.0 if exact else 10.0]


@pytest.mark.parametrize(
    ("costs", "grace", "starts", "finishes", "lost"),
    [
        (Costs(), 30.0, 100, 1090, 40),  # it saves all; 40 s for the restart
        (Costs(wide=4), 30.0, 100, 1110, 60),  # the restart of a wide one
        (Costs(checkpoint_every=60.0), 30.0, 100, 1130, 80),  # thrown back from 100 to 60
        (Costs(checkpoint_cost=10.0), 30.0, 110, 1100, 40),  # saving takes 10 s
        (Costs(checkpoint_cost=10.0), 5.0, 105, 1195, 140),  # for which there was no time
        # 66 s a cycle: thrown back from 94 to 60, and then 940 s of work with 15 saves.
        (Costs(checkpoint_every=60.0, checkpoint_cost=6.0), 30.0, 100, 1220, 74),
    ],
)
def test_what_making_place_costs(
    policy: Policy_, costs: Costs, grace: float, starts: float, finishes: float, lost: float
) -> None:
    marks: list[int] = []

    def decide(state: State, now: float) -> Plan:
        waiting = [one for one in state.jobs.values() if one.phase == "queued"]
        running = [one for one in state.jobs.values() if one.phase == "running"]
        if waiting and running and waiting[0].spec.priority > running[0].spec.priority:
            marks.extend(one.checkpoint.step for one in running if one.checkpoint)
            return Plan(state.version, yields=(Preempt(running[0].id, reason("preempted"), grace),))
        return first_fit(state, now)

    policy(decide)
    one_node = Cluster((PoolShape("main", 1, 8),))
    low, high = replay(
        [job(0, 0, 1000, priority=20), job(1, 100, 50, priority=90)], setup(cluster=one_node, costs=costs)
    ).jobs
    assert (low.started, low.preemptions, low.failures) == (0, 1, 0)
    assert (high.started, high.finished, high.preemptions) == (starts, starts + 50, 0)
    assert low.finished == pytest.approx(finishes)
    assert low.lost == pytest.approx(lost * 8)
    assert low.held == pytest.approx(finishes - 50)
    assert marks == ([60] if costs.checkpoint_every else [])


def test_a_gang_on_some_of_its_nodes_works_slower(policy: Policy_) -> None:
    policy(lambda state, now: first_fit(state, now, most=1))
    (found,) = replay([job(0, 0, 100, nodes=2)], setup()).jobs
    assert (found.finished, found.held) == (200, 200)


def test_a_failed_node_comes_back_after_its_repair() -> None:
    cluster = Cluster((PoolShape("main", 1, 8),))
    costs = Costs(node_failures=10.0, repair=500.0, seed=3)
    result = replay([job(0, 0, 10_000)], setup(cluster=cluster, costs=costs))
    (found,) = result.jobs
    assert found.failures > 0
    assert found.finished is not None
    # Without saves every failure starts it again from nothing, after the repair.
    assert found.lost == pytest.approx((found.held - 10_000) * 8)
    assert found.finished - found.started - found.held >= found.failures * 500
    assert {sample.total for sample in result.samples} <= {0, 8}


def test_spot_nodes_are_interrupted_and_others_are_not() -> None:
    costs = Costs(spot_interruptions=50.0, repair=10.0, checkpoint_every=100.0)
    pools = [PoolShape("spot", 1, 8, spot=True), PoolShape("kept", 1, 8)]
    for pool in pools:
        (found,) = replay([job(0, 0, 20_000)], setup(cluster=Cluster((pool,)), costs=costs)).jobs
        assert bool(found.failures) == pool.spot


def test_a_job_that_is_never_started_does_not_keep_the_clock_running(policy: Policy_) -> None:
    policy(lambda state, now: Plan(state.version))
    (found,) = replay([job(0, 0, 10)], setup(costs=Costs(node_failures=0.1))).jobs
    assert (found.started, found.finished, found.refused) == (None, None, "")


def test_an_empty_trace() -> None:
    result = replay([], setup())
    assert (result.jobs, result.samples) == ([], [])


def test_samples_are_few_and_progress_is_told() -> None:
    told: list[float] = []
    result = replay([job(n, n * 3.0, 5, accelerators=1) for n in range(4000)], setup(), told.append)
    assert 500 < len(result.samples) <= 2000
    assert told == sorted(told)
    assert 50 < len(told) <= 101
    assert result.events > 4000 * 6
    assert result.wall > 0


def test_a_sample_says_how_much_of_what_is_free_is_of_use() -> None:
    cluster = Cluster((PoolShape("main", 2, 8),))
    half = [job(n, 0, 100, accelerators=6) for n in range(2)]
    (sample, *_) = replay([*half, *(job(n, 1000, 1) for n in range(2, 20))], setup(cluster=cluster)).samples
    assert (sample.used, sample.total, sample.by_queue) == (12, 16, {"default": 12})
    assert sample.usable == 0.0  # four accelerators on two nodes, and gangs of six and eight


def test_a_policy_that_fails_leaves_the_process_as_it_was(policy: Policy_) -> None:
    def fail(state: State, now: float) -> Plan:
        raise ZeroDivisionError

    before = gc.get_threshold(), gc.get_freeze_count()
    policy(fail)
    with pytest.raises(ZeroDivisionError):
        replay([job(0, 0, 10)], setup())
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_a_policy_that_never_rests_is_told_off(policy: Policy_) -> None:
    def order_drifts(state: State, now: float) -> Plan:
        running = [one.id for one in state.jobs.values() if one.phase == "running"]
        plan = first_fit(state, now)
        return replace(plan, yields=tuple(Preempt(name, reason("preempted"), 0.0) for name in running))

    policy(order_drifts)
    with pytest.raises(RuntimeError, match="without an end"):
        replay([job(0, 7, 10), job(1, 8, 10)], setup())


def test_weekdays_mean_something() -> None:
    assert EPOCH % (7 * 86_400) == 4 * 86_400  # 1970 began on a Thursday


Policy_ = Callable[[Callable[[State, float], Plan]], None]


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Policy_:
    """Puts a hand-made policy in the place of the scheduler."""

    def use(decide: Callable[[State, float], Plan]) -> None:
        monkeypatch.setattr(muster.control.loop, "schedule", lambda state, now, board: decide(state, now))

    return use


def first_fit(state: State, now: float, most: int = 1000) -> Plan:
    """The job with the highest priority, on whole nodes that are free."""
    waiting = [one for one in state.jobs.values() if one.phase == "queued" and one.not_before <= now]
    free = [node for node in state.nodes.values() if node.free == node.total]
    for first in sorted(waiting, key=lambda one: (-one.spec.priority, one.number)):
        count = min(first.spec.num_nodes, most)
        if count <= len(free):
            seats = tuple(Seat(node.name, tuple(range(first.ask.accelerators))) for node in free[:count])
            return Plan(state.version, (Start(first.id, seats),))
    later = [one.not_before for one in state.jobs.values() if one.phase == "queued" and one.not_before > now]
    return Plan(state.version, wake_at=min(later, default=None))


def test_what_depends_on_the_jobs_is_checked_for_each_of_equal_jobs() -> None:
    """One user may have two jobs that are not over. The third is refused, and one that comes after an end is not."""
    trace = [job(1, 0, 100), job(2, 0, 200), job(3, 50, 100), job(4, 150, 100), job(5, 160, 100)]
    found = replay(trace, replace(setup(), quota=Quota(jobs_per_user=2))).jobs
    assert [bool(one.refused) for one in found] == [False, False, True, False, True]
    assert "has 2 jobs that are not over" in found[2].refused


def test_rules_raise_alerts_in_a_simulation() -> None:
    crowd = [job(number, 0.0, 3 * 3600.0) for number in range(4)]
    found = replay(crowd, replace(setup(), alerts=default_rules()))
    assert (found.alerts["job-waits-long"], found.alerts["not-finite"]) == (2, 0)
    assert replay(crowd, setup()).alerts == {}
