"""Failures by cause, node and code, the time between them, and the interval between saves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.job import Attempt, Worker
from muster.core.reasons import reason
from muster.core.seat import Seat
from muster.monitor.failures import RunAttempt, interval, summarize

HOUR = 3600.0


def ended(
    nodes: str, start: float, end: float | None, code: str = "", node: str = "", version: str = "abc"
) -> RunAttempt:
    """An attempt on nodes of one letter each; without a code it succeeded, without an end it runs."""
    attempt = Attempt(1, start, [Worker(Seat(name)) for name in nodes], running_at=start, ended_at=end)
    if end is not None:
        attempt.outcome = "failed" if code else "succeeded"
        attempt.reason = reason(code or "completed", node=node or nodes[0])
    return RunAttempt(attempt, version)


def test_failures_are_counted_by_cause_node_and_code() -> None:
    found = summarize(
        [
            ended("ab", 0, 10 * HOUR, "node_lost", "b"),
            ended("a", 0, 5 * HOUR, "killed_by_signal"),
            ended("a", 5 * HOUR, 6 * HOUR, "user_error", version="def"),
            ended("b", 10 * HOUR, None),
            ended("a", 6 * HOUR, 20 * HOUR),
        ],
        [4.0, 9.0, 1.0],
        0.0,
        20 * HOUR,
    )
    assert (found["attempts"], found["failures"]) == (5, 3)
    assert {one["name"]: one["failures"] for one in found["causes"]} == {
        "node_lost": 1, "killed_by_signal": 1, "user_error": 1,
    }  # fmt: skip
    assert found["codes"] == [{"name": "abc", "failures": 2}, {"name": "def", "failures": 1}]
    nodes = {one["node"]: one for one in found["nodes"]}
    assert (nodes["a"]["failures"], nodes["a"]["counted"], nodes["a"]["between"]) == (2, 1, 30 * HOUR)
    assert (nodes["b"]["failures"], nodes["b"]["counted"], nodes["b"]["between"]) == (1, 1, 20 * HOUR)
    assert found["between"] == 25 * HOUR, "50 node hours and two failures: the program's own error is left out"
    assert found["save"] == 4.0
    by_size = {one["nodes"]: one for one in found["intervals"]}
    assert by_size[2]["between"] == 12.5 * HOUR, "a gang fails when one of its nodes does"
    assert by_size[2]["interval"] == pytest.approx(math.sqrt(2 * 4.0 * 12.5 * HOUR))


def test_only_the_period_counts() -> None:
    early, across = ended("a", 0, 10, "node_lost"), ended("a", 50, 150, "node_lost")
    found = summarize([early, across], [], 100.0, 200.0)
    assert (found["attempts"], found["failures"], found["busy"]) == (1, 1, 50.0)
    assert found["intervals"] == [{"nodes": 1, "between": 50.0, "interval": None}]


def test_nothing_failed() -> None:
    found = summarize([ended("a", 0, 10)], [1.0], 0.0, 20.0)
    assert (found["failures"], found["between"], found["intervals"]) == (0, None, [])


@given(st.floats(0.001, 1e4), st.floats(1.0, 1e9))
def test_the_interval_costs_least(save: float, between: float) -> None:
    """Lost per second: a save each interval, and half an interval at each failure. Young's interval is its minimum."""

    def cost(seconds: float) -> float:
        return save / seconds + seconds / (2 * between)

    best = interval(save, between)
    assert cost(best) <= cost(best * 1.01) + 1e-12
    assert cost(best) <= cost(best * 0.99) + 1e-12
