"""Decay groups, clipping, masked steps and the loss scale, on one process and over a gang."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from equal_kit import (
    DEEP,
    GPT2,
    LLAMA,
    OPTIM,
    Case,
    Outcome,
    Tolerance,
    differences,
    divided_all,
    merge,
    plain,
    prepare,
)
from torch import Tensor, nn

from gang_kit import gang
from muster.train.mesh import Layout, make_mesh
from muster.train.optim import OptimSettings, adamw, measure, step
from muster.train.parallel import ParallelSettings, state_dicts
from muster.train.precision import Precision

S = ParallelSettings
ALONE = Layout()
BF16 = Precision("bfloat16")
FP16 = Precision("float16", initial_scale=1024.0)
# Products are rounded to 8 bits (bfloat16) or 11 (float16), and another order of sums rounds otherwise; FSDP's policy
# also looks embeddings up in the half type, which autocast does not. Adam turns a tiny gradient's sign into a step.
TOLERANCES = {
    "bfloat16": Tolerance(loss=1e-3, norm=0.15, weights=0.6, optim=0.6),
    "float16": Tolerance(loss=2e-4, norm=1e-2, weights=0.1, optim=0.05),
}
CASES = [
    Case("alone, bf16", precision=BF16, micros=2),
    Case("alone, fp16", precision=FP16, max_norm=0.5),
    Case("dp, bf16", {"dp": 2}, precision=BF16),
    Case("dp, fp16", {"dp": 2}, precision=FP16, micros=2, max_norm=0.5),
    Case("fsdp, bf16", {"fsdp": 2}, S(checkpointing="selective"), precision=BF16),
    Case("fsdp, fp16", {"fsdp": 2}, precision=FP16, micros=2, max_norm=0.5),
    Case("tp, bf16", {"tp": 2}, S(sequence=True), precision=BF16),
    Case("tp, fp16", {"tp": 2}, precision=FP16, max_norm=0.5),
    Case("pp, bf16", {"pp": 2}, precision=BF16, config=DEEP, micros=2),
    Case("pp, fp16", {"pp": 2}, S(schedule="interleaved"), precision=FP16, config=DEEP, micros=2, max_norm=0.5),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_half_precision_as_one_process(case: Case) -> None:
    tolerance = TOLERANCES[case.precision.compute]
    assert not differences(_halves()[case.name], plain(replace(case, layout={})), tolerance)


def test_half_precision_is_half() -> None:
    """A case that fell back to float32 would pass as float32."""
    for case in CASES:
        assert differences(_halves()[case.name], plain(replace(case, precision=Precision())))


@cache
def _halves() -> dict[str, Outcome]:
    alone = [case for case in CASES if not case.layout]
    pairs = [case for case in CASES if case.layout]
    found = dict(zip([case.name for case in alone], divided_all(alone), strict=True))
    for case, outcomes in zip(pairs, zip(*gang(2, divided_all, pairs), strict=True), strict=True):
        found[case.name] = merge(list(outcomes))
    return found


def test_matrices_alone_decay() -> None:
    prepared = prepare(Case("", config=replace(GPT2, tied=True)), make_mesh(ALONE, "cpu"))
    optimizer = adamw(prepared.parts, OptimSettings(weight_decay=0.3))
    names = {parameter: name for name, parameter in prepared.named_parameters()}
    decayed = {names[p] for group in optimizer.param_groups if group["weight_decay"] == 0.3 for p in group["params"]}
    others = {names[p] for group in optimizer.param_groups if group["weight_decay"] == 0.0 for p in group["params"]}
    assert decayed | others == set(names.values())
    assert {"blocks.0.attention.q.weight", "blocks.1.ffn.down.weight"} <= decayed
    assert {"embed.weight", "positions.weight", "norm.weight", "blocks.0.attention.q.bias"} <= others


def test_clipping_leaves_short_gradients_alone() -> None:
    model = nn.Linear(3, 2, bias=False)
    model.weight.grad = torch.full((2, 3), 2.0)
    mesh = make_mesh(ALONE, "cpu")
    norm, factor = measure([model], mesh, 100.0)
    assert (norm.item(), factor.item()) == (pytest.approx(24**0.5), 1.0)
    norm, factor = measure([model], mesh, 1.0)
    assert norm.item() == pytest.approx(24**0.5)
    assert (factor * model.weight.grad).norm().item() == pytest.approx(1.0, rel=1e-5)
    assert measure([model], mesh, None) == (norm, None)
    assert torch.equal(model.weight.grad, torch.full((2, 3), 2.0)), "only the step multiplies"


def test_a_scale_grows_and_falls() -> None:
    scaler = Precision("float16", initial_scale=8.0, growth_steps=2).scaler(torch.device("cpu"))
    assert scaler is not None
    seen = []
    for skipped in (0.0, 0.0, 1.0, 0.0, 1.0):
        scaler.update(torch.tensor(skipped))
        seen.append(float(scaler.scale))
    assert seen == [8.0, 16.0, 8.0, 8.0, 4.0]
    other = Precision("float16").scaler(torch.device("cpu"))
    assert other is not None
    other.load_state_dict({name: value.clone() for name, value in scaler.state_dict().items()})
    assert other.state_dict() == scaler.state_dict()
    assert Precision("bfloat16").scaler(torch.device("cpu")) is None


def overflow() -> list[dict[str, object]]:
    """A gradient that overflows on one rank alone, in each layout: all ranks must leave the step out."""
    found = []
    for layout in ({"dp": 2}, {"fsdp": 2}, {"tp": 2}, {"pp": 2}):
        case = Case("", layout, precision=FP16, micros=2)
        mesh = make_mesh(Layout.parse(layout), "cpu")
        prepared = prepare(case, mesh)
        optimizer = adamw(prepared.parts, OPTIM)
        before = {name: _local(p).clone() for name, p in prepared.named_parameters()}
        for parameter in prepared.parts[0].parameters():
            parameter.grad = torch.ones_like(parameter)
        if mesh.rank == 1:
            _local(next(iter(prepared.parts[0].parameters())).grad).view(-1)[0] = float("inf")
        norm, factor = measure(prepared.parts, mesh, 1.0, prepared.scaler)
        skip = (~norm.isfinite()).float()
        step(optimizer, skip, factor)
        assert prepared.scaler is not None
        prepared.scaler.update(skip)
        kept = all(torch.equal(before[name], _local(p)) for name, p in prepared.named_parameters())
        found.append({"skip": float(skip), "kept": kept, "scale": float(prepared.scaler.scale)})
    return found


def test_an_overflow_on_one_rank_is_skipped_by_all() -> None:
    for rank in gang(2, overflow):
        assert rank == [{"skip": 1.0, "kept": True, "scale": 512.0}] * 4


def fused() -> list[bool]:
    """Fused steps, which mask on the device, against plain ones, for DTensors and for plain tensors."""
    found = []
    for layout in ({"dp": 2}, {"fsdp": 2}, {"tp": 2}, {"fsdp": 1, "pp": 2}):
        mesh = make_mesh(Layout.parse(layout), "cpu")
        weights = [_stepped(layout, mesh, with_fused) for with_fused in (False, True)]
        found.append(all(torch.allclose(a, b, atol=1e-7) for a, b in zip(*weights, strict=True)))
    return found


def _stepped(layout: dict[str, int], mesh: object, with_fused: bool) -> list[Tensor]:
    prepared = prepare(Case("", layout, config=LLAMA), mesh)  # type: ignore[arg-type]
    optimizer = adamw(prepared.parts, OPTIM, fused=with_fused)
    draw = torch.Generator().manual_seed(5)
    for skip, max_norm in ((0.0, 1.0), (1.0, 1.0), (0.0, 1e3), (0.0, None)):
        for parameter in prepared.parts[0].parameters():
            parameter.grad = torch.zeros_like(parameter)
            _local(parameter.grad).copy_(torch.randn(_local(parameter.grad).shape, generator=draw))
        step(optimizer, torch.tensor(skip), measure(prepared.parts, mesh, max_norm)[1])
    _, optim = state_dicts(prepared, optimizer)
    assert {float(value) for name, value in optim.items() if name.endswith(".step")} == {3.0}
    return [_local(parameter).clone() for _, parameter in prepared.named_parameters()]


def test_fused_steps_are_clipped_and_masked_on_the_device() -> None:
    assert gang(2, fused) == [[True] * 4] * 2


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scale", [None, 1024.0])
def test_a_clipped_step_is_that_of_clipped_gradients(fused: bool, scale: float | None) -> None:
    """As PyTorch clips them: first the gradients are multiplied, and then there is a step."""
    mesh, draw = make_mesh(ALONE, "cpu"), torch.Generator().manual_seed(2)
    ours, theirs = nn.Linear(7, 5), nn.Linear(7, 5)
    theirs.load_state_dict(ours.state_dict())
    scaler = Precision("float16", initial_scale=scale).scaler(mesh.device) if scale else None
    settings = OptimSettings(lr=0.1, weight_decay=0.0, eps=0.1)  # so that the size of a gradient matters
    optimizer, plain = adamw([ours], settings, fused=fused), torch.optim.AdamW(
        theirs.parameters(), lr=0.1, betas=settings.betas, eps=0.1, weight_decay=0.0
    )  # fmt: skip
    for _ in range(3):
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.grad = torch.randn(mine.shape, generator=draw)
            mine.grad = other.grad * (scale or 1.0)
        norm, factor = measure([ours], mesh, 0.5, scaler)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), 0.5))
        step(optimizer, torch.zeros(()), factor)
        plain.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    assert not {"grad_scale", "found_inf"} & vars(optimizer).keys()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor.detach()
