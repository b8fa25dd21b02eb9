"""The peak of a device's memory, by part. What a block keeps for its backward pass is counted tensor by tensor.

The tests hold these counts against what our own decoder saves. Three instants of a step compete for the peak: the loss,
when all activations are there and the logits too; the first block of the backward pass; and its end, when all gradients
are. Weights and Adam's moments are float32 always; copies of a product's weights have the precision of the product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from muster.planner.setups import Layout, Setup, Traced
from muster.planner.shapes import Shape

_WORKSPACE: Final = 64 << 20  # cuBLAS, of both threads of a step
_CONTEXT: Final = 700 << 20  # CUDA itself and its kernels: outside of what torch counts
_NCCL: Final = 500 << 20  # channels of the groups
_LOST: Final = 0.04  # share that the allocator can't use, between its blocks
_TRACED_MARGIN: Final = 1.1  # a traced model's backward pass is not seen
ADAPTED: Final = 7  # matrices of a block that LoRA adapts


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the device that needs most."""

    weights: float = 0.0
    optimizer: float = 0.0
    gradients: float = 0.0
    activations: float = 0.0
    loss: float = 0.0  # logits and what the loss makes of them
    buffers: float = 0.0  # of communication and of products
    reserve: float = 0.0  # CUDA's own and what the allocator can't use
    host: float = 0.0  # in the machine's memory, with offload: not part of the total

    @property
    def allocated(self) -> float:
        """What `torch.cuda.max_memory_allocated` counts."""
        return self.weights + self.optimizer + self.gradients + self.activations + self.loss + self.buffers

    @property
    def total(self) -> float:
        return self.allocated + self.reserve

    def parts(self) -> dict[str, float]:
        names = ("weights", "optimizer", "gradients", "activations", "loss", "buffers", "reserve")
        return {name: getattr(self, name) for name in names}


def width(setup: Setup) -> int:
    """Bytes of a number in products."""
    return 4 if setup.compute == "float32" else 2


def stream_width(setup: Setup, layout: Layout = Layout()) -> int:  # noqa: B008 - it can't be changed
    """Bytes of a number in the stream between the blocks."""
    sharded = layout.fsdp > 1 or (layout.dp > 1 and layout.tp > 1)
    narrow = setup.compute in ("bfloat16", "fp8") and setup.narrow_stream
    return 2 if narrow or (sharded and setup.compute != "float32") else 4


def block_saved(shape: Shape, setup: Setup, layout: Layout = Layout()) -> float:  # noqa: B008
    """Bytes that one block keeps for its backward pass, for one token. Weights are not among them."""
    c, s, d, tp = width(setup), stream_width(setup, layout), shape.dim, layout.tp
    whole = 1 / tp if setup.sequence_parallel else 1.0  # of what tensor parallelism leaves whole
    statistics = 8 if shape.norm == "rms" else 16  # of both norms, float32
    mixed = (c * (shape.wide + 2 * shape.kv_wide) + 4 * shape.heads + c * shape.wide) / tp
    hidden = shape.ffn * shape.active / tp
    if (
        setup.compute == "fp8" and setup.compile
    ):  # the compiled backward pass casts again, from what is kept in bfloat16
        return whole * (s * d + c * d + statistics) + mixed + shape.ups * c * hidden
    if setup.compile:
        return whole * (s * d + c * d + statistics) + 2 * c * d + mixed + (shape.ups + 1) * c * hidden
    readers = 2 if c == s else 3 + shape.ups  # products cast what they read, each for itself
    norms = 2 * 4 * d * (1 if setup.fused_norm or shape.norm == "layer" else 2) + statistics
    kept = 4 * c if shape.activation == "swiglu" else 2 * c
    if setup.compute == "fp8":  # each product keeps what it reads in 8 bits, for itself
        return whole * norms + (3 + shape.ups) * d + mixed + shape.wide / tp + (kept - 1) * hidden
    return whole * norms + readers * c * d + mixed + kept * hidden


def head_saved(shape: Shape, setup: Setup, layout: Layout = Layout()) -> float:  # noqa: B008
    """Bytes that the last norm keeps, and the head's input, for one token."""
    c, s, d = width(setup), stream_width(setup, layout), shape.dim
    statistics = 4 if shape.norm == "rms" else 8
    if setup.compile:
        return s * d + c * d + statistics
    return 4 * d * (1 if setup.fused_norm or shape.norm == "layer" else 2) + statistics + c * d


def loss_bytes(shape: Shape, setup: Setup, sharded: bool = False) -> float:
    """Bytes of the logits and what is made of them at their peak, for one token: the softmax, its gradient and the next
    one in float32; or, where the loss is compiled, the logits and their gradient alone. Shards give them in float32."""
    return shape.vocab * (2.0 * (4 if sharded else width(setup)) if setup.compile and setup.fused_loss else 12.0)


def adapters(shape: Shape, rank: int) -> int:
    """Parameters of LoRA on every matrix of every block."""
    return shape.layers * sum(rank * (inputs + outputs) * count for inputs, outputs, count, _ in shape.products())


def peak(setup: Setup, layout: Layout) -> Memory:
    """The memory of the device that needs most: the largest of the first and the last stage."""
    model = setup.model
    if isinstance(model, Traced):
        found = _traced(model, setup, layout)
    else:
        ends = {(True, True)} if layout.pp == 1 else {(True, False), (False, True)}
        found = max((_stage(model, setup, layout, *each) for each in ends), key=lambda each: each.allocated)
    several = _NCCL if layout.devices > 1 else 0
    return replace(found, reserve=_CONTEXT + several + _LOST * found.allocated)


def _stage(shape: Shape, setup: Setup, layout: Layout, first: bool, last: bool) -> Memory:
    tp, c = layout.tp, width(setup)
    layers = math.ceil(shape.layers / layout.pp)
    tokens = setup.micro_samples(layout) * setup.sequence
    matrices = shape.block_matrices / tp
    block = matrices + (shape.block_parameters - shape.block_matrices)
    ends = (shape.table / tp if first else 0) + (shape.table / tp if last and not (first and shape.tied) else 0)
    ends += shape.norm_parameters if last else 0
    ends += shape.context * shape.dim / tp if first and shape.positions == "learned" else 0
    base = _states(setup, layout, layers * block + ends, block, ends, adapters(shape, setup.lora) / tp / layout.pp)

    # Activations of all micro-batches that a stage has begun.
    flying = setup.micros(layout) if setup.schedule == "gpipe" else min(layout.pp, setup.micros(layout))
    flying = flying if layout.pp > 1 else 1
    one = tokens * block_saved(shape, setup, layout)
    one += tokens * 2 * setup.lora * ADAPTED if setup.lora else 0
    kept = layers - {"none": 0, "selective": -(-layers // 2), "full": layers}[setup.recompute]
    again = tokens * shape.dim * stream_width(setup, layout) * (1 / tp if setup.sequence_parallel else 1)
    saved = flying * (kept * one + (layers - kept) * again)
    saved += flying * tokens * (16 + (head_saved(shape, setup, layout) if last else 0))
    sharded = layout.fsdp > 1 or (layout.dp > 1 and tp > 1)
    logits = tokens * loss_bytes(shape, setup, sharded) if last else 0.0
    hidden = (shape.ups + 1) * c * shape.ffn * shape.active / tp
    moving = tokens * (hidden + 2 * c * shape.dim + 2 * stream_width(setup, layout) * shape.dim)
    rebuilt = one if setup.recompute != "none" else 0.0

    # Copies of the weights in the precision of products, which autocast keeps until their backward pass.
    cast = c == 2 and not sharded and not setup.lora
    copies = 2 * kept * matrices if cast and not (setup.compute == "fp8" and setup.compile) else 0.0
    copies += 2 * shape.table / tp if cast and last else 0.0
    table = shape.context * shape.head * 8 if shape.positions == "rope" else 0
    buffers = base.buffers + _WORKSPACE + table

    trained = base.gradients
    early = trained if setup.micros(layout) > 1 or (layout.dp > 1 and not sharded) else 0.0  # there before the loss
    at_head = (
        0.0 if setup.lora or setup.offload else min(trained, (6 if c == 2 else 4) * shape.table / tp if last else 0)
    )
    twice = 4 * shape.table / tp if shape.tied and first and last and not sharded and not setup.lora else 0
    last_block = one if kept else again + one
    weights = base.weights
    instants = [
        replace(base, weights=weights + copies, gradients=early, activations=saved, loss=logits, buffers=buffers),
        replace(
            base, weights=weights + copies, gradients=max(early, at_head), activations=saved + rebuilt + moving,
            buffers=buffers,
        ),
        replace(base, gradients=trained + twice, activations=last_block + moving, buffers=buffers),
    ]  # fmt: skip
    return max(instants, key=lambda each: each.allocated)


def _states(setup: Setup, layout: Layout, own: float, block: float, rest: float, adapted: float) -> Memory:
    """Weights, moments and gradients of `own` parameters, of which a block has `block`, and buffers to send them."""
    c = width(setup)
    frozen = c if setup.lora else 4
    trained = adapted if setup.lora else own
    added = 4 * adapted if setup.lora else 0.0
    if layout.fsdp == 1 and not (layout.dp > 1 and layout.tp > 1):
        sent = 2 * 25 * (1 << 20) if layout.dp > 1 else 0
        return Memory(weights=frozen * own + added, optimizer=8 * trained, gradients=4 * trained, buffers=sent)
    shards = layout.fsdp
    gathered = rest + (2 * block if setup.reshard and shards > 1 and layout.pp == 1 else own - rest)
    # Gathered in the precision of products: the received copy and the one that is used; gradients sent in float32.
    buffers: float = c * block + (0 if setup.lora else (c + 4) * max(block, rest))
    states = Memory(
        weights=(frozen * own + added) / shards + c * gathered,
        optimizer=8 * trained / shards,
        gradients=4 * trained / shards,
        buffers=buffers,
    )
    if not setup.offload:
        return states
    host = states.optimizer + states.gradients + (frozen * own + added) / shards
    return Memory(weights=c * gathered, buffers=buffers, host=host)


def _traced(model: Traced, setup: Setup, layout: Layout) -> Memory:
    own, samples = float(model.parameters), setup.micro_samples(layout)
    base = _states(setup, layout, own, float(model.largest_block), float(model.largest_block), 0.0)
    saved = samples * model.saved * _TRACED_MARGIN
    buffers = base.buffers + _WORKSPACE
    several = setup.micros(layout) > 1 or layout.dp > 1
    instants = [
        replace(
            base, gradients=base.gradients if several else 0.0, activations=saved, loss=2 * samples * model.transient,
            buffers=buffers,
        ),
        replace(base, activations=2 * samples * model.transient, buffers=buffers),
    ]  # fmt: skip
    return max(instants, key=lambda each: each.allocated)
