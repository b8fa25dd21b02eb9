"""The capacity of the cluster: a few sums, however many nodes there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.api.capacity import CapacityList, CapacityView
from muster.core.entities import Node
from muster.core.entities.demand import UNKNOWN, TypicalWork, typical_work
from muster.core.resources import WHOLE, Resources
from muster.sched.capacity.stranded import Stranded, StrandedCounter
from muster.server.context import Caller, Leading
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1", tags=["cluster"])

IN_SERVICE = ("healthy", "suspect")


@dataclass(slots=True)
class Sum:
    total: int = 0
    used: int = 0
    drained: int = 0
    nodes: int = 0
    out: int = 0
    stranded: Stranded = field(default_factory=Stranded)
    machines: list[Node] = field(default_factory=list)  # what is used there only their engine knows


@router.get("/capacity", openapi_extra=needs("anyone"))
def capacity(leader: Leading, caller: Caller) -> CapacityList:
    """What is used, free and out of service, by pool and accelerator; of nodes that have none, their CPUs. Of the free
    accelerators, those that no typical request could use."""
    found = leader.look(lambda state: sums(state.nodes.values(), state.machines.values(), typical_work(state)))
    for one in found.values():
        for node in one.machines:
            used = leader.engine.used(node.name)
            if used is not None:
                _add(one, node, used)
    return {"pools": [_view(*key, found[key]) for key in sorted(found)]}


def sums(nodes: Iterable[Node], machines: Iterable[Node], typical: TypicalWork = UNKNOWN) -> dict[tuple[str, str], Sum]:
    """Sums by pool and accelerator: one pass over the nodes, without a view of each. CPUs are in thousandths."""
    found: dict[tuple[str, str], Sum] = {}
    counter = StrandedCounter(typical)
    for node in nodes:
        if node.role == "node":
            one = _counted(found, node)
            total, free = _amount(node, node.total), _amount(node, node.free)
            one.used += total - free
            one.drained += free if node.health not in IN_SERVICE else 0
            if node.health in IN_SERVICE:
                one.stranded.add(*counter.count(node))
    for node in machines:
        one = _counted(found, node)
        one.drained += _amount(node, node.total) if node.health not in IN_SERVICE else 0
        one.machines.append(node)
    return found


def _counted(found: dict[tuple[str, str], Sum], node: Node) -> Sum:
    key = (node.pool, (node.total.accelerator or "accelerator") if node.total.accelerators else "")
    one = found.get(key)
    if one is None:
        one = found[key] = Sum()
    one.total += _amount(node, node.total)
    one.nodes += 1
    one.out += node.health not in IN_SERVICE
    return one


def _add(one: Sum, node: Node, used: Resources) -> None:
    taken = min(_amount(node, used), _amount(node, node.total))  # an engine may assign more than there is
    one.used += taken
    one.drained -= taken if node.health not in IN_SERVICE else 0


def _amount(node: Node, of: Resources) -> int:
    return of.accelerators if node.total.accelerators else of.milli_cpus


def _view(pool: str, accelerator: str, one: Sum) -> CapacityView:
    unit = 1 if accelerator else 1000
    total, used, drained = one.total / unit, one.used / unit, one.drained / unit
    return {
        "pool": pool,
        "accelerator": accelerator,
        "total": total,
        "used": used,
        "free": total - used - drained,
        "drained": drained,
        "nodes": one.nodes,
        "nodes_out": one.out,
        "stranded": {
            "cpus": one.stranded.cpus / WHOLE,
            "memory": one.stranded.memory / WHOLE,
            "accelerators": one.stranded.accelerators / WHOLE,
        },
    }
