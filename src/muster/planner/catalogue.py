"""Accelerators: memory, peaks, bandwidth, links and price. A YAML or JSON file changes them and adds others.

    H200: {price: 4.20}                                  # an hour of one device
    MI300X: {like: H200, memory_gib: 191.5, bandwidth: 5300}

Memory is what a program can allocate, which is less than the name says. Peaks are dense, from NVIDIA's data sheets
(T4, L4, A10, V100, A100, H100 SXM, H200 SXM, HGX B200); that of an A10G is about half an A10's. Prices are one device's
share of an hour on demand of AWS in us-east-1 (g4dn, g6, g5, p3, p4d, p4de, p5, p5en, p6-b200) in late 2025, in USD:
write your own. Links are what a collective reaches, about 0.8 of the sheet. `reach`, `pointwise` and `attention` were
measured on an H200 alone; the others are assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from muster.planner.setups import Compute, Setup, parse, read_file
from muster.planner.shapes import PlanError

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Device:
    """One kind. TFLOP/s, GB/s, GiB, and USD an hour."""

    name: str
    memory_gib: float
    bfloat16: float  # peak of products; 0: it has none
    float16: float
    float32: float  # TF32 where the device has it, but that torch does not use it unless it is told to: plain float32
    fp8: float  # 0: it has none
    bandwidth: float
    link: float  # between devices of a machine, per direction
    network: float  # of a device to other machines
    price: float
    per_node: int = 8
    reach: float = 0.80  # share of the peak that a very large product reaches
    pointwise: float = 0.5  # share of the bandwidth that fused pointwise work reaches
    attention: tuple[float, float] = (0.55, 0.44)  # share of the peak, forward and backward
    factor: float = field(default=1.0)  # from history: measured step time over predicted

    @property
    def memory(self) -> int:
        return int(self.memory_gib * GIB)

    def peak(self, compute: Compute) -> float:
        """FLOP/s; 0 if the device does not compute so."""
        return float(getattr(self, compute)) * 1e12


_OLD: Final[dict[str, Any]] = {"reach": 0.6, "attention": (0.25, 0.2)}  # no flash attention, little power
_SMALL: Final[dict[str, Any]] = {"reach": 0.6, "attention": (0.4, 0.35)}
_AMPERE: Final[dict[str, Any]] = {"reach": 0.82, "attention": (0.6, 0.5), "pointwise": 0.55}

BUILT_IN: Final[Mapping[str, Device]] = {each.name: each for each in (
    Device("T4", 14.6, 0, 65, 8.1, 0, 300, 10, 1.5, 0.526, **_OLD),
    Device("L4", 22.0, 121, 121, 30, 242, 300, 20, 3.0, 0.805, **_SMALL),
    Device("A10G", 22.1, 70, 70, 31, 0, 600, 20, 3.0, 1.006, **_SMALL),
    Device("V100", 15.8, 0, 125, 15.7, 0, 900, 120, 1.5, 3.06, reach=0.75, attention=(0.25, 0.2)),
    Device("A100-40GB", 39.4, 312, 312, 19.5, 0, 1_555, 230, 6.0, 2.75, **_AMPERE),
    Device("A100-80GB", 79.1, 312, 312, 19.5, 0, 2_039, 230, 6.0, 3.43, **_AMPERE),
    Device("H100", 79.1, 989.5, 989.5, 67, 1_979, 3_350, 360, 45, 6.88),
    Device("H200", 139.8, 989.5, 989.5, 67, 1_979, 4_800, 360, 45, 7.91),
    Device("B200", 178.0, 2_250, 2_250, 80, 4_500, 8_000, 700, 45, 14.24, reach=0.72, attention=(0.45, 0.35)),
)}  # fmt: skip
# What nodes and jobs call them.
_ALIASES: Final = {"A100": "A100-40GB", "A100-SXM4-40GB": "A100-40GB", "A100-SXM4-80GB": "A100-80GB", "A10": "A10G"}


def read_catalogue(path: Path | None) -> dict[str, Device]:
    """The built-in devices, with a file's changes over them."""
    made = dict(BUILT_IN)
    if path is None:
        return made
    for name, changes in parse(read_file(path), path.suffix).items():
        made[str(name)] = _changed(str(name), changes, made, path)
    return made


def find(name: str, catalogue: Mapping[str, Device] = BUILT_IN) -> Device | None:
    """By a name such as jobs and nodes write: `A100`, `NVIDIA H200`, `h100-sxm5-80gb`. None for another."""
    asked = name.upper().removeprefix("NVIDIA").strip(" -_").replace(" ", "-")
    known = {key.upper(): each for key, each in catalogue.items()}
    if asked in known:
        return known[asked]
    if asked in _ALIASES:
        return catalogue.get(_ALIASES[asked])
    for start, kind in (("A100", "A100-80GB" if "80GB" in asked else "A100-40GB"),):
        if asked.startswith(f"{start}-"):
            return catalogue.get(kind)
    near = [key for key in known if asked.startswith(f"{key}-") or asked.endswith(f"-{key}")]
    return known[max(near, key=len)] if near else None


def chosen(names: str | None, catalogue: Mapping[str, Device]) -> list[Device]:
    """Those that a list such as `H100,L4` names; all without one."""
    if not names:
        return list(catalogue.values())
    found = []
    for name in names.split(","):
        device = find(name.strip(), catalogue)
        if device is None:
            near = get_close_matches(name.strip().upper(), catalogue, 1)
            raise PlanError(
                f"{name.strip()!r} is not in the catalogue, which has {', '.join(catalogue)}."
                + (f" Did you mean {near[0]}?" if near else "")
            )
        found.append(device)
    return found


def computes(device: Device, setup: Setup) -> Setup:
    """The setup with float16 in the place of bfloat16 on a device that has no bfloat16. Raises PlanError for fp8."""
    if device.peak(setup.compute):
        return setup
    if setup.compute == "bfloat16":
        return dataclasses.replace(setup, compute="float16")
    raise PlanError(f"{device.name} does not compute in {setup.compute}")


def _changed(name: str, changes: Any, made: Mapping[str, Device], path: Path) -> Device:
    if not isinstance(changes, dict):
        raise PlanError(f"{path}: {name} is {changes!r}; expected a mapping such as {{price: 4.20}}.")
    like = changes.pop("like", name)
    if like not in made:
        raise PlanError(f"{path}: {name} is new, so it needs `like`, one of {', '.join(made)}.")
    known = [each.name for each in dataclasses.fields(Device) if each.name not in ("name", "factor")]
    if unknown := [key for key in changes if key not in known]:
        raise PlanError(f"{path}: {name} has {unknown[0]!r}; expected some of {', '.join(known)}.")
    for key, value in changes.items():
        numbers = value if key == "attention" and isinstance(value, list) and len(value) == 2 else [value]
        if any(isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one < 1e9 for one in numbers):
            raise PlanError(f"{path}: {name}.{key} is {value!r}; expected a number from 0.")
    if "attention" in changes:
        changes["attention"] = tuple(changes["attention"])
    return dataclasses.replace(made[like], name=name, **changes)
