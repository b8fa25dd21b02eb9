"""The planner's counts against models that are built: parameters exactly, and every byte that a block keeps."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from muster.planner.memory import block_saved, head_saved, loss_bytes, stream_width
from muster.planner.setups import Setup
from muster.planner.shapes import SHAPES, Shape
from muster.train.models import SHAPES as TRAINED
from muster.train.models import Decoder, DecoderConfig

SAMPLES, SEQUENCE = 7, 31  # as many tokens as no shape here has columns, so that copies of weights are told apart
TOKENS = SAMPLES * SEQUENCE

shapes = st.builds(
    lambda groups, kv, head, ffn, layers, vocab, gpt: Shape(
        vocab, groups * kv * head, layers, groups * kv, kv, ffn, 32,
        norm="layer" if gpt else "rms", activation="gelu" if gpt else "swiglu",
        positions="learned" if gpt else "rope", bias=gpt, tied=gpt,
    ),
    st.integers(1, 3), st.integers(1, 2), st.sampled_from([8, 16]), st.integers(9, 200), st.integers(1, 3),
    st.integers(11, 300), st.booleans(),
)  # fmt: skip


def model_of(shape: Shape) -> Decoder:
    given = {
        field.name: getattr(shape, field.name)
        for field in dataclasses.fields(DecoderConfig)
        if hasattr(shape, field.name)
    }
    return Decoder(DecoderConfig(**given))


def kept(run: Any, model: nn.Module) -> tuple[Any, float]:
    """What autograd keeps for the backward pass, in bytes: each storage once, without weights and their copies."""
    weights = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    sizes = {tuple(each.shape) for each in model.parameters()} | {
        tuple(each.t().shape) for each in model.parameters() if each.ndim == 2
    }
    found: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        copied = tensor.ndim == 2 and tuple(tensor.shape) in sizes and TOKENS not in tensor.shape
        if storage._cdata not in weights and not copied:
            found[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = run()
    return result, float(sum(each.nbytes() for each in found.values()))


def setup_for(model: Decoder, shape: Shape, compute: Any, **more: Any) -> Setup:
    """The setup, with the stream between the blocks as this model has it."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=compute == "bfloat16"):
        narrow = model._embedded(torch.zeros(1, 4, dtype=torch.long)).dtype is torch.bfloat16
    return Setup(shape, SEQUENCE, SAMPLES, compute=compute, fused_norm=False, narrow_stream=narrow, **more)


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_parameters_and_operations_are_those_of_the_model(shape: Shape) -> None:
    with torch.device("meta"):
        model = model_of(shape)
    assert shape.parameters == sum(each.numel() for each in model.parameters())
    assert shape.flops_per_token(SEQUENCE) == model.flops_per_token(SEQUENCE)


def test_the_named_shapes_are_those_of_training() -> None:
    assert list(SHAPES) == list(TRAINED)
    for name, shape in SHAPES.items():
        there = TRAINED[name]
        same = {field: getattr(shape, field) for field in _SAME}
        assert {field: getattr(there, field) for field in _SAME if hasattr(there, field)} == same, name
        assert shape.parameters == there.parameters


_SAME = {
    "vocab", "dim", "layers", "heads", "kv_heads", "ffn", "context", "norm", "activation", "positions", "bias", "tied",
}  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(shapes, st.sampled_from(["float32", "bfloat16"]))
def test_a_block_keeps_what_is_counted(shape: Shape, compute: Any) -> None:
    model = model_of(shape)
    setup = setup_for(model, shape, compute)
    dtype = torch.float32 if stream_width(setup) == 4 else torch.bfloat16
    stream = torch.randn(SAMPLES, SEQUENCE, shape.dim, dtype=dtype, requires_grad=True)

    def run() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=compute == "bfloat16"):
            return model.blocks["0"](stream)

    _, size = kept(run, model)
    assert size == pytest.approx(TOKENS * block_saved(shape, setup), rel=0.01)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # in torch itself
@pytest.mark.parametrize(("name", "compute"), [("tiny-llama", "bfloat16"), ("tiny-gpt2", "float32")])
def test_a_compiled_block_keeps_what_is_counted(name: str, compute: Any) -> None:
    shape = SHAPES[name]
    model = model_of(shape)
    setup = setup_for(model, shape, compute, compile=True)
    dtype = torch.float32 if stream_width(setup) == 4 else torch.bfloat16
    stream = torch.randn(SAMPLES, SEQUENCE, shape.dim, dtype=dtype, requires_grad=True)
    # The compiler's own decision of what to keep, without the code that it would generate from it.
    forward = torch.compile(model.blocks["0"].forward, backend="aot_eager_decomp_partition")

    def run() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=compute == "bfloat16"):
            return forward(stream)

    run()  # compiles: what that keeps is not the block's
    _, size = kept(run, model)
    assert size == pytest.approx(TOKENS * block_saved(shape, setup), rel=0.03)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2"])
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_the_head_and_the_loss_keep_what_is_counted(name: str, compute: Any) -> None:
    shape = SHAPES[name]
    model = model_of(shape)
    setup = setup_for(model, shape, compute)
    dtype = torch.float32 if stream_width(setup) == 4 else torch.bfloat16
    stream = torch.randn(SAMPLES, SEQUENCE, shape.dim, dtype=dtype, requires_grad=True)
    targets = torch.zeros(TOKENS, dtype=torch.long)
    assert model.norm is not None
    assert model.head is not None

    def run() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=compute == "bfloat16"):
            logits = model.head(model.norm(stream))  # type: ignore[misc]
        return F.cross_entropy(logits.float().flatten(0, 1), targets, reduction="sum")

    _, size = kept(run, model)
    softmax = loss_bytes(shape, setup) / 3  # its gradient and the next one come with the backward pass
    assert size == pytest.approx(TOKENS * (head_saved(shape, setup) + softmax + 8), rel=0.01)
