"""How long jobs waited for what was their queue's own, against a count second by second."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.rules import Preemption, QueueRules, Rules
from muster.sim.model import Cluster, Costs, JobResult, PoolShape, Setup, TraceJob
from muster.sim.quota_waits import QuotaWaits
from muster.sim.run import replay

POOL = PoolShape("main", 2, 8)
STILL = QueueRules(order="fifo", backfill="none", overdue=None)


def rules(order: QueueRules = STILL, **quotas: int) -> Rules:
    queues = {name: order.model_copy(update={"quota": {"main": amount}}) for name, amount in quotas.items()}
    return Rules(preemption=Preemption(enabled=False), defaults=order, queues=queues)


def job(number: int, submit: int, duration: int, size: int, queue: str) -> TraceJob:
    return TraceJob(str(number), submit, duration, 1, size, queue=queue)


def played(trace: list[TraceJob], given_: Rules, costs: Costs | None = None) -> list[JobResult]:
    return replay(trace, Setup("test", given_, Cluster((POOL,)), costs or Costs())).jobs


def counted(found: list[JobResult], quotas: dict[str, int]) -> list[float]:
    """The same from the starts and ends of all jobs, where nobody is interrupted and all times are whole seconds."""
    longest = []
    for one in found:
        assert one.started is not None
        best = stretch = 0
        for second in range(int(one.job.submit), int(one.started)):
            stretch = stretch + 1 if used(found, one.job.queue, second) + one.job.size <= quotas[one.job.queue] else 0
            best = max(best, stretch)
        longest.append(float(best))
    return longest


def used(found: list[JobResult], queue: str, second: int) -> int:
    return sum(
        one.job.size
        for one in found
        if one.started is not None and one.finished is not None
        if one.job.queue == queue and one.started <= second < one.finished
    )


@given(
    trace=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(1, 8), st.sampled_from("ab")), max_size=20
    ),
    quotas=st.fixed_dictionaries({"a": st.integers(0, 16), "b": st.integers(0, 16)}),
)
@settings(max_examples=15, deadline=None)
def test_it_is_what_a_count_second_by_second_gives(
    trace: list[tuple[int, int, int, str]], quotas: dict[str, int]
) -> None:
    jobs = [job(number, *row) for number, row in enumerate(trace)]
    found = played(jobs, rules(**quotas))
    assert [one.longest_in_quota for one in found] == counted(found, quotas)


def test_who_waits_for_lent_quota_is_counted_and_who_takes_it_back_is_not() -> None:
    lent = [job(0, 0, 500, 8, "a"), job(1, 0, 500, 8, "a"), job(2, 100, 10, 8, "b")]
    kept = rules(a=8, b=8)
    assert [one.longest_in_quota for one in played(lent, kept)] == [0, 0, 400]
    back = kept.model_copy(update={"preemption": Preemption()})
    assert [one.longest_in_quota for one in played(lent, back)] == [0, 0, 0]
    slow = played(lent, back, Costs(checkpoint_cost=20.0))
    assert slow[2].longest_in_quota == 20  # that the other took to save and leave
    assert sum(one.preemptions for one in slow) == 1


def test_who_is_stopped_waits_again() -> None:
    """Only the stretches within the quota count, each by itself: the longest is kept."""
    quota_waits, row = QuotaWaits(rules(a=8), [POOL]), job(0, 0, 10, 4, "a")
    first = quota_waits.wait("a", "", row)
    assert first is not None
    quota_waits.settle(0.0)
    quota_waits.change("a", "main", 8)
    quota_waits.settle(30.0)  # 30 s of room, then none
    quota_waits.change("a", "main", -8)
    quota_waits.settle(50.0)
    assert quota_waits.start(first, 0.0, 60.0) == 30
    again = quota_waits.wait("a", "", replace(row, submit=60.0))
    assert again is first
    quota_waits.settle(60.0)
    assert quota_waits.start(again, 60.0, 75.0) == 15


def test_a_queue_within_another_may_use_what_is_that_ones_own() -> None:
    parent = STILL.model_copy(update={"quota": {"main": 8}})
    child = STILL.model_copy(update={"parent": "all"})
    quota_waits = QuotaWaits(Rules(queues={"all": parent, "a": child, "b": child}), [POOL])
    waits = quota_waits.wait("a", "", job(0, 0, 10, 4, "a"))
    assert waits is not None
    quota_waits.settle(0.0)
    quota_waits.change("b", "main", 6)  # too much for both
    quota_waits.settle(7.0)
    assert quota_waits.start(waits, 0.0, 100.0) == 7


@pytest.mark.parametrize("bound", ["main", "other"])
def test_a_pool_that_the_job_can_not_use_is_not_owed(bound: str) -> None:
    quota_waits = QuotaWaits(rules(a=8), [POOL, PoolShape("other", 1, 8)])
    waits = quota_waits.wait("a", bound, job(0, 0, 10, 4, "a"))
    assert waits is not None
    quota_waits.settle(0.0)
    assert quota_waits.start(waits, 0.0, 9.0) == (9 if bound == "main" else 0)


def test_without_quotas_nothing_is_kept() -> None:
    assert QuotaWaits(Rules(), [POOL]).wait("a", "", job(0, 0, 10, 4, "a")) is None
