"""Samples what a rank uses of its machine, from the launcher: processors, memory, disk and accelerators.

It also samples the machine itself, for the platform's own metrics.

The cost of a sample is proportional to the worker's processes, and the interval grows with the cost, so that sampling
takes at most half a percent of a core.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from muster import wire
from muster.runtime import processes
from muster.runtime.node_sample import DeviceSource, Machine, node_sample, read_machine
from muster.runtime.nvml import Device, Nvml, open_nvml, share, slices_in_view, visible

FIRST: Final = 0.9  # seconds after the start
SOON: Final = 5.0  # seconds between samples in the first minute
LATER: Final = 10.0
SOON_UNTIL: Final = 60.0
STALE: Final = 60.0  # seconds after which a device's values say nothing any more: the driver may hang
SHARE: Final = 200  # the time between two samples is at least this many times a sample's cost
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")  # seconds

Tell = Callable[[int, int, Mapping[str, float]], None]  # rank, step, values


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tree of processes has used so far; ended children are included in their parents' use."""

    cpu: float = 0.0  # seconds
    read: int = 0  # bytes from disk
    written: int = 0
    memory: int = 0  # bytes, now


@dataclass
class Sampler:
    """A thread that reports each rank's figures; `step` is whole seconds since `began`."""

    roots: Mapping[int, int]  # rank → its first process
    environments: Mapping[int, Mapping[str, str]]  # rank → the environment that decides which devices it sees
    tell: Tell
    began: float = field(default_factory=time.monotonic)
    leave_out: frozenset[int] = frozenset()  # processes that are not part of the rank
    tell_fault: Callable[[dict[str, Any]], None] = lambda doc: None
    _sample: wire.NodeSample | None = None  # of the machine, if nobody took it yet
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _latest: dict[int, tuple[float, float, float]] = field(default_factory=dict)  # rank → monotonic time, use, power

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="hardware", daemon=True)
        self._thread.start()

    def stop(self, patience: float) -> None:
        """Stops sampling; waits at most this many seconds for a hanging driver."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience)

    def devices(self, rank: int) -> tuple[float, float] | None:
        """The use (0..1, of the most used one) and the power (W, together) of a rank's accelerators, if known."""
        at, use, power = self._latest.get(rank, (0.0, 0.0, 0.0))
        return (use, power) if at and time.monotonic() - at < STALE else None

    def take_sample(self) -> wire.NodeSample | None:
        """The newest sample of the machine, once."""
        sample, self._sample = self._sample, None
        return sample

    def _run(self) -> None:
        before = {rank: take(root, self.leave_out) or Usage() for rank, root in self.roots.items()}
        at = dict.fromkeys(self.roots, time.monotonic())
        source: DeviceSource | None = None
        devices: dict[int, list[Device]] = {}
        read, faults, wait = read_machine, None, FIRST
        while not self._stop.wait(max(0.0, self.began + wait - time.monotonic()) if wait == FIRST else wait):
            cost = time.thread_time()
            if wait == FIRST:
                source, read = open_sources()
                devices = self._devices(source) if source is not None else {}
                faults = _watch_faults(source, devices)
            elif source is not None and not isinstance(source, Nvml) and not any(devices.values()):
                devices = self._devices(source)  # an exporter that was not there yet
            values: dict[str, Mapping[str, float]] = {}  # by device
            for rank, root in self.roots.items():
                taken, now = take(root, self.leave_out), time.monotonic()
                if taken is None:
                    continue
                figures = rates(before[rank], taken, now - at[rank])
                before[rank], at[rank] = taken, now
                if source is not None:
                    figures |= (found := _accelerators(source, devices.get(rank, []), values))
                    self._note_devices(rank, found)
                self.tell(rank, int(now - self.began), figures)
            machine, seen = read(), self._node_devices(source, devices, values) if source is not None else []
            for fault in faults.look() if faults is not None else ():
                self.tell_fault(fault)
            every = SOON if time.monotonic() - self.began < SOON_UNTIL else LATER
            wait = max(every, SHARE * (time.thread_time() - cost))
            self._sample = node_sample(wait, machine, seen)

    def _note_devices(self, rank: int, figures: Mapping[str, float]) -> None:
        use = [value for name, value in figures.items() if _plain(name) == "gpu"]
        power = [value for name, value in figures.items() if _plain(name) == "gpu_power"]
        if use and power:
            self._latest[rank] = time.monotonic(), max(use), sum(power)

    def _node_devices(
        self, source: DeviceSource, devices: Mapping[int, list[Device]], values: Mapping[str, Mapping[str, float]]
    ) -> list[tuple[Device, Mapping[str, float]]]:
        """The devices of all ranks, and the slices that they were given, with their values."""
        whole = {one.uuid: one for some in devices.values() for one in some}
        found = [(one, values[uuid]) for uuid, one in whole.items() if uuid in values]
        given = next(iter(self.environments.values()))
        return [*found, *((one, source.sample(one)) for one in slices_in_view(source, given))]

    def _devices(self, source: DeviceSource) -> dict[int, list[Device]]:
        every, found = source.devices(), {}
        ranks = list(self.roots)
        for local, rank in enumerate(ranks):
            found[rank] = share(visible(every, self.environments[rank]), local, len(ranks))
        return found


def take(root: int, leave_out: frozenset[int] = frozenset()) -> Usage | None:
    """What a process and all its descendants have used; None when it has ended."""
    found = [one for pid in (root, *processes.descendants(root)) if pid not in leave_out and (one := _one(pid))]
    if not found or processes.stat(root) is None:
        return None
    return Usage(*(sum(column) for column in zip(*found, strict=True)))


def rates(before: Usage, after: Usage, seconds: float) -> dict[str, float]:
    """The series. A process that left the tree takes its past use with it, so negative rates are reported as 0."""
    span = max(seconds, 1e-3)
    return {
        "system/cpu": max(0.0, after.cpu - before.cpu) / span,
        "system/memory": float(after.memory),
        "system/disk_read": max(0, after.read - before.read) / span,
        "system/disk_write": max(0, after.written - before.written) / span,
    }


def _one(pid: int) -> tuple[float, int, int, int] | None:
    raw = processes.read(f"/proc/{pid}/stat")
    if not raw:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    ticks = sum(map(int, fields[11:15]))  # user and system time, of itself and of its ended children
    traffic = dict(line.split(b": ") for line in processes.read(f"/proc/{pid}/io").splitlines())
    read, written = int(traffic.get(b"read_bytes", 0)), int(traffic.get(b"write_bytes", 0))
    return ticks * _TICK, read, written, processes.private_memory([pid])


def open_sources() -> tuple[DeviceSource | None, Callable[[], Machine]]:
    """What to ask for the accelerators and for the machine: the driver and the kernel, or exporters that run here."""
    dcgm, node = os.environ.get(wire.DCGM_URL), os.environ.get(wire.NODE_EXPORTER_URL)
    if not dcgm and not node:
        return open_nvml(), read_machine
    exporters = import_module("muster.runtime.exporters")  # few launchers need it
    return exporters.Dcgm(dcgm) if dcgm else open_nvml(), exporters.NodeExporter(node).read if node else read_machine


def _watch_faults(source: DeviceSource | None, devices: Mapping[int, list[Device]]) -> Any:
    """None without a driver; a `FaultWatch` with one."""
    found = {one.uuid: one for some in devices.values() for one in some}
    if not isinstance(source, Nvml) or not found:
        return None
    return import_module("muster.runtime.fault_watch").FaultWatch(source, list(found.values()))


def _accelerators(
    source: DeviceSource, devices: list[Device], values: dict[str, Mapping[str, float]]
) -> dict[str, float]:
    """`values`: those of this round, by device; ranks may share one."""
    found: dict[str, float] = {}
    for place, device in enumerate(devices):
        if device.uuid not in values:
            values[device.uuid] = _with_share(source.sample(device), device)
        suffix = f".{place}" if place else ""
        found |= {f"system/{name}{suffix}": value for name, value in values[device.uuid].items()}
    return found


def _with_share(values: Mapping[str, float], device: Device) -> Mapping[str, float]:
    if "gpu_memory" in values and device.memory:
        return {**values, "gpu_memory_share": values["gpu_memory"] / device.memory}
    return values


def _plain(name: str) -> str:
    """The name of a series without its prefix and the place of its device."""
    return name.removeprefix("system/").partition(".")[0]
