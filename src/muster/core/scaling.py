"""How throughput grows with the number of devices, and where adding more stops paying."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

PAYS: Final = 0.5  # of a device at the smallest scale: what an added device must bring at least


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    devices: int
    throughput: float
    speedup: float  # over the smallest scale
    efficiency: float  # throughput of a device, over that at the smallest scale
    gain: float  # what each device that was added since the scale before brings, in devices of the smallest scale


@dataclass(frozen=True, slots=True)
class Scaling:
    """Points, the fewest devices first. `stops_at`: the first scale whose added devices don't pay; None: none yet."""

    points: tuple[ScalingPoint, ...]
    stops_at: int | None

    def at(self, devices: int) -> ScalingPoint | None:
        """The measured point with so many devices, or the next larger one."""
        return next((one for one in self.points if one.devices >= devices), None)

    def text(self) -> str:
        """`2 devices 1.8×, 4 devices 2.4×: adding stops paying at 4`."""
        told = ", ".join(f"{one.devices} devices {one.speedup:.2g}×" for one in self.points[1:])
        if not told:
            count = self.points[0].devices
            return f"measured at {count} {'device' if count == 1 else 'devices'} alone"
        return told if self.stops_at is None else f"{told}: adding stops paying at {self.stops_at}"


def scaling(measured: Mapping[int, Sequence[float]], pays: float = PAYS) -> Scaling | None:
    """`measured`: devices → throughputs of runs with so many. Of several the median counts; None without any."""
    found = {
        devices: median(good)
        for devices, values in sorted(measured.items())
        if devices > 0 and (good := [one for one in values if math.isfinite(one) and one > 0])
    }
    if not found:
        return None
    (base, least), *_ = found.items()
    each = least / base
    points, before = list[ScalingPoint](), (0, 0.0)
    for devices, throughput in found.items():
        gain = (throughput - before[1]) / (devices - before[0]) / each
        points.append(ScalingPoint(devices, throughput, throughput / least, throughput / devices / each, gain))
        before = (devices, throughput)
    return Scaling(tuple(points), next((one.devices for one in points[1:] if one.gain < pays), None))
