"""Worlds: what varies in them, and what can't."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from muster.core.errors import SpecError
from muster.core.rules import Rules
from muster.sim.model import Cluster, Costs, PoolShape, Setup, TraceJob
from muster.sim.worlds import Worlds, check_blocks

DAY = 86_400.0
TRACE = [TraceJob(str(n), 1000.0 + n * DAY / 3, 60.0, 1, 1) for n in range(31)]  # ten days of three jobs, and one more
CALM = Setup("calm", Rules(), Cluster((PoolShape("gpu", 2, 8),)))


def test_a_world_is_made_of_whole_blocks_of_the_trace():
    drawn = Worlds(7, DAY).jobs(3, TRACE)
    assert len(drawn) == 30
    days = [drawn[3 * day : 3 * day + 3] for day in range(10)]
    for day, jobs in enumerate(days):
        sources = [int(job.id.partition("@")[0]) for job in jobs]
        assert sources == list(range(sources[0], sources[0] + 3))
        assert sources[0] % 3 == 0
        assert [job.submit for job in jobs] == [1000.0 + day * DAY + n * DAY / 3 for n in range(3)]
    assert len({job.id for job in drawn}) == 30


def test_a_number_and_a_seed_make_the_same_world_again_and_others_another():
    worlds = Worlds(7, DAY)
    assert worlds.jobs(3, TRACE) == worlds.jobs(3, TRACE)
    made = [tuple(job.id for job in Worlds(seed, DAY).jobs(n, TRACE)) for seed in (7, 8) for n in range(20)]
    assert len(set(made)) == 40


def test_every_day_is_as_likely():
    drawn = Counter(job.id.partition("@")[0] for n in range(2000) for job in Worlds(1, DAY).jobs(n, TRACE))
    assert set(drawn) == {str(n) for n in range(30)}
    assert all(1700 < times < 2300 for times in drawn.values())


def test_without_blocks_the_trace_stays_and_the_seed_does_not():
    worlds = Worlds(5)
    assert worlds.jobs(2, TRACE) == TRACE
    assert [worlds.setup(n, CALM).costs.seed for n in range(3)] == [5, 6, 7]


def test_what_varies_nothing_is_told():
    spot = Cluster((PoolShape("spot", 1, 8, spot=True),))
    assert not Worlds().vary(CALM)
    assert Worlds(0, DAY).vary(CALM)
    assert Worlds().vary(replace(CALM, costs=Costs(node_failures=0.1)))
    assert not Worlds().vary(replace(CALM, costs=Costs(spot_interruptions=0.1)))
    assert Worlds().vary(replace(CALM, cluster=spot, costs=Costs(spot_interruptions=0.1)))


def test_a_trace_with_too_few_blocks_is_refused():
    check_blocks(TRACE, DAY)
    with pytest.raises(SpecError, match="at least 4") as error:
        check_blocks(TRACE, 4 * DAY)
    assert error.value.problems[0].given == "2 whole blocks in the trace"
