"""What several engines say of pools and machines, as the log and the figures have it."""

from __future__ import annotations

from dataclasses import replace

from test_many import Far
from toy import node, slots

from muster.control.engine_hints import EngineHints
from muster.control.observe import node_events
from muster.control.rules import problems_here
from muster.core.entities.queue import QueueSet
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.rules import QueueRules, Rules
from muster.core.state import State, apply
from muster.engines.base import NodeInfo, PoolInfo
from muster.engines.many import Engines
from muster.monitor import rollup
from muster.monitor.sample import idle_nodes, sample
from scheduler_kit import job_event

MACHINES = [node("m1", role="machine"), node("m2", role="machine")]


def told(state: State, nodes: list[NodeInfo], **pools: PoolInfo) -> list[tuple[str, str, str]]:
    """Takes in what the engines say; what is new as (kind, name, detail)."""
    nodes = [replace(node, engine="far") for node in nodes]
    events = node_events(state, nodes, "engines", 5.0, lambda engine: True, pools)
    for event in events:
        apply(state, event.stamped(state.version + 1))
    detail = {"pool.set": "away", "node.health": "health"}
    return [(event.kind, event.data.name, str(getattr(event.data, detail.get(event.kind, ""), ""))) for event in events]


def cluster() -> State:
    state = State()
    told(state, [*slots("gpu", 6), *MACHINES], gpu=PoolInfo("far"))
    return state


def test_an_engine_that_goes_away_and_comes_back_is_told_once_each() -> None:
    state = cluster()
    assert (state.pools["gpu"].engine, state.pools["gpu"].delegated) == ("far", True)
    nodes = [*slots("gpu", 6), *MACHINES]
    assert told(state, nodes, gpu=PoolInfo("far")) == []
    assert told(state, nodes, gpu=PoolInfo("far", "no answer")) == [("pool.set", "gpu", "no answer")]
    assert state.pools["gpu"].away == "no answer"
    assert told(state, nodes, gpu=PoolInfo("far", "still none")) == []
    assert told(state, nodes, gpu=PoolInfo("far")) == [("pool.set", "gpu", "")]
    assert state.pools["gpu"].delegated


def test_a_pool_without_nodes_is_known() -> None:
    state = State()
    assert told(state, [], cloud=PoolInfo("far")) == [("pool.set", "cloud", "")]
    assert told(state, [], cloud=PoolInfo("far")) == []


def test_a_machine_that_people_took_out_is_drained_where_its_engine_would_use_it() -> None:
    state, far = cluster(), Far("far", there=MACHINES)
    engines = Engines([far])
    engines.nodes()
    upkeep = EngineHints(engines)

    def look(*nodes: NodeInfo, back: str = "") -> list[tuple[object, ...]]:
        far.told.clear()
        upkeep.look_at_nodes(state, nodes, {back})
        upkeep.drain()
        return list(far.told)

    assert look(*MACHINES) == []
    health = {"name": "m1", "health": "quarantined", "reason": "too slow"}
    apply(state, Event(decode("node.health", health), 6.0, "ada").stamped(99))
    assert look(*MACHINES) == [("drain", "m1", "too slow")]
    assert look(*MACHINES) == []  # it has been told
    assert look(node("m1", role="machine", health="draining"), MACHINES[1]) == []
    assert told(state, [*slots("gpu", 6), *MACHINES], gpu=PoolInfo("far")) == []  # what people say stands
    apply(state, Event(decode("node.health", {**health, "health": "healthy"}), 7.0, "ada").stamped(100))
    assert look(*MACHINES) == []
    apply(state, Event(decode("node.health", health), 8.0, "ada").stamped(101))
    assert look(*MACHINES) == [("drain", "m1", "too slow")]
    drained = node("m1", role="machine", health="draining")
    assert look(drained, MACHINES[1], back="m1") == [("undrain", "m1")]
    # A server that did not drain it itself knows Muster's drain by its reason, and leaves others alone.
    upkeep = EngineHints(engines)
    assert look(replace(drained, why="DRAIN, bad fan"), MACHINES[1], back="m1") == []
    assert look(replace(drained, why="DRAIN, muster: too slow"), MACHINES[1], back="m1") == [("undrain", "m1")]


def test_figures_and_quotas_count_machines_and_not_places_in_a_queue() -> None:
    state = cluster()
    apply(state, Event(QueueSet(name="default"), 1.0).stamped(50))
    apply(state, job_event(1, gpus=2).stamped(51))
    seats = [{"node": "gpu/1", "devices": [0, 1]}]
    apply(state, Event(decode("attempt.planned", {"seats": seats}), 9.0, job="job-1", attempt=1).stamped(52))
    found = sample(state)["gpu"]
    assert (found[rollup.THERE], found[rollup.USED], found[rollup.FREE]) == (4000, 2000, 2000)
    assert found[rollup.CPUS] == 16_000
    told(state, [*slots("gpu", 6), node("m1", role="machine", health="suspect"), MACHINES[1]], gpu=PoolInfo("far"))
    found = sample(state)["gpu"]
    assert (found[rollup.OUT], found[rollup.FREE]) == (2000, 0)
    assert idle_nodes(state) == []
    too_much = Rules(queues={"default": QueueRules(quota={"gpu": 5})})
    (problem,) = problems_here(too_much, state)
    assert problem.expected == "at most 4, which is what the pool has"
