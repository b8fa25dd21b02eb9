"""With `exact`: which backward pass attention has, and the memory that it takes, as `train/kernels` decides."""

from __future__ import annotations

from typing import Final

from muster.planner.catalogue import Device
from muster.planner.setups import Layout, Setup, Traced

HOPPER: Final = ("H100", "H200")
WIDTHS: Final = (64, 128)
TOKENS: Final = 128
SHARE: Final = 32  # of the device's memory


def scores(setup: Setup, layout: Layout, device: Device) -> float:
    """Bytes for the gradient of attention's scores; 0 where nothing is exact, or attention is flash's."""
    shape = setup.model
    if not setup.exact or isinstance(shape, Traced) or device.name not in HOPPER or setup.compute == "float32":
        return 0.0
    one = shape.heads // shape.kv_heads * setup.sequence**2 * 2
    most = device.memory // SHARE // one
    if setup.sequence % TOKENS or shape.head not in WIDTHS or most < 1:
        return 0.0
    return float(one * min(most, setup.micro_samples(layout) * shape.kv_heads / layout.tp))
