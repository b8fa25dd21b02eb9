"""The time of a step, by part: products, attention, pointwise work, optimizer, communication, gaps.

Constants marked (H200) are fitted to one measured run, llama-886m of 8 x 4,096 tokens, compiled; see docs/planner.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from muster.planner.catalogue import Device
from muster.planner.exact import scores
from muster.planner.memory import stream_width, width
from muster.planner.setups import Layout, Setup, Traced
from muster.planner.shapes import Shape

_HALF: Final = 100  # a side of a product that reaches n / (n + this) of what a very large one does (H200)
_ODD: Final = 0.55  # share that remains for a side that is no multiple of 64: 13 % of a step of GPT-2 (H200)
_EAGER: Final = 2.9  # times the pointwise traffic of compiled blocks (H200)
_STREAMED: Final = 0.8  # share of the bandwidth that an optimizer's pass reaches
_FP8: Final = 5.5  # bytes moved to scale, cast and transpose one number that a product reads (H200)
_KERNELS: Final = (50, 130)  # of a block, forward and backward: compiled, and not
_GAP: Final = 6e-6  # seconds between two kernels, of which some overlap (H200)
_HOST: Final = 9e-6  # seconds of the host for one kernel
_FIXED: Final = 6e-3  # seconds of a step that depend on nothing: clipping's norm, guards, data
_NARROW_HEAD: Final = 0.75  # attention with heads of 64 or less
_SHORT: Final = 256  # tokens; attention over n of them reaches n / (n + this)
_HIDDEN: Final = 0.8  # share of the backward pass that hides a reduction of gradients
_FLASH_ALONE: Final = 0.5  # with `exact`, attention is flash's, whose backward pass can be deterministic (H200), or
_OWN: Final = 1.14  # times the backward pass of cuDNN's, where it is `train/kernels`' (H200)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds, by part, and what follows from them."""

    products: float
    attention: float
    pointwise: float
    optimizer: float
    communication: float  # that nothing hides
    bubble: float  # stages of a pipeline that wait
    gaps: float
    flops: float  # of the model, a step
    items: int
    peak: float  # FLOP/s of all devices at 16 bits
    price: float  # an hour of all devices
    factor: float = 1.0

    @property
    def seconds(self) -> float:
        return sum(self.parts().values())

    @property
    def mfu(self) -> float:
        return self.flops / (self.seconds * self.peak)

    @property
    def rate(self) -> float:
        """Items a second, of all devices."""
        return self.items / self.seconds

    @property
    def per_billion(self) -> float:
        return 1e9 / self.rate / 3600 * self.price

    def parts(self) -> dict[str, float]:
        names = ("products", "attention", "pointwise", "optimizer", "communication", "bubble", "gaps")
        return {name: self.factor * getattr(self, name) for name in names}


def step(setup: Setup, layout: Layout, device: Device) -> Step:
    """One step of the whole gang. The device has to compute in the setup's precision; see `catalogue.computes`."""
    model = setup.model
    return (
        _traced(model, setup, layout, device) if isinstance(model, Traced) else _decoder(model, setup, layout, device)
    )


def _decoder(shape: Shape, setup: Setup, layout: Layout, device: Device) -> Step:
    tp, micros = layout.tp, setup.micros(layout)
    tokens = setup.micro_samples(layout) * setup.sequence
    layers = shape.layers / layout.pp
    again = {"none": 0.0, "selective": 0.5, "full": 1.0}[setup.recompute]
    passes = (2 if setup.lora else 3) + again  # forward, for the input, for the weights
    # A rank of the last stage has the head, too: it sets the pace, and its share of the blocks is as large as others'.
    run = partial(_product, tokens, device)
    compute = setup.compute
    products = layers * passes * sum(
        count * (run(inputs, outputs / tp, compute) if side == "out" else run(inputs / tp, outputs, compute))
        for inputs, outputs, count, side in shape.products()
    )  # fmt: skip
    plain = "bfloat16" if compute == "fp8" else compute
    wide = -(-shape.vocab // tp) if compute == "float32" else -(-shape.vocab // (64 * tp)) * 64  # as `layers.Head` pads
    products += (2 if setup.lora else 3) * _product(tokens, device, shape.dim, wide, plain)
    attention = layers * _attention(shape, setup, tokens, device, again, layout)
    pointwise = _pointwise(shape, setup, layout, device, tokens, layers, again)
    own = (layers * shape.block_parameters + (2 - shape.tied) * shape.table) / tp
    hidden = products + attention + pointwise
    sent = _communication(shape, setup, layout, device, tokens, layers, hidden, own)
    kernels = micros * layers * _KERNELS[0 if setup.compile else 1] * (1 + again / 3)
    bubble = (layout.pp - 1) / micros * hidden * micros if layout.pp > 1 else 0.0
    gaps = kernels * _GAP + _FIXED
    working = micros * hidden + gaps
    gaps += max(0.0, kernels * _HOST - working)  # the host can't queue kernels fast enough
    items = setup.tokens
    return Step(
        products=micros * products, attention=micros * attention, pointwise=micros * pointwise,
        optimizer=_optimizer(setup, layout, device, own), communication=sent, bubble=bubble, gaps=gaps,
        flops=float(shape.flops_per_token(setup.sequence)) * items, items=items,
        peak=device.peak("bfloat16" if device.bfloat16 else "float16") * layout.devices,
        price=device.price * layout.devices, factor=device.factor,
    )  # fmt: skip


def _product(tokens: float, device: Device, inputs: float, outputs: float, compute: str) -> float:
    """Seconds of one product of [tokens, inputs] with [inputs, outputs]."""
    peak: Callable[..., float] = device.peak
    half = _HALF * (2 if compute == "fp8" else 1)  # twice as fast, so as much larger until it is worth it
    reach = min(1.0, device.reach * (1.1 if compute == "fp8" else 1.0))
    for side in (tokens, inputs, outputs):
        reach *= side / (side + half)
    if inputs % 64 or outputs % 64:
        reach *= _ODD
    moved = 2 * (tokens * (inputs + outputs) + inputs * outputs)
    return max(2 * tokens * inputs * outputs / (peak(compute) * reach), moved / (device.bandwidth * 1e9 * _STREAMED))


def _attention(shape: Shape, setup: Setup, tokens: float, device: Device, again: float, layout: Layout) -> float:
    """Seconds of one block's attention, forward and backward; causal, so half of the square is computed."""
    forward = 2.0 * tokens * setup.sequence * shape.wide / layout.tp
    peak = device.peak("float32" if setup.compute == "float32" else "bfloat16" if device.bfloat16 else "float16")
    reach = setup.sequence / (setup.sequence + _SHORT) * (1 + _SHORT / 4096)  # the shares are those at 4,096 tokens
    reach *= _NARROW_HEAD if shape.head <= 64 else 1.0
    ahead, back = device.attention
    if scores(setup, layout, device):
        back /= _OWN
    elif setup.exact and device.name in ("H100", "H200", "B200"):
        reach *= _FLASH_ALONE
    return ((1 + again) * forward / ahead + 2.5 * forward / back) / (peak * reach)


def _pointwise(
    shape: Shape, setup: Setup, layout: Layout, device: Device, tokens: float, layers: float, again: float
) -> float:
    """Seconds of norms, rotations, activations, additions, casts and the loss of one micro-batch, by what they move."""
    c, s, d = width(setup), stream_width(setup, layout), shape.dim
    whole = 1 / layout.tp if setup.sequence_parallel else 1.0
    turned = 4 * c * (shape.wide + shape.kv_wide) / layout.tp if shape.positions == "rope" else 0.0
    hidden = shape.ffn * shape.active / layout.tp * c * (8 if shape.activation == "swiglu" else 5)
    one = whole * d * (11 * s + (7 + shape.ups) * c) + turned + hidden
    one *= (1 + again / 3) * (1.0 if setup.compile else _EAGER)
    loss = shape.vocab * c * (4.0 if setup.compile and setup.fused_loss else 18.0)
    casts = 0.0
    if setup.compute == "fp8":
        read = 3 * d + shape.ffn + 3 * d + 2 * shape.kv_wide + shape.ups * shape.ffn
        casts = layers * (tokens * _FP8 * read / layout.tp + 2 * _FP8 * shape.block_matrices / layout.tp)
    elif c == 2:
        casts = 12.0 * (layers * shape.block_matrices + shape.table) / layout.tp  # weights down, gradients up
    moved = tokens * (layers * one + loss)
    return (moved / device.pointwise + casts / (device.pointwise if setup.compute == "fp8" else _STREAMED)) / (
        device.bandwidth * 1e9
    )


def _optimizer(setup: Setup, layout: Layout, device: Device, own: float) -> float:
    """Seconds of AdamW: weight, gradient and two moments are read, three of them written, and the norm reads once."""
    mine = own / layout.fsdp
    if setup.lora:
        return 1e-3
    if setup.offload:  # over the machine's link, and by its processor
        return 8 * mine / (device.link * 1e9 if device.link < 30 else 25e9) + 32 * mine / 50e9
    return 32 * mine / (device.bandwidth * 1e9 * _STREAMED)


def _communication(
    shape: Shape, setup: Setup, layout: Layout, device: Device, tokens: float, layers: float, compute: float, own: float
) -> float:
    """Seconds of a step that devices wait for each other's bytes."""
    c, micros = width(setup), setup.micros(layout)
    found = 0.0
    if layout.tp > 1:  # two reductions of the stream forward, two backward, hidden by nothing
        size = tokens * shape.dim * c
        found += micros * layers * 4 * 2 * (layout.tp - 1) / layout.tp * size / _link(layout.tp, layout.tp, device)
    if layout.pp > 1:
        found += 2 * tokens * shape.dim * c / _link(layout.devices, layout.pp, device)
    back = micros * compute * 2 / 3
    if layout.fsdp > 1:
        link = _link(layout.fsdp * layout.tp, layout.fsdp, device)
        share = (layout.fsdp - 1) / layout.fsdp
        gathers = (2 if setup.reshard and layout.pp == 1 else 1) * c * own * (micros if layout.pp == 1 else 1)
        sent = share * (gathers + (0 if setup.lora else 4 * own * micros)) / link
        found += max(sent - _HIDDEN * micros * compute, 0.05 * sent)
    if layout.dp > 1 and not setup.lora:
        link = _link(layout.devices // layout.pp, layout.dp, device)
        sent = 2 * (layout.dp - 1) / layout.dp * 4 * own / layout.fsdp / link
        found += max(sent - _HIDDEN * back / micros, 0.05 * sent)
    return found


def _link(spanned: int, ranks: int, device: Device) -> float:
    """Bytes a second that a device sends and receives in a collective of `ranks` among so many neighbouring devices.
    Past one machine, the ranks that a group has in a machine use its network together."""
    if spanned <= device.per_node:
        return device.link * 1e9
    return min(device.link, device.network * max(1.0, device.per_node * ranks / spanned)) * 1e9


def _traced(model: Traced, setup: Setup, layout: Layout, device: Device) -> Step:
    samples, micros = setup.micro_samples(layout), setup.micros(layout)
    products = samples * model.flops / (device.peak(setup.compute) * device.reach * 0.6)  # sides are not known: small
    pointwise = 3 * samples * model.moved / (device.bandwidth * 1e9 * device.pointwise)
    own = float(model.parameters)
    sent = 0.0
    if layout.devices > 1:
        sent = 8 * own / _link(layout.devices, layout.devices, device)
        sent = max(sent - _HIDDEN * 2 / 3 * (products + pointwise), 0.05 * sent)
    kernels = 3 * model.kernels * micros
    gaps = kernels * _GAP + _FIXED
    gaps += max(0.0, kernels * _HOST - micros * (products + pointwise) - gaps)
    return Step(
        products=micros * products, attention=0.0, pointwise=micros * pointwise,
        optimizer=_optimizer(setup, layout, device, own), communication=sent, bubble=0.0, gaps=gaps,
        flops=model.flops * setup.batch, items=setup.batch,
        peak=device.peak("bfloat16" if device.bfloat16 else "float16") * layout.devices,
        price=device.price * layout.devices, factor=device.factor,
    )  # fmt: skip


def steps_for(items: float, setup: Setup) -> int:
    return math.ceil(items / setup.tokens)
