"""What every scheduling policy keeps: deterministic, bounded by what is there, and nobody starves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.event import Event
from muster.core.resources import Resources
from muster.core.state import State, apply
from muster.sched.policies import POLICIES
from muster.sched.schedule import Memo, schedule
from worlds import fold, job_event, node_event, worlds

NOW = 100.0


def in_policy(state: State, name: str) -> State:
    for queue in list(state.queues):
        apply(state, Event("queue.set", NOW, data={"name": queue, "policy": name}, seq=state.version + 1))
    return state


def start_all(state: State, plan) -> None:
    for start in plan.starts:
        seats = [{"node": seat.node, "devices": seat.devices} for seat in start.seats]
        job = state.jobs[start.job]
        number = (job.attempt.number if job.attempt else 0) + 1
        apply(
            state,
            Event("attempt.planned", NOW, job=job.id, attempt=number, data={"seats": seats}, seq=state.version + 1),
        )


def finish(state: State, job_id: str) -> None:
    reason = {"code": "completed", "message": ""}
    number = state.jobs[job_id].attempt.number
    ended = {"outcome": "succeeded", "reason": reason}
    apply(state, Event("attempt.ended", NOW, job=job_id, attempt=number, data=ended, seq=state.version + 1))
    apply(state, Event("job.succeeded", NOW, job=job_id, data={"reason": reason}, seq=state.version + 1))


@pytest.mark.parametrize("policy", sorted(POLICIES))
class TestPolicy:
    @given(state=worlds())
    def test_the_same_state_gives_the_same_plan_with_or_without_a_memo(self, policy: str, state: State) -> None:
        in_policy(state, policy)
        memo = Memo()
        assert schedule(state, NOW) == schedule(state, NOW, memo) == schedule(state, NOW, memo)

    @given(state=worlds())
    def test_never_oversubscribed_and_never_half_a_gang(self, policy: str, state: State) -> None:
        in_policy(state, policy)
        plan = schedule(state, NOW)
        used: Counter[str] = Counter()
        for start in plan.starts:
            job = state.jobs[start.job]
            assert len({seat.node for seat in start.seats}) == len(start.seats) == job.spec.num_nodes
            for seat in start.seats:
                assert len(seat.devices) == job.ask.accelerators
                used.update((seat.node, device) for device in seat.devices)
        assert all(count == 1 for count in used.values())
        start_all(state, plan)
        for node in state.nodes.values():
            assert node.free.milli_cpus >= 0
            assert node.free.memory >= 0
            assert node.free.accelerators == node.free_devices.bit_count() >= 0

    @given(state=worlds(), order=st.randoms(use_true_random=False))
    def test_every_job_that_fits_an_empty_cluster_runs_in_the_end(self, policy: str, state: State, order) -> None:
        in_policy(state, policy)
        for job_id in [j.id for j in state.jobs.values() if _never_fits(state, j)]:
            reason = {"code": "user_stop", "message": ""}
            apply(state, Event("job.stopped", NOW, job=job_id, data={"reason": reason}, seq=state.version + 1))
        for _ in range(len(state.jobs) + 1):
            start_all(state, schedule(state, NOW))
            if state.active:
                finish(state, order.choice(sorted(state.active)))
        assert not state.jobs

    def test_waiting_jobs_are_not_looked_at_one_by_one(self, policy: str) -> None:
        events = [
            Event("project.set", 0.0, data={"name": "default"}),
            Event("queue.set", 0.0, data={"name": "default"}),
        ]
        events += [node_event("n0", 1, 4)]
        state = in_policy(fold([*events, *(job_event(n, gpus=1) for n in range(1, 200))]), policy)
        start_all(state, schedule(state, NOW))
        looked: list[str] = []

        class Watched(dict):
            def __getitem__(self, key):
                looked.append(key)
                return super().__getitem__(key)

        state.jobs = Watched(state.jobs)
        schedule(state, NOW)
        assert len(looked) <= 2


def _never_fits(state: State, job) -> bool:
    return sum(node.total.holds(job.ask) for node in state.nodes.values()) < job.spec.num_nodes


def test_a_backing_off_job_does_not_hold_the_others_back() -> None:
    state = fold([*_small(), job_event(1), job_event(2)])
    state.later["job-1"] = NOW + 5
    plan = schedule(state, NOW)
    assert [start.job for start in plan.starts] == ["job-2"]
    assert plan.wake_at == NOW + 5
    assert "job-1" in [start.job for start in schedule(state, NOW + 5).starts]


def _small() -> list[Event]:
    return [
        Event("project.set", 0.0, data={"name": "default"}),
        Event("queue.set", 0.0, data={"name": "default"}),
        node_event("n0", 0, 4),
    ]


def test_resources_of_another_kind_do_not_fit() -> None:
    assert not Resources(1000, 0, 8, "A100").holds(Resources(0, 0, 1, "H100"))
    assert Resources(1000, 0, 8, "A100").holds(Resources(0, 0, 1, "GPU"))
