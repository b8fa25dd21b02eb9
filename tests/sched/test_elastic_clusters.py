"""Elastic gangs in pools whose cluster chooses the machines: what they ask for, and when they change it."""

from __future__ import annotations

from typing import Any

from muster.control.observe import node_events
from muster.control.room import room_events
from muster.core.event import Event
from muster.core.resources import Resources
from muster.core.rules import Preemption, Rules
from muster.engines.base import NodeInfo
from muster.sched.elastic import START_WAIT
from muster.sched.explain import Explainer
from scheduler_kit import SchedulerLoop
from streams import board_agrees, limits_hold, plan_is_sound

GPU = Resources(64_000, 0, 1, "H100")
NONE = Resources(0, 0, 0, "H100")


def cluster(usable: int | None = 3, startup: float = 0.0) -> SchedulerLoop:
    """Three machines, and eleven slots for them."""
    rules = Rules(preemption=Preemption(grace=10.0, min_run=0.0, restart_cost=0.0))
    loop = SchedulerLoop(rules, checks=[plan_is_sound, limits_hold, board_agrees], startup=startup)
    serve(loop, usable)
    loop.nodes(11, gpus=1, prefix="main/")
    return loop


def serve(loop: SchedulerLoop, usable: int | None) -> None:
    loop.event("pool.set", name="main", engine="slurm", delegated=True, machines=3, usable=usable)


def wide(loop: SchedulerLoop, fewest: int = 1, save: float = 15.0, name: str = "wide") -> None:
    loop.submit(name, 10_000, gpus=1, num_nodes={"min": fewest, "max": 3}, save=save)


def room(loop: SchedulerLoop, nodes: int, name: str = "wide") -> None:
    attempt = loop.job(name).attempt
    assert attempt is not None
    loop.event("attempt.room", name, attempt.number, room=nodes)
    loop.tick()


def machines(*used: Resources | None) -> list[NodeInfo]:
    found = [NodeInfo(f"m{i}", "main", GPU, {}, "machine", "healthy", "", use) for i, use in enumerate(used)]
    sick = [NodeInfo("sick", "main", GPU, {}, "machine", "suspect", "it is down", NONE)]
    slots = [NodeInfo(f"main/{i}", "main", GPU, {}, "slot", machines=len(used) + 1) for i in range(11)]
    return [*found, *sick, *slots]


def rooms(loop: SchedulerLoop, nodes: list[NodeInfo]) -> list[tuple[str, Any]]:
    events: list[Event] = room_events(loop.state, loop.board.gangs.elastic, nodes, None, loop.now)
    return [(event.job, event.data.to_doc()["room"]) for event in events]


def told(loop: SchedulerLoop, name: str) -> str:
    (found,) = Explainer.of(loop.state, loop.now).fewer_nodes(loop.job(name))
    return found.message


def test_it_asks_for_as_many_as_are_in_service_and_for_the_fewest_if_those_are_more():
    for usable, fewest, asked in ((3, 1, 3), (2, 1, 2), (0, 1, 1), (1, 2, 2), (None, 1, 3)):
        loop = cluster(usable)
        wide(loop, fewest)
        loop.tick()
        assert len(loop.sits("wide")) == asked, (usable, fewest)


def test_a_gang_that_is_not_elastic_asks_for_all_of_its_nodes():
    loop = cluster(usable=1)
    loop.submit("fixed", 100, gpus=1, num_nodes=3)
    loop.tick()
    assert len(loop.sits("fixed")) == 3


def test_what_the_cluster_does_not_start_asks_for_as_many_as_are_free_but_not_for_too_few():
    loop = cluster(startup=1000.0)
    wide(loop, fewest=2)
    loop.tick()
    room(loop, 1)
    room(loop, 3)
    assert loop.reasons("wide") == []
    room(loop, 2)
    assert loop.reasons("wide") == ["resizing"]
    loop.run(until=50.0)
    assert len(loop.sits("wide")) == 2


def test_it_goes_on_without_a_lost_machine_and_grows_when_the_cluster_has_one_free():
    loop = cluster()
    wide(loop)
    loop.run(until=20.0)
    serve(loop, 2)
    loop.fail("wide", "node_lost")
    loop.run(until=30.0)
    assert len(loop.sits("wide")) == 2
    serve(loop, 3)  # in service, and another's
    loop.run(until=80.0)
    assert len(loop.sits("wide")) == 2
    room(loop, 3)
    loop.run(until=120.0)
    assert len(loop.sits("wide")) == 3
    assert loop.reasons("wide") == ["resizing"]


def test_what_fails_where_others_hold_the_rest_does_not_ask_for_more_than_it_had():
    loop = cluster()
    wide(loop)
    loop.run(until=20.0)
    room(loop, 2)
    loop.fail("wide")
    loop.run(until=40.0)
    assert len(loop.sits("wide")) == 2


def test_it_does_not_grow_while_another_gang_is_in_the_clusters_queue():
    """Two see the same free machine: one of them takes it."""
    loop = cluster(usable=1)
    for name in ("one", "two"):
        wide(loop, name=name)
    loop.run(until=20.0)
    for name in ("one", "two"):
        attempt = loop.job(name).attempt
        assert attempt is not None
        assert "a free machine in the cluster of pool main" in told(loop, name)
        loop.event("attempt.room", name, attempt.number, room=2)
    loop.tick()
    (other,) = [name for name in ("one", "two") if not loop.reasons(name)]
    assert "other gangs in the queue of pool main" in told(loop, other)
    assert sorted(loop.reasons("one") + loop.reasons("two")) == ["resizing"]


def test_room_is_the_machines_of_its_own_and_those_with_enough_free():
    loop = cluster(startup=5.0)
    wide(loop)
    loop.tick()
    assert rooms(loop, machines(NONE, NONE)) == [], "known before the cluster had its time"
    loop.now = START_WAIT
    assert rooms(loop, machines(NONE, GPU)) == [("wide", 1)]
    assert rooms(loop, machines(NONE, None)) == [("wide", 1)], "use that is not known counts as free"
    loop.event("worker.placed", "wide", 1, worker=0, node="m1")
    assert rooms(loop, machines(NONE, GPU)) == [("wide", 2)]
    assert rooms(loop, machines(*[NONE] * 5)) == [("wide", 3)]
    room(loop, 3)
    assert rooms(loop, machines(*[NONE] * 5)) == []


def test_a_pool_knows_how_many_of_its_machines_are_in_service():
    loop = cluster()
    found = [event.data.to_doc() for event in node_events(loop.state, machines(NONE, NONE), "slurm", 1.0)]
    assert [(doc["machines"], doc["usable"]) for doc in found if "usable" in doc] == [(3, 2)]
