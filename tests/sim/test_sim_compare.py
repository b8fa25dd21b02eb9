"""Comparisons over worlds: when they stop, what counts in a world, and the means over worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.rules import Rules
from muster.sim.compare import Compared, compare, figures, mean_of
from muster.sim.model import Cluster, Money, PoolShape, Result, Setup, TraceJob
from muster.sim.pool import Pool
from muster.sim.presets import PRESETS
from muster.sim.summary import Spread, Summary, summarise
from muster.sim.verdicts import document, notes_of
from muster.sim.worlds import Worlds

DAY = 86_400.0
CLUSTER = Cluster((PoolShape("gpu", 1, 8),))
FIFO = Setup("fifo", PRESETS.get("fifo").rules, CLUSTER)
SHORTEST = Setup("sjf", PRESETS.get("sjf").rules, CLUSTER, exact=True)
# Each day a job of four hours, and behind it twenty of a minute.
TRACE = [
    TraceJob(f"{day}.{n}", day * DAY + 60 * n, 60.0 if n else 4 * 3600.0 + day, 1, 8)
    for day in range(6)
    for n in range(21)
] + [TraceJob("last", 6 * DAY, 1.0, 1, 8)]
# A second long one waits with them, so that the order matters.
TRACE += [TraceJob(f"{day}.late", day * DAY + 30, 2 * 3600.0, 1, 8) for day in range(6)]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_clear_comparison_stops_after_eight_worlds_and_says_so(processes):
    with Pool(TRACE, Worlds(1, DAY), processes) as pool:
        found = compare([FIFO, SHORTEST], pool, 40)
    assert (len(found.worlds), found.stopped) == (8, True)
    assert found.test is not None
    assert (found.test.pairs[0].less, found.test.pairs[0].verdict) == (8, "less")
    assert all(ratio < 1 for ratio in found.ratios(1))
    told = notes_of(found, ["fifo", "sjf"])
    assert "Stopped after 8 of 40 worlds" in told[0]
    assert "32 worlds (80%) were not replayed" in told[0]
    assert "less in 8 worlds and more in 0" in told[1]
    assert "Decided: less in more than half of all such worlds (evidence 56.8, needed 40" in told[1]
    pair = document(found, ["fifo", "sjf"])["pairs"][0]
    assert (pair["verdict"], pair["needed"], pair["less"]) == ("less", 40.0, 8)
    assert [one.setup.name for one in found.results] == ["fifo", "sjf"]
    assert len(found.results[0].jobs) == len(Worlds(1, DAY).jobs(0, TRACE))


def test_to_the_end_replays_all_worlds_and_keeps_the_verdict():
    with Pool(TRACE, Worlds(1, DAY)) as pool:
        found = compare([FIFO, SHORTEST], pool, 10, to_end=True)
    assert (len(found.worlds), found.stopped) == (10, False)
    assert found.test is not None
    assert found.test.pairs[0].verdict == "less"
    assert notes_of(found, ["fifo", "sjf"])[0].startswith("All 10 worlds were replayed.")


def test_equal_policies_are_never_decided():
    with Pool(TRACE, Worlds(1, DAY)) as pool:
        found = compare([FIFO, replace(FIFO, name="again")], pool, 10)
    assert len(found.worlds) == 10
    assert "even in 10" in notes_of(found, ["fifo", "again"])[1]
    assert "Not decided: evidence 1.0, needed 40." in notes_of(found, ["fifo", "again"])[1]


def test_one_replay_of_each_invents_no_significance():
    with Pool(TRACE) as pool:
        found = compare([FIFO, SHORTEST], pool)
    assert (found.test, found.stopped, found.planned) == (None, False, 1)
    (told,) = notes_of(found, ["fifo", "sjf"])
    assert "there is nothing to test" in told
    assert document(found, ["fifo", "sjf"])["pairs"] == []
    assert notes_of(found, ["fifo"]) == []


def summary(jobs: int, mean: float | None) -> Summary:
    empty = summarise(Result(Setup("x", Rules(), CLUSTER), []))
    return replace(empty, jobs=jobs, completion=Spread(jobs, mean, None, None, None))


def test_a_policy_that_finishes_fewer_jobs_has_lost_the_world():
    assert figures([summary(10, 5.0), summary(9, 1.0)]) == [5.0, float("inf")]
    assert figures([summary(10, 5.0), summary(10, 1.0)]) == [5.0, 1.0]
    assert figures([summary(0, None), summary(0, None)]) == [0.0, 0.0]


def test_means_are_of_every_figure_that_there_is():
    one = replace(summary(10, 4.0), money=Money("EUR", 10), by_size={"1": Spread(1, 2.0, None, None, None)})
    two = replace(summary(20, 8.0), money=Money("EUR", 31), utilisation=0.5)
    found = mean_of([one, two])
    assert (found.jobs, found.completion.mean, found.completion.p99) == (15, 6.0, None)
    assert (found.utilisation, found.by_size["1"].mean) == (0.5, 2.0)
    assert (found.money.currency, found.money.charged) == ("EUR", 20)
    assert Compared(2, worlds=[[one], [two]]).summaries == [found]
