"""The newest sample of every node and device, in the memory of the leading server, and what is missing of them.

Launchers send them with their reports. A worker speaks for the node that it was placed on and for no other. After a
restart of the server they come anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from muster.core.job import Attempt
from muster.core.resources import WHOLE
from muster.core.state import State
from muster.monitor.alerts.figures import MachineFigures
from muster.monitor.exposition import ShownDevice, ShownNode, show_device, show_node
from muster.wire import DEVICES_MAX, DeviceSample, NodeSample

NODES_MAX: Final = 20_000  # the node whose sample is the oldest is dropped for another
PERIOD: Final = 10.0  # seconds between two samples, at least in this reckoning: the first ones come faster
PERIOD_MAX: Final = 600.0
PERIODS: Final = 3  # after so many a sample says nothing any more
SLICES: Final = 8  # a device and the slices of it, for each accelerator of a node
DeviceKey = tuple[str, int]  # the UUID, since pods number their devices from 0, and the instance of a slice or -1


@dataclass(slots=True)
class _Node:
    pool: str
    shown: ShownNode
    until: float  # when the sample is stale
    devices: dict[DeviceKey, tuple[ShownDevice, float]] = field(default_factory=dict)  # each with the same
    # Which launcher counted how many lost packets, and when: each pod of a node counts those of its own interfaces.
    counted: tuple[str, float, float] | None = None
    lost: float | None = None  # packets in a minute


@dataclass(frozen=True, slots=True)
class Blind:
    """What running work uses and no sample shows, by pool."""

    nodes: dict[str, int]
    devices: dict[str, int]


class NodeSamples:
    def __init__(self) -> None:
        self._nodes: OrderedDict[str, _Node] = OrderedDict()  # the one whose sample is the oldest first
        self._lock = threading.Lock()

    def take(
        self, node: str, pool: str, sample: NodeSample, now: float, accelerators: int = 0, source: str = ""
    ) -> None:
        """Several workers of one node may each send its own devices. `accelerators`: as many as the node has. `source`:
        the worker."""
        until = now + PERIODS * min(max(sample.every, PERIOD), PERIOD_MAX)
        with self._lock:
            known = self._nodes.get(node)
            if known is None or known.pool != pool:
                known = self._nodes[node] = _Node(pool, show_node(node, pool, sample), until)
            known.shown, known.until = ShownNode(known.shown.labels, sample), until
            _count_lost(known, source, sample, now)
            self._nodes.move_to_end(node)
            most = min(DEVICES_MAX, SLICES * max(1, accelerators))
            for device in sample.devices:
                _take_device(known, node, device, until, now, most)
            if len(self._nodes) > NODES_MAX:
                self._nodes.popitem(last=False)

    def fresh(self, now: float) -> tuple[list[ShownNode], list[ShownDevice]]:
        """The samples that still say something."""
        with self._lock:
            nodes = [one for one in self._nodes.values() if one.until > now]
            devices = [device for one in nodes for device, until in one.devices.values() if until > now]
            return [one.shown for one in nodes], devices

    def newest(self, now: float) -> dict[str, tuple[NodeSample, list[DeviceSample]]]:
        """The samples that still say something, by node, each with its devices."""
        with self._lock:
            return {
                name: (one.shown.sample, [device.sample for device, until in one.devices.values() if until > now])
                for name, one in self._nodes.items()
                if one.until > now
            }

    def machines(self, now: float) -> dict[str, MachineFigures]:
        """What signals of nodes read, by node."""
        with self._lock:
            fresh = [(name, one) for name, one in self._nodes.items() if one.until > now]
            return {name: MachineFigures(one.shown.sample.disk, one.lost) for name, one in fresh}

    def blind(self, state: State, now: float) -> Blind:
        """Call it between two commits. An engine's slot is no node: such workers count when their machine is known."""
        held: dict[str, int] = {}  # by node: thousandths of accelerators that work holds which has run for long enough
        for job_id in state.active:
            job = state.jobs[job_id]
            if job.phase == "running" and job.attempt is not None and _runs_for_long(job.attempt, now):
                share = job.ask.accelerators * job.ask.share
                for worker in job.attempt.workers:
                    if worker.placed and worker.state == "running":
                        held[worker.node] = held.get(worker.node, 0) + share
        found = Blind({}, {})
        with self._lock:
            for name, thousandths in held.items():
                self._count(found, state, name, -(-thousandths // WHOLE), now)
        return found

    def _count(self, found: Blind, state: State, name: str, accelerators: int, now: float) -> None:
        node, known = state.find_node(name), self._nodes.get(name)
        pool = node.pool if node is not None else ""
        if known is None or known.until <= now:
            found.nodes[pool] = found.nodes.get(pool, 0) + 1
            missing = accelerators
        elif not known.devices:  # a machine without a driver that we can ask
            missing = 0
        else:
            missing = accelerators - len({key[0] for key, (_, until) in known.devices.items() if until > now})
        if missing > 0:
            found.devices[pool] = found.devices.get(pool, 0) + missing


def _count_lost(known: _Node, source: str, sample: NodeSample, now: float) -> None:
    """Packets lost in a minute, from two samples of one launcher. A machine that was restarted counts from 0."""
    if sample.errors is None or not source:
        return
    by, count, at = known.counted or ("", 0.0, 0.0)
    if by != source and now - at < PERIODS * PERIOD:
        return  # that launcher still sends
    if by == source and now <= at:
        return
    known.lost = round(max(0.0, sample.errors - count) * 60 / (now - at), 1) if by == source else None
    known.counted = (source, sample.errors, now)


def _take_device(known: _Node, node: str, device: DeviceSample, until: float, now: float, most: int) -> None:
    key = (device.uuid or str(device.gpu), device.instance)
    before = known.devices.get(key)
    if before is not None and before[0].sample[:5] == device[:5]:  # its names are the same, and so are the labels
        known.devices[key] = ShownDevice(before[0].own, before[0].dcgm, device), until
        return
    if before is None and len(known.devices) >= most:
        stale = [other for other, (_, ends) in known.devices.items() if ends <= now]
        if not stale:
            return
        del known.devices[stale[0]]
    known.devices[key] = show_device(node, known.pool, device), until


def _runs_for_long(attempt: Attempt, now: float) -> bool:
    return attempt.running_at is not None and now - attempt.running_at > PERIODS * PERIOD
