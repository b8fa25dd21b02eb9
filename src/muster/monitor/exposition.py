"""Samples of nodes and devices as text for Prometheus, in our own names and in those of dcgm-exporter.

A cluster of 10,000 nodes has a million of these lines. They are written here and not by prometheus-client, which takes
ten times as long; `bench/metrics.py` measures both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from muster.monitor import families
from muster.monitor.families import Family
from muster.wire import DeviceSample, Figure, NodeSample

MEBI: Final = 1 << 20
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NODE_FIELDS: Final = {
    families.NODE_CPUS: "cpus",
    families.NODE_CPU: "cpu",
    families.NODE_MEMORY: "memory",
    families.NODE_FREE: "available",
    families.NODE_READ: "disk_read",
    families.NODE_WRITTEN: "disk_written",
    families.NODE_RECEIVED: "received",
    families.NODE_SENT: "sent",
    families.NODE_DISK: "disk",
    families.NODE_ERRORS: "errors",
}
_DEVICE_FIELDS: Final = {
    families.DEVICE_USE: "use",
    families.DEVICE_USED: "memory_used",
    families.DEVICE_MEMORY: "memory",
    families.DEVICE_POWER: "power",
    families.DEVICE_TEMPERATURE: "temperature",
    families.DEVICE_CLOCK: "clock",
}


@dataclass(frozen=True, slots=True)
class ShownDevice:
    """A device with its labels as text, as a line has them: our own, and dcgm-exporter's."""

    own: str
    dcgm: str
    sample: DeviceSample


@dataclass(frozen=True, slots=True)
class ShownNode:
    labels: str
    sample: NodeSample


def show_node(node: str, pool: str, sample: NodeSample) -> ShownNode:
    return ShownNode(_labels({"node": node, "pool": pool}), sample)


def show_device(node: str, pool: str, sample: DeviceSample) -> ShownDevice:
    """Labels without a value are left out, which is the same to Prometheus."""
    whole = sample.instance < 0
    own = {
        "node": node,
        "pool": pool,
        "gpu": str(sample.gpu),
        "uuid": sample.uuid,
        "mig": "" if whole else str(sample.instance),
        "model": sample.name,
    }
    dcgm = {
        "gpu": str(sample.gpu),
        "UUID": sample.uuid,
        "device": f"nvidia{sample.gpu}",
        "modelName": sample.name,
        "Hostname": node,
        "GPU_I_PROFILE": sample.profile,
        "GPU_I_ID": "" if whole else str(sample.instance),
    }
    return ShownDevice(_labels(own), _labels(dcgm), sample)


def node_text(nodes: Sequence[ShownNode]) -> Iterator[bytes]:
    """One piece for each metric. What a machine does not say is left out."""
    labels, figures = [one.labels for one in nodes], _columns([one.sample for one in nodes])
    for family, field in _NODE_FIELDS.items():
        yield _lines(family, labels, figures.get(field, ()))


def device_text(devices: Sequence[ShownDevice]) -> Iterator[bytes]:
    """In our own names and base units."""
    labels, figures = [one.own for one in devices], _columns([one.sample for one in devices])
    for family, field in _DEVICE_FIELDS.items():
        yield _lines(family, labels, figures.get(field, ()))


def dcgm_text(devices: Sequence[ShownDevice]) -> Iterator[bytes]:
    """In dcgm-exporter's names and units."""
    if not devices:
        return
    labels, figures = [one.dcgm for one in devices], _columns([one.sample for one in devices])
    used, pairs = figures["memory_used"], zip(figures["memory"], figures["memory_used"], strict=True)
    converted: dict[Family, Sequence[Figure]] = {
        families.DCGM_USE: [None if use is None else round(100 * use) for use in figures["use"]],
        families.DCGM_USED: [None if size is None else size // MEBI for size in used],
        families.DCGM_FREE: [None if a is None or b is None else (a - b) // MEBI for a, b in pairs],
        families.DCGM_POWER: figures["power"],
        families.DCGM_TEMPERATURE: figures["temperature"],
        families.DCGM_CLOCK: [None if clock is None else clock // 1_000_000 for clock in figures["clock"]],
    }
    for family, values in converted.items():
        yield _lines(family, labels, values)


def fault_text(faults: Mapping[tuple[str, str, str], int]) -> bytes:
    """`faults`: how many there were, by node, device and code."""
    labels = families.FAULTS.labels
    rows = [(_labels(dict(zip(labels, key, strict=True))), count) for key, count in sorted(faults.items())]
    return _piece(families.FAULTS, [f"{found}{count}" for found, count in rows])


def _columns(samples: Sequence[NodeSample] | Sequence[DeviceSample]) -> dict[str, Sequence[Any]]:
    """The figures of all samples by field."""
    names = samples[0]._fields if samples else ()
    return {name: list(map(itemgetter(place), samples)) for place, name in enumerate(names)}


def _lines(family: Family, labels: Sequence[str], figures: Sequence[Figure]) -> bytes:
    """A line for each figure that is known. The name stands between the lines, which saves half of the copying."""
    pairs = zip(labels, map(repr, figures), strict=True)
    lines = [label + figure for label, figure in pairs if figure != "None"]
    return _piece(family, lines)


def _piece(family: Family, lines: list[str]) -> bytes:
    """`lines`: each without the name. A metric without a line is not there at all."""
    if not lines:
        return b""
    name = family.name
    head = f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
    return f"{head}{name}{(chr(10) + name).join(lines)}\n".encode()


def _labels(values: Mapping[str, str]) -> str:
    """In braces, and ready for the figure."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items() if value) + "} "


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
