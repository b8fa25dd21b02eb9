"""Targets: how they are read, what they measure, and that a replay that ends early says what a whole one would."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.errors import SpecError
from muster.core.rules import Rules
from muster.sim.model import Cluster, Costs, JobResult, PoolShape, Setup, TraceJob
from muster.sim.presets import PRESETS
from muster.sim.targets import Target, check_targets, parse_target
from muster.sim.watched import watch

CLUSTER = Cluster((PoolShape("gpu", 2, 8),))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("p90 wait <= 1h", Target("wait", 90.0, 3600.0)),
        ("  p99.9 queueing of vision<=30m ", Target("wait", 99.9, 1800.0, "vision")),
        ("median start ≤ 90s", Target("start", 50.0, 90.0)),
        ("mean completion < 2d", Target("completion", None, 172_800.0)),
        ("max wait <= 0s", Target("wait", 100.0, 0.0)),
    ],
)
def test_targets_are_read(text, target):
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text", ["", "wait <= 1h", "p90 wait", "p90 weight <= 1h", "p90 wait >= 1h", "p0 wait <= 1h", "p101 wait <= 1h",
             "p90 wait <= soon", "p90 wait <= -1h", "p90 wait of <= 1h"],
)  # fmt: skip
def test_what_is_no_target_is_told(text):
    with pytest.raises(SpecError, match="p90 wait <= 1h"):
        parse_target(text)


def result(submit, started, finished, held, queue="q", refused=""):
    return JobResult(TraceJob("j", submit, 10.0, queue=queue), started, finished, held, refused=refused)


def test_values_are_of_all_jobs_and_what_never_ended_took_forever():
    jobs = [result(0, 5, 20, 10), result(0, 0, 40, 10, "other"), result(10, 10, 30, 20)]
    assert Target("wait", None, 1).value(jobs) == (10 + 30 + 0) / 3
    assert Target("wait", None, 1, "q").value(jobs) == 5
    assert Target("start", 100.0, 1).value(jobs) == 5
    assert Target("completion", 50.0, 1).value(jobs) == 20
    jobs.append(result(0, None, None, 0, refused="too wide"))
    jobs.append(result(0, 3, None, 0))
    assert Target("wait", None, 1).value(jobs) == inf
    assert Target("wait", 50.0, 1).value(jobs) == 30
    assert Target("wait", 90.0, 1).value(jobs) == inf


def test_a_target_of_nobody_is_told():
    check_targets([Target("wait", 90.0, 1.0)], [TraceJob("a", 0, 1, queue="vision")])
    with pytest.raises(SpecError, match="no job of vison"):
        check_targets([Target("wait", 90.0, 1.0, "vison")], [TraceJob("a", 0, 1, queue="vision")])


@st.composite
def works(draw: st.DrawFn) -> list[TraceJob]:
    """From idle to overloaded; some jobs fit nowhere."""
    count = draw(st.integers(30, 120))
    every, length = draw(st.integers(1, 40)), draw(st.integers(1, 400))
    wide = draw(st.integers(0, 60))
    return [
        TraceJob(
            str(n),
            float(n * every),
            float(1 + (n * 37) % length),
            3 if wide and n % wide == 1 else 1,
            (1, 8, 2)[n % 3],
            queue="ab"[n % 2],
        )
        for n in range(count)
    ]


_TARGETS = st.builds(
    Target,
    st.sampled_from(["wait", "start", "completion"]),
    st.sampled_from([None, 50.0, 90.0, 99.0, 100.0]),
    st.sampled_from([0.0, 10.0, 200.0, 2000.0, 20_000.0]),
    st.sampled_from([None, "a"]),
)


@given(trace=works(), targets=st.lists(_TARGETS, min_size=1, max_size=3), failing=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_replay_that_ends_early_says_what_a_whole_one_does(every_step, trace, targets, failing):
    rules = PRESETS.get("fifo").rules if failing else Rules()
    setup = Setup("any", rules, CLUSTER, Costs(node_failures=20.0 if failing else 0.0, repair=500.0))
    early = watch(trace, setup, targets, to_end=False)
    whole = watch(trace, setup, targets)
    assert whole.result is not None
    assert early.met == whole.met
    for soon, late in zip(early.verdicts, whole.verdicts, strict=True):
        assert soon is None or soon == late
    if early.result is None:
        assert all(early.verdicts) or False in early.verdicts


@pytest.fixture(scope="module")
def every_step():
    """Looks at every step, so that no moment of a small replay is left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muster.sim.watched._LOOK_STEPS", 1)
        patch.setattr("muster.sim.watched._JUDGE_STEPS", 1)
        yield


def test_an_overload_is_told_long_before_its_end():
    trace = [TraceJob(str(n), float(n), 1000.0, 1, 8) for n in range(1200)]
    found = watch(trace, Setup("fifo", PRESETS.get("fifo").rules, CLUSTER), [Target("wait", 90.0, 60.0)], to_end=False)
    assert (found.result, found.verdicts) == (None, (False,))
    assert found.share < 0.3
