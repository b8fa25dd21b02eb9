"""Searches over work of which the answer can be counted by hand."""

from __future__ import annotations

import pytest

from muster.core.errors import SpecError
from muster.core.rules import QueueRules, Rules
from muster.sim.model import Cluster, Costs, PoolShape, Setup, TraceJob
from muster.sim.pool import Pool
from muster.sim.presets import PRESETS
from muster.sim.search import GRID, Search, Searcher, Tried
from muster.sim.spaces import space_of
from muster.sim.targets import parse_target
from muster.sim.worlds import Worlds

# Twelve whole nodes are asked for at once, each for 100 s: with n nodes the last one waits 100 * (ceil(12 / n) - 1).
CROWD = [TraceJob(str(n), 0.0, 100.0, 1, 8) for n in range(12)]
CLUSTER = Cluster((PoolShape("gpu", 2, 8),))
FIFO = Setup("fifo", PRESETS.get("fifo").rules, CLUSTER)


def search(what, *targets, trace=CROWD, setups=(FIFO,), worlds=None, count=1, to_end=False, processes=1) -> Search:
    wanted = tuple(map(parse_target, targets))
    space = space_of(what, setups, trace, wanted)
    with Pool(trace, worlds, processes) as pool:
        return Searcher(pool, wanted, count, to_end).search(setups, space)


@pytest.mark.parametrize(
    ("limit", "nodes"), [("500s", 2), ("300s", 3), ("200s", 4), ("100s", 6), ("99s", 12), ("0s", 12)]
)
def test_the_least_nodes_and_what_just_misses(limit, nodes):
    found = search("nodes", f"max wait <= {limit}")
    (best,) = found.best
    assert (best.policy, best.size, found.monotone) == ("fifo", nodes, True)
    assert best.values == (100.0 * (-(-12 // nodes) - 1),)
    below = found.just_missing(best)
    assert below is not None
    assert (below.size, below.values) == (nodes - 1, (100.0 * (-(-12 // (nodes - 1)) - 1),))


def test_processes_and_going_to_the_end_change_no_answer():
    for words in ({"processes": 2}, {"to_end": True}, {"processes": 2, "to_end": True}):
        (best,) = search("nodes:gpu", "max wait <= 100s", **words).best
        assert best.size == 6


def test_what_no_number_of_nodes_can_do_is_said():
    wide = [*CROWD, TraceJob("wide", 0.0, 10.0, 1, 64)]  # no node has so many accelerators
    found = search("nodes", "max wait <= 1h", trace=wide)
    assert found.best == []
    assert max(one.size or 0 for one in found.tried) == 128
    assert not any(one.met for one in found.tried)
    assert [one.size for one in search("nodes", "p90 wait <= 1h", trace=wide).best] == [1]


def test_policies_are_enumerated_and_the_cheapest_is_first():
    # Behind a job that needs both nodes, short ones wait for the long one, unless they may pass.
    trace = [TraceJob("long", 0.0, 1000.0, 1, 8, declared=1000.0), TraceJob("wide", 1.0, 500.0, 2, 8, declared=500.0)]
    trace += [TraceJob(f"short{n}", 2.0, 10.0, 1, 8, declared=10.0) for n in range(20)]
    setups = [Setup(name, PRESETS.get(name).rules, CLUSTER) for name in ("fifo", "easy")]
    found = search("policy", "median wait <= 10m", trace=trace, setups=setups)
    assert [(one.policy, one.met) for one in found.tried] == [("fifo", False), ("easy", True)]
    assert [one.policy for one in found.best] == ["easy"]


def test_several_policies_each_have_their_nodes():
    setups = [FIFO, Setup("default", Rules(), CLUSTER)]
    found = search("nodes", "max wait <= 100s", setups=setups)
    assert {one.policy: one.size for one in found.best} == {"fifo": 6, "default": 6}


def test_the_least_quota_of_a_queue_that_others_crowd_out():
    queues = {"team": QueueRules(quota={"gpu": 0}), "crowd": QueueRules(quota={"gpu": 0})}
    setup = Setup("own", Rules(queues=queues), CLUSTER)
    trace = [TraceJob(str(n), 0.0, 20_000.0, 1, 8, queue="crowd") for n in range(6)]
    trace += [TraceJob(f"t{n}", 1000.0, 50.0, 1, 8, queue="team") for n in range(2)]
    found = search("quota:team", "max wait of team <= 20m", trace=trace, setups=[setup])
    (best,) = found.best
    assert 0 < (best.size or 0) <= 16
    tried = {one.size: one.met for one in found.tried}
    assert tried[best.size] is True
    assert tried[(best.size or 0) - 1] is False


def test_a_quota_for_the_good_of_all_is_enumerated():
    queues = {"team": QueueRules(quota={"gpu": 3})}
    found = search("quota:team", "max wait <= 500s", trace=[TraceJob("a", 0, 1, 1, 1, queue="team")],
                   setups=[Setup("own", Rules(queues=queues), CLUSTER)])  # fmt: skip
    sizes = [one.size for one in found.tried]
    assert sizes == sorted({3, *range(17)})
    assert len(sizes) <= GRID + 1


def test_in_several_worlds_the_targets_must_be_met_in_each():
    setup = Setup("fifo", FIFO.rules, CLUSTER, Costs(node_failures=200.0, repair=600.0))
    found = search("nodes", "max wait <= 400s", setups=[setup], worlds=Worlds(1), count=4, to_end=True)
    for one in found.tried:
        values = [answer.values[0] for answer in one.answers]
        assert one.met == (len(values) == 4 and max(values) <= 400)
        assert one.met or len(values) < 4 or values[-1] > 400
    assert any(len({answer.values for answer in one.answers}) > 1 for one in found.tried), "worlds differ"


@pytest.mark.parametrize(
    ("what", "told"),
    [("nodes:cpu", "a pool of the cluster"), ("quota:nobody", "a queue of the trace"), ("quota", "nodes:POOL"),
     ("money", "nodes:POOL"), ("policy:x", "nodes:POOL")],
)  # fmt: skip
def test_what_can_not_be_searched_for_is_told(what, told):
    with pytest.raises(SpecError, match=told):
        space_of(what, [FIFO], CROWD, [])


def test_a_candidate_that_was_cut_has_no_values():
    found = search("nodes", "max wait <= 0s")
    cut = [one for one in found.tried if not one.is_whole]
    assert all(isinstance(one, Tried) and one.values == () and not one.met for one in cut)
