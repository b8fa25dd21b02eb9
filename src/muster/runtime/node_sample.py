"""The figures of a machine and of its accelerators, as one sample for the platform."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from muster import wire
from muster.runtime import processes
from muster.runtime.nvml import Device

_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")  # seconds
_SECTOR: Final = 512  # bytes, whatever the disk's own are
_IDLE: Final = slice(3, 5)  # of the first line of /proc/stat: idle, and waiting for a disk
_COUNTED: Final = 8  # of its figures: what virtual machines took is in the others already
_LOST: Final = (2, 3, 10, 11)  # of a line of /proc/net/dev: errors and drops, received and sent
Machine = Mapping[str, wire.Figure]  # fields of a `wire.NodeSample`


class DeviceSource(Protocol):
    """What knows accelerators: the driver's library, or an exporter."""

    def devices(self) -> list[Device]: ...

    def slices(self, device: Device) -> list[Device]: ...

    def sample(self, device: Device) -> dict[str, float]:
        """Its current values; see `Nvml.sample`."""


def node_sample(
    every: float, machine: Machine, devices: Iterable[tuple[Device, Mapping[str, float]]]
) -> wire.NodeSample:
    """`devices`: each with its values; see `Nvml.sample`. One that says nothing is left out: it may be gone."""
    return wire.NodeSample(every, **machine, devices=tuple(_device(one, values) for one, values in devices if values))


def read_machine() -> Machine:
    """From the kernel's own files; None for what it does not say, as in some containers."""
    memory = dict(line.split(b":") for line in _lines("/proc/meminfo") if line.startswith(b"Mem"))
    ticks = next(iter(_lines("/proc/stat")), b"").split()[1 : 1 + _COUNTED]
    busy = sum(map(int, ticks)) - sum(map(int, ticks[_IDLE]))
    read, written = _disks()
    received, sent, errors = _network()
    return {
        "cpus": os.cpu_count(),
        "cpu": round(busy * _TICK, 2) if ticks else None,
        "memory": _kibibytes(memory.get(b"MemTotal")),
        "available": _kibibytes(memory.get(b"MemAvailable")),
        "disk_read": read,
        "disk_written": written,
        "received": received,
        "sent": sent,
        "disk": _fullest(),
        "errors": errors,
    }


def _device(device: Device, values: Mapping[str, float]) -> wire.DeviceSample:
    clock = values.get("gpu_clock")
    return wire.DeviceSample(
        device.index,
        _printable(device.uuid),
        _printable(device.name),
        _printable(device.profile),
        device.instance,
        values.get("gpu"),
        _whole(values.get("gpu_memory")),
        device.memory or None,
        values.get("gpu_power"),
        _whole(values.get("gpu_temperature")),
        None if clock is None else _whole(clock * 1e6),
    )


def _disks() -> tuple[int | None, int | None]:
    """Bytes read and written, of the disks that are hardware: partitions and volumes would count them again."""
    real = _hardware("/sys/block")
    rows = [row for line in _lines("/proc/diskstats") if (row := line.split())[2].decode() in real]
    if not rows:
        return None, None
    return sum(int(row[5]) for row in rows) * _SECTOR, sum(int(row[9]) for row in rows) * _SECTOR


def _fullest() -> float | None:
    """The used part of the fullest file system on a disk of this machine that can be written to, as `df` counts it."""
    found = {}
    for source, path, _, options, *_ in map(bytes.split, _lines("/proc/mounts")):
        if source in found or not (source.startswith(b"/dev/") or path == b"/") or b"rw" not in options.split(b","):
            continue
        with contextlib.suppress(OSError):  # such as one that is mounted over
            of = os.statvfs(path)
            used = of.f_blocks - of.f_bfree
            found[source] = used / max(1, used + of.f_bavail)
    return round(max(found.values()), 4) if found else None


def _network() -> tuple[int | None, int | None, int | None]:
    """Bytes received and sent, and packets lost, by the interfaces that are hardware; by all but loopback if none is,
    as in a pod."""
    real = _hardware("/sys/class/net")
    rows = {name.strip().decode(): rest.split() for name, _, rest in map(_colon, _lines("/proc/net/dev")[2:])}
    chosen = [row for name, row in rows.items() if name in real] or [row for name, row in rows.items() if name != "lo"]
    if not chosen:
        return None, None, None
    received, sent, *lost = (sum(int(row[place]) for row in chosen) for place in (0, 8, *_LOST))
    return received, sent, sum(lost)


def _colon(line: bytes) -> tuple[bytes, bytes, bytes]:
    return line.partition(b":")


def _hardware(folder: str) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if os.path.exists(f"{entry.path}/device")}  # noqa: PTH110
    except OSError:
        return set()


def _lines(path: str) -> list[bytes]:
    return processes.read(path).splitlines()


def _kibibytes(text: bytes | None) -> int | None:
    return int(text.split()[0]) * 1024 if text else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:96]
