"""A forecast is the real scheduler run forward: with run times that are known, it is what then happens."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.event import Event
from muster.core.job import Job
from muster.core.parse import parse_job
from muster.core.payload import decode
from muster.core.rules import Preemption, QueueRules, Rules
from muster.core.spec import JobSpec, WorkerResources
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.draws import LEAST_LEFT, MOST_LEFT
from muster.sched.forecast import SAMPLES, forecast, forecast_snapshot
from muster.sched.future import LEAST
from muster.sched.snapshot import take
from muster.sched.whatif import unsubmitted_job, what_if
from muster.sim.inventory import nodes_of, opening
from muster.sim.model import Cluster, Costs, PoolShape, Setup, TraceJob
from muster.sim.run import EPOCH, replay
from scheduler_kit import fold
from strategy_kit import pick
from wait_kit import ClusterState

HOUR = 3600.0


def played(trace: list[TraceJob], setup: Setup) -> State:
    """The moment after everything in the trace was submitted, as the controller would have it."""
    events = opening(trace, setup, EPOCH)
    for node in nodes_of(setup.cluster):
        data = {"name": node.name, "pool": node.pool, "resources": asdict(node.resources), "labels": dict(node.labels)}
        events.append(Event(decode("node.joined", data), EPOCH))
    for number, job in enumerate(trace, 1):
        wants = WorkerResources(accelerator=job.accelerator, accelerators=job.accelerators, cpus=job.cpus)
        spec = JobSpec(name=job.name, run="true", num_nodes=job.nodes, resources=wants, priority=job.priority)
        data = {"number": number, "name": spec.name, "queue": spec.queue, "user": job.user, "spec": spec, "key": None}
        events.append(Event(decode("job.submitted", data), EPOCH, job.user, spec.project, f"{spec.name}-{number}"))
    return fold(events)


@st.composite
def setups(draw: st.DrawFn, fair: bool = False) -> tuple[list[TraceJob], Setup]:
    queue = QueueRules(
        order=draw(pick("fifo", "priority", "predicted", "shortest", "attained")),
        backfill=draw(pick("greedy", "easy", "conservative", "none")),
        overdue=draw(pick(None, 1000.0)),
    )
    # Under fair shares a round may leave a start to the next one, which the controller has a little later.
    between = "fair" if fair and draw(st.booleans()) else "rank"
    rules = Rules(defaults=queue, preemption=Preemption(enabled=False, restart_cost=0.0), between=between)
    cluster = Cluster((PoolShape("main", draw(st.integers(1, 3)), 4, "H100", cpus=64.0),))
    nodes = cluster.pools[0].nodes
    trace = [
        TraceJob(
            str(i), 0.0, float(draw(st.integers(1, 3000))), draw(st.integers(1, nodes)), draw(st.integers(1, 4)),
            "H100",
            1.0, user=draw(pick("ada", "bob")), name=draw(pick("a", "b")),
            priority=draw(pick(20, 50, 90)),
        )
        for i in range(draw(st.integers(1, 10)))
    ]  # fmt: skip
    return trace, Setup("known", rules, cluster, Costs(restart=0.0, restart_wide=0.0))


@settings(max_examples=20, deadline=None)
@given(setups())
def test_with_known_run_times_it_says_what_the_controller_then_does(given: tuple[list[TraceJob], Setup]) -> None:
    trace, setup = given
    truth = {f"{one.job.name}-{i}": one.started for i, one in enumerate(replay(trace, setup).jobs, 1)}
    state = played(trace, setup)
    lasts = {name: trace[job.number - 1].duration for name, job in state.jobs.items()}

    def known(job: Job, age: float, sample: int) -> float:
        return max(lasts[job.id], age)

    shot = take(state, Board(), EPOCH, list(state.jobs))
    found = forecast_snapshot(shot, list(state.jobs), samples=1, draw=known, leaves=0.0, grain=0.0)
    assert {name: one.p50 and one.p50 - EPOCH for name, one in found.items()} == pytest.approx(truth)


@settings(max_examples=15, deadline=None)
@given(setups(fair=True))
def test_the_same_state_gives_the_same_forecast_and_stays_as_it_was(given: tuple[list[TraceJob], Setup]) -> None:
    state = played(*given)
    before, board = deepcopy(state), Board()
    jobs = list(state.jobs)
    first = forecast(state, EPOCH + 5, board, jobs, samples=4)
    assert state == before
    assert first == forecast(state, EPOCH + 5, None, jobs, samples=4)
    for one in first.values():
        assert one.p50 is not None
        assert EPOCH + 5 <= one.p50 <= (one.p90 or one.p50)


def busy(*lasted: float, until: str = "10h") -> ClusterState:
    """A full cluster, and a user whose jobs lasted so long."""
    cluster_state = ClusterState()
    for seconds in lasted:
        name = cluster_state.run("n0", name="past")
        cluster_state.now += seconds
        done = {"code": "completed", "message": "", "hint": "", "data": {}}
        cluster_state.tell("attempt.ended", name, outcome="succeeded", reason=done)
        cluster_state.tell("job.succeeded", name, reason=done)
    cluster_state.run("n0", "n1", name="now", max_duration=until)
    return cluster_state


def test_what_finished_tells_when_the_next_starts() -> None:
    short, long = busy(*[60.0] * 40), busy(*[6 * HOUR] * 40)
    waits = []
    for cluster_state in (short, long):
        name = cluster_state.job(gpus=2)
        found = forecast(cluster_state.state, cluster_state.now, jobs=[name])[name]
        assert found.p50 is not None
        assert found.p90 is not None
        assert found.p50 <= found.p90
        waits.append(found.p50 - cluster_state.now)
    assert waits[0] < 600 < HOUR < waits[1]


def test_a_job_that_reports_its_progress_is_forecast_by_it() -> None:
    cluster_state = busy(until="30m")
    (holder,) = cluster_state.state.active
    name = cluster_state.job(gpus=2)
    board = Board()
    left = {holder: cluster_state.now + 75.0}
    blind, seeing = (
        forecast_snapshot(take(cluster_state.state, board, cluster_state.now, [name], ends=ends), [name])[name]
        for ends in ({}, left)
    )
    assert blind.p90 is not None
    assert blind.p90 > cluster_state.now + 600
    assert seeing.p50 is not None
    assert seeing.p90 is not None
    assert (
        cluster_state.now + 75 * LEAST_LEFT
        <= seeing.p50
        < seeing.p90
        <= cluster_state.now + 75 * MOST_LEFT + LEAST * SAMPLES
    )


def test_nouns_without_a_field_of_their_own_are_copied() -> None:
    cluster_state = ClusterState()
    cluster_state.state.others["licence"] = {"matlab": ["ann"]}
    shot = take(cluster_state.state, Board(), cluster_state.now)
    cluster_state.state.others["licence"]["matlab"].append("bob")
    copy = shot.new_state()
    assert copy.others == {"licence": {"matlab": ["ann"]}}
    copy.others["licence"]["matlab"].clear()
    assert shot.others == {"licence": {"matlab": ["ann"]}}


def test_a_gang_never_runs_longer_than_it_may() -> None:
    cluster_state = busy(*[40 * HOUR] * 20, until="2h")
    name = cluster_state.job(gpus=2)
    found = forecast(cluster_state.state, cluster_state.now, jobs=[name])[name]
    assert found.p90 == cluster_state.now + 2 * HOUR


def test_what_was_cut_short_says_so() -> None:
    cluster_state = busy()
    name = cluster_state.job(gpus=2)
    found = forecast(cluster_state.state, cluster_state.now, jobs=[name], horizon=1.0)[name]
    assert (found.p50, found.p90, found.cut, found.after) == (None, None, ("horizon",), cluster_state.now)
    found = forecast(cluster_state.state, cluster_state.now, jobs=[name], rounds=1)[name]
    assert (found.p50, found.cut) == (None, ("rounds",))
    shot = take(cluster_state.state, Board(), cluster_state.now, [name], most=0)
    assert forecast_snapshot(shot, [name])[name].cut == ()
    cluster_state.job(gpus=1)
    shot = take(cluster_state.state, Board(), cluster_state.now, [name], most=0)
    assert (shot.left_out, forecast_snapshot(shot, [name])[name].cut) == (1, ("jobs",))


def test_a_job_that_nothing_lets_start_is_said_never_to() -> None:
    cluster_state = ClusterState()
    cluster_state.state.nodes["n1"].health = "draining"
    name = cluster_state.job(num_nodes=2)
    found = forecast(cluster_state.state, cluster_state.now, jobs=[name])[name]
    assert (found.p50, found.never) == (None, True)


def what(cluster_state: ClusterState, **spec: object):
    job = unsubmitted_job(
        cluster_state.state, parse_job({"name": "new", "run": "true", **spec}), "ada", cluster_state.now
    )
    return what_if(take(cluster_state.state, Board(), cluster_state.now, users=[job]), job)


def test_a_dry_run_says_where_it_would_go() -> None:
    found = what(ClusterState(), gpus=2, num_nodes=2)
    assert (found.starts_now, found.nodes, found.pool) == (True, ("n0", "n1"), "main")
    assert found.forecast.p90 == 100.0


def test_a_dry_run_says_when_and_what_would_start_sooner() -> None:
    cluster_state = ClusterState()
    cluster_state.run("n0", max_duration="2h")
    before = deepcopy(cluster_state.state)
    found = what(cluster_state, gpus=2, num_nodes=2)
    assert not found.starts_now
    assert found.reasons[0].code == "no_capacity"
    assert found.forecast.p50 is not None
    assert found.forecast.p50 > cluster_state.now
    assert found.sooner[0].to_dict()["data"] == {"set": {"num_nodes": 1}}
    assert found.sooner[0].p50 == cluster_state.now
    assert cluster_state.state == before


def test_a_dry_run_says_whom_it_would_displace() -> None:
    cluster_state = ClusterState(rules=Rules(defaults=QueueRules(order="priority"), preemption=Preemption(min_run=0.0)))
    running = cluster_state.run("n0", "n1", priority=20)
    found = what(cluster_state, gpus=2, priority=95)
    assert (found.preempts, found.nodes) == ((running,), ("n0",))
    assert found.reasons[0].code == "waits_for_seats"


def test_where_nothing_smaller_starts_at_once_it_is_played_through() -> None:
    cluster_state = ClusterState()
    cluster_state.run("n0", max_duration="30m")
    cluster_state.run("n1", max_duration="20h")
    found = what(cluster_state, gpus=2, num_nodes=2)
    assert found.sooner[0].change.data["set"] == {"num_nodes": 1}
    assert found.sooner[0].p50 < found.forecast.p50
