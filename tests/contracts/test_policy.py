"""What every order keeps: deterministic, steady within its bands, awake in time, and nobody starves.

A policy speaks of one job at a time. What follows for whole rounds is tested over every policy as well.
"""

from __future__ import annotations

from math import inf, isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.history import History, groups_of
from muster.core.job import Attempt, Job, Seat, Worker
from muster.core.parse import parse_job
from muster.core.rules import Escalation, Preemption, QueueRules, Rules
from muster.core.spec import ask
from muster.sched.order import Standing
from muster.sched.policies import POLICIES, policy_of
from scheduler_kit import SchedulerLoop
from strategy_kit import pick
from streams import Case, board_agrees, cases, limits_hold, plan_is_sound

USERS = ("ada", "bob")


@st.composite
def jobs(draw: st.DrawFn, number: int = 1) -> Job:
    spec = parse_job({
        "name": "job", "run": "true", "gpus": draw(pick(0, 0.5, 1, 4)),
        "num_nodes": draw(st.integers(1, 3)), "priority": draw(pick(0, 20, 50, 95, 100)),
        "max_duration": draw(pick(60, 3600, 86_400)),
    })  # fmt: skip
    submitted = draw(st.integers(0, 1000)) * 1.0
    job = Job(f"j{number}", number, "default", "default", draw(st.sampled_from(USERS)), spec, submitted, ask=ask(spec))
    job.since = submitted
    job.ran = draw(pick(0.0, 10.0, 5000.0))
    job.expect = draw(st.none() | st.sampled_from([30.0, 7000.0]))
    job.study_left, job.study_ran = draw(pick(1, 3, 200)), draw(pick(0.0, 60.0, 40_000.0))
    if draw(st.booleans()):
        began = submitted + draw(st.integers(0, 1000))
        workers = [Worker(Seat(f"n{i}")) for i in range(spec.num_nodes)]
        job.phase, job.attempt = "running", Attempt(1, began, workers, running_at=began)
    return job


queue_rules = st.builds(
    QueueRules,
    ageing=st.sampled_from([None, 0.0, 3600.0]),
    levels=st.sampled_from([(100.0,), (50.0, 5000.0)]),
    escalation=st.sampled_from([None, Escalation(after=500.0, to=80)]),
)
histories = st.lists(st.tuples(st.sampled_from(USERS), st.integers(1, 10_000)), max_size=12)


def learnt(ends: list[tuple[str, int]]) -> History:
    history = History()
    spec = parse_job({"name": "job", "run": "true", "gpus": 1})
    for user, seconds in ends:
        history.observe(groups_of(user, spec), float(seconds))
    return history


@pytest.mark.parametrize("name", sorted(POLICIES))
class TestPolicy:
    def test_it_says_who_it_is(self, name: str) -> None:
        policy = POLICIES.get(name)
        assert policy.name == name
        assert policy.description
        assert policy.description[0].islower()
        assert policy.description[-1] != "."

    @settings(deadline=None)
    @given(job=jobs(), queue=queue_rules, ends=histories, later=st.integers(0, 5000))
    def test_the_same_job_stands_in_the_same_place(self, name: str, job: Job, queue, ends, later: int) -> None:
        policy, rules, now = POLICIES.get(name), Rules(), _after(job) + later
        first, again = (policy.standing(job, rules, queue, now) for _ in range(2))
        assert first == again
        hash(first.band)
        one, two = learnt(ends), learnt(ends)
        assert policy.rank(first.band, first.key, one) == policy.rank(again.band, again.key, two)
        assert policy.value(first.band, one) == policy.value(again.band, two)
        assert all(isfinite(part) for part in policy.rank(first.band, first.key, one))

    @settings(deadline=None)
    @given(job=jobs(), queue=queue_rules, later=st.integers(0, 5000), share=st.floats(0, 1))
    def test_nothing_changes_before_it_says_so(self, name: str, job: Job, queue, later: int, share: float) -> None:
        """Time alone moves nobody until `until`, which is never now."""
        policy, rules, now = POLICIES.get(name), Rules(), _after(job) + later
        here = policy.standing(job, rules, queue, now)
        assert here.until > now
        end = min(here.until, now + 100_000.0)
        between = now + share * (end - now) * 0.999
        there = policy.standing(job, rules, queue, between)
        assert (there.band, there.key) == (here.band, here.key)
        if here.until < inf:
            moved = policy.standing(job, rules, queue, here.until)
            assert (moved.band, moved.key) != (here.band, here.key)

    @settings(deadline=None)
    @given(first=jobs(1), second=jobs(2), queue=queue_rules, ends=histories)
    def test_no_two_stand_in_the_same_place(self, name: str, first: Job, second: Job, queue, ends) -> None:
        policy, rules, history = POLICIES.get(name), Rules(), learnt(ends)
        now = max(_after(first), _after(second))
        ranks = [_rank(policy, policy.standing(job, rules, queue, now), history) for job in (first, second)]
        assert ranks[0] != ranks[1]

    @settings(deadline=None)
    @given(first=jobs(1), second=jobs(2), queue=queue_rules, before=histories, after=histories)
    def test_within_a_band_the_order_is_that_of_the_keys(
        self, name: str, first: Job, second: Job, queue, before, after
    ) -> None:
        """Whatever finishes meanwhile: jobs of one band stand in one sorted list."""
        policy, rules = POLICIES.get(name), Rules()
        now = max(_after(first), _after(second))
        one, two = (policy.standing(job, rules, queue, now) for job in (first, second))
        if one.band == two.band:
            for ends in (before, [*before, *after]):
                history = learnt(ends)
                assert (_rank(policy, one, history) < _rank(policy, two, history)) == (one.key < two.key)

    @settings(deadline=None)
    @given(job=jobs(), queue=queue_rules, ends=histories)
    def test_a_value_is_a_plain_number(self, name: str, job: Job, queue, ends) -> None:
        policy = POLICIES.get(name)
        value = policy.value(policy.standing(job, Rules(), queue, _after(job)).band, learnt(ends))
        assert 0.0 <= value < inf
        assert policy.values == (value > 0.0)

    def test_higher_priority_goes_first_where_the_order_speaks_of_it(self, name: str) -> None:
        policy = POLICIES.get(name)
        if "priority" not in policy.description:
            return
        rules = Rules(preemption=Preemption(enabled=False), defaults=QueueRules(order=name, overdue=None))
        loop = SchedulerLoop(rules)
        loop.node("n0", gpus=1)
        loop.submit("busy", 100, gpus=1)
        loop.tick()
        for priority in (20, 95, 50):
            loop.submit(f"p{priority}", 10, gpus=1, priority=priority)
        loop.run()
        assert loop.order("starts") == ["busy", "p95", "p50", "p20"]

    @settings(max_examples=25, deadline=None)
    @given(data=st.data())
    def test_rounds_are_sound_and_need_no_memory(self, name: str, data: st.DataObject) -> None:
        case: Case = data.draw(cases(order=name))
        loop = case.loop()
        loop.checks += [plan_is_sound, limits_hold, board_agrees]
        loop.run(until=1500.0)

    @settings(max_examples=25, deadline=None)
    @given(data=st.data())
    def test_everyone_who_can_run_does_in_the_end(self, name: str, data: st.DataObject) -> None:
        case: Case = data.draw(cases(order=name, troubled=False, plain=True))
        loop = case.loop()
        loop.run()
        assert not loop.state.jobs, f"at {loop.now}: {loop.phases()}"


def test_a_queue_with_turns_follows_them_whatever_its_order() -> None:
    assert policy_of(QueueRules(order="priority", slice=60.0)).name == "turns"
    assert policy_of(QueueRules(order="priority")).name == "priority"


def _after(job: Job) -> float:
    return job.attempt.running_at if job.attempt is not None and job.attempt.running_at else job.submitted_at


def _rank(policy, standing: Standing, history: History) -> tuple[float, ...]:
    return policy.rank(standing.band, standing.key, history)
