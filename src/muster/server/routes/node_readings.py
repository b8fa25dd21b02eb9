"""The last figures of nodes and their accelerators, as the launchers there sent them: how busy and how hot they are."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from muster.api.cluster import DeviceReading, NodeReading, NodeReadings
from muster.server.context import Caller, Leading
from muster.server.typed_routes import needs, typed_router
from muster.wire import DeviceSample, NodeSample

router = typed_router(prefix="/v1", tags=["cluster"])


@router.get("/nodes/readings", openapi_extra=needs("anyone"))
def node_readings(
    leader: Leading,
    caller: Caller,
    name: Annotated[list[str] | None, Query(max_length=1000, description="only these nodes")] = None,
) -> NodeReadings:
    """Of nodes on which work runs, from the last half minute or so; figures that a machine does not tell are null."""
    now = leader.clock.now()
    wanted = None if name is None else set(name)
    found = leader.samples.newest(now)
    nodes = [_reading(one, *found[one], wanted is not None) for one in found if wanted is None or one in wanted]
    return {"now": now, "nodes": nodes}


def _reading(name: str, sample: NodeSample, devices: list[DeviceSample], whole: bool) -> NodeReading:
    uses = [one.use for one in devices if one.use is not None]
    return {
        "name": name,
        "memory": sample.memory,
        "available": sample.available,
        "disk": sample.disk,
        "use": sum(uses) / len(uses) if uses else None,
        "temperature": max((one.temperature for one in devices if one.temperature is not None), default=None),
        "devices": [_device(one) for one in sorted(devices)] if whole else [],
    }


def _device(one: DeviceSample) -> DeviceReading:
    return {
        "gpu": one.gpu,
        "name": one.name,
        "profile": one.profile,
        "use": one.use,
        "memory_used": one.memory_used,
        "memory": one.memory,
        "power": one.power,
        "temperature": one.temperature,
    }
