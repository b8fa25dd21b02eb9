"""Reads a dcgm-exporter or a node-exporter of this node, in place of the driver's library and the kernel's files.

What an exporter answers is bounded in time and size. A line that is not as expected is passed over; an exporter that
does not answer has no figures, and the platform shows a gap.
"""

from __future__ import annotations

import math
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from muster import wire
from muster.runtime.nvml import Device

TIMEOUT: Final = 2.0  # seconds for an answer
ANSWER_MAX: Final = 8 << 20  # bytes
_FRESH: Final = 1.0  # seconds for which one answer serves all devices
_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPED: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_MEBI: Final = 1 << 20
# dcgm-exporter's names → ours, and the factor into our units.
_DCGM: Final = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu", 0.01),
    "DCGM_FI_DEV_FB_USED": ("gpu_memory", _MEBI),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power", 1),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temperature", 1),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_clock", 1),
}
_FREE: Final = "DCGM_FI_DEV_FB_FREE"
_NODE: Final = {
    "node_memory_MemTotal_bytes": "memory",
    "node_memory_MemAvailable_bytes": "available",
    "node_disk_read_bytes_total": "disk_read",
    "node_disk_written_bytes_total": "disk_written",
    "node_network_receive_bytes_total": "received",
    "node_network_transmit_bytes_total": "sent",
    **{f"node_network_{way}_{what}_total": "errors" for way in ("receive", "transmit") for what in ("errs", "drop")},
}
_DISK: Final = ("node_filesystem_avail_bytes", "node_filesystem_size_bytes")
_NOT_COUNTED: Final = re.compile(r"lo|veth.*|docker.*|br-.*|cni.*|dm-.*|md.*|loop.*|zram.*")


class Line(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str) -> Iterator[Line]:
    """The lines of Prometheus' text format that have a finite value."""
    for line in text.splitlines():
        found = _LINE.fullmatch(line) if line and line[0] != "#" else None
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if math.isfinite(value):
            labels = {name: _unescaped(raw) for name, raw in _LABEL.findall(found[2] or "")}
            yield Line(found[1], labels, value)


def fetch(url: str) -> list[Line]:
    """What an exporter says; nothing if it does not answer in time, or with too much."""
    if not url.startswith(("http://", "https://")):
        return []
    until, parts, size = time.monotonic() + TIMEOUT, [], 0
    try:
        with _opener.open(url, timeout=TIMEOUT) as answer:
            while part := answer.read1(1 << 16):
                parts.append(part)
                size += len(part)
                if size > ANSWER_MAX or time.monotonic() > until:
                    return []
    except (OSError, ValueError):
        return []
    return list(parse(b"".join(parts).decode(errors="replace")))


class Dcgm:
    """The accelerators that a dcgm-exporter knows, like `Nvml`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lines: list[Line] = []
        self._at = -math.inf

    def devices(self) -> list[Device]:
        return sorted(self._found(slices=False), key=lambda one: one.index)

    def slices(self, device: Device) -> list[Device]:
        return [one for one in self._found(slices=True) if one.index == device.index]

    def sample(self, device: Device) -> dict[str, float]:
        """An exporter that went away has no values for any device."""
        found = {}
        for line in self._answer():
            if line.name in _DCGM and _key(line) == (device.index, device.instance):
                name, factor = _DCGM[line.name]
                found[name] = line.value * factor
        return found

    def _found(self, slices: bool) -> list[Device]:
        found: dict[tuple[int, int], Device] = {}
        memory: dict[tuple[int, int], float] = {}
        for line in self._answer():
            key = _key(line)
            if key is None or not line.name.startswith("DCGM_") or (key[1] >= 0) != slices:
                continue
            labels = line.labels
            uuid, name, profile = labels.get("UUID", ""), labels.get("modelName", ""), labels.get("GPU_I_PROFILE", "")
            found[key] = Device(key[0], uuid or f"{key}", name, 0, None, profile, key[1])
            if line.name in ("DCGM_FI_DEV_FB_USED", _FREE):
                memory[key] = memory.get(key, 0.0) + line.value * _MEBI
        return [_sized(one, memory.get(key, 0.0)) for key, one in list(found.items())[: wire.DEVICES_MAX]]

    def _answer(self) -> list[Line]:
        if time.monotonic() - self._at > _FRESH:
            self._lines = fetch(self._url)
            self._at = time.monotonic()
        return self._lines


class NodeExporter:
    """The machine as a node-exporter sees it; see `read_machine`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def read(self) -> dict[str, wire.Figure]:
        found: dict[str, wire.Figure] = dict.fromkeys(("cpus", "cpu", *_NODE.values()))
        cpus, busy = set(), 0.0
        sizes: dict[str, dict[str, float]] = {}  # of file systems
        for line in fetch(self._url):
            if line.name == "node_cpu_seconds_total":
                cpus.add(line.labels.get("cpu"))
                busy += line.value if line.labels.get("mode") not in ("idle", "iowait") else 0.0
            elif line.name in _DISK and line.labels.get("device", "").startswith("/dev/"):
                if not line.labels.get("fstype", "").startswith(("squashfs", "iso9660", "erofs")):
                    sizes.setdefault(line.labels["device"], {})[line.name] = line.value
            elif line.name in _NODE and not _NOT_COUNTED.fullmatch(line.labels.get("device", "")):
                field = _NODE[line.name]
                found[field] = (found[field] or 0.0) + line.value
        full = [1 - one[_DISK[0]] / one[_DISK[1]] for one in sizes.values() if len(one) == 2 and one[_DISK[1]] > 0]
        found["disk"] = round(max(full), 4) if full else None
        return {**found, "cpus": len(cpus), "cpu": busy} if cpus else found


def _key(line: Line) -> tuple[int, int] | None:
    """The device of a line, and the slice of it or -1."""
    gpu, instance = line.labels.get("gpu", ""), line.labels.get("GPU_I_ID", "")
    if not (gpu.isascii() and gpu.isdigit() and int(gpu[:9]) < wire.DEVICES_MAX):
        return None
    within = instance.isascii() and instance.isdigit() and int(instance[:9]) < wire.DEVICES_MAX
    return int(gpu[:9]), int(instance[:9]) if within else -1


def _sized(device: Device, memory: float) -> Device:
    return Device(device.index, device.uuid, device.name, int(memory), None, device.profile, device.instance)


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPED.get(found[0], found[0]), text)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: object) -> None:
        return None


_opener: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
