"""State under full names: what one layout gives another takes up, and training goes on as if nothing had happened."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from equal_kit import DEEP, GPT2, OPTIM, STEPS, Case, Outcome, batches, differences, plain, prepare, train_step
from torch import Tensor
from torch.distributed.tensor import DTensor

from gang_kit import gang
from muster.train.errors import CheckpointMismatch
from muster.train.mesh import Layout, make_mesh
from muster.train.optim import adamw
from muster.train.parallel import ParallelSettings, load_state_dicts, state_dicts

S = ParallelSettings
HALF = STEPS // 2
FROM = Case("from", {"fsdp": 2, "tp": 2}, S(sequence=True), config=DEEP, max_norm=0.5)
INTO = [
    Case("alone", config=DEEP),
    Case("dp", {"dp": 4}, config=DEEP),
    Case("fsdp", {"fsdp": 4}, config=DEEP),
    Case("dp x fsdp", {"dp": 2, "fsdp": 2}, config=DEEP),
    Case("dp x tp", {"dp": 2, "tp": 2}, config=DEEP),
    Case("tp x pp", {"tp": 2, "pp": 2}, S(schedule="interleaved"), config=DEEP, micros=2),
    Case("fsdp x pp", {"fsdp": 2, "pp": 2}, config=DEEP, micros=2),
]


def first_half() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Half of the steps in one layout; its state, whole."""
    prepared = prepare(FROM, make_mesh(Layout.parse(FROM.layout), "cpu"))
    optimizer = adamw(prepared.parts, OPTIM)
    for tokens, targets in batches(FROM.config)[:HALF]:
        train_step(prepared, optimizer, FROM, tokens, targets)
    model, optim = state_dicts(prepared, optimizer)
    return _full(model), _full(optim)


def second_half(cases: list[Case], saved: bytes) -> list[tuple[list[float], dict[str, Tensor], dict[str, Tensor]]]:
    """The other half in other layouts, each from that state."""
    found = []
    model, optim = torch.load(io.BytesIO(saved))
    for case in cases:
        prepared = prepare(case, make_mesh(Layout.parse(case.layout), "cpu"))
        optimizer = adamw(prepared.parts, OPTIM)
        load_state_dicts(prepared, optimizer, model, optim)
        losses = [
            float(train_step(prepared, optimizer, replace(case, max_norm=0.5), *batch)[0])
            for batch in batches(case.config)[HALF:STEPS]
        ]
        ours, states = state_dicts(prepared, optimizer)
        found.append((losses, _full(ours), _full(states)))
    return found


@pytest.mark.parametrize("number", range(len(INTO)), ids=[case.name for case in INTO])
def test_goes_on_in_another_layout(number: int) -> None:
    reference = plain(replace(FROM, layout={}))
    ranks = [rank[0] for rank in _alone()] if number == 0 else [rank[number - 1] for rank in _others()]
    weights: dict[str, Tensor] = {}
    optim: dict[str, Tensor] = {}
    for _, some, states in ranks:
        weights |= some
        optim |= states
    went_on = Outcome(reference.losses[:HALF] + ranks[0][0], reference.norms, reference.held_out, weights, optim)
    assert not differences(went_on, reference)


def test_keys_are_names_of_the_whole_model() -> None:
    prepared = prepare(Case("", config=GPT2), make_mesh(Layout(), "cpu"))
    model, optim = state_dicts(prepared, adamw(prepared.parts, OPTIM))
    assert "blocks.1.attention.q.weight" in model
    assert not [name for name in model if "table" in name]  # computed, not saved
    assert set(optim) == {f"{name}.{state}" for name in model for state in ("step", "exp_avg", "exp_avg_sq")}


def test_writing_into_a_state_changes_what_is_trained() -> None:
    prepared = prepare(Case(""), make_mesh(Layout(), "cpu"))
    optimizer = adamw(prepared.parts, OPTIM)
    model, optim = state_dicts(prepared, optimizer)
    model["norm.weight"].fill_(3.0)
    optim["norm.weight.exp_avg"].fill_(2.0)
    parameter = dict(prepared.named_parameters())["norm.weight"]
    assert parameter.unique().tolist() == [3.0]
    assert optimizer.state[parameter]["exp_avg"].unique().tolist() == [2.0]


def test_the_state_of_another_model_is_refused() -> None:
    mesh = make_mesh(Layout(), "cpu")
    small = prepare(Case(""), mesh)
    other = prepare(Case("", config=replace(DEEP, ffn=40)), mesh)
    with pytest.raises(CheckpointMismatch, match=r"missing blocks\.2\..*\(18 in all\)"):
        load_state_dicts(prepare(Case("", config=DEEP), mesh), None, state_dicts(small)[0])
    with pytest.raises(CheckpointMismatch, match=r"ffn\.gate\.weight is \[40, 32\], expected \[48, 32\]"):
        load_state_dicts(prepare(Case("", config=DEEP), mesh), None, state_dicts(other)[0])


def _full(state: dict[str, Any]) -> dict[str, Tensor]:
    return {name: value.full_tensor() if isinstance(value, DTensor) else value.clone() for name, value in state.items()}


@cache
def _saved() -> bytes:
    """As bytes, as a file would have it: tensors of a checkpoint share nothing with what is trained."""
    file = io.BytesIO()
    torch.save(gang(4, first_half)[0], file)
    return file.getvalue()


@cache
def _alone() -> list[Any]:
    return [second_half(INTO[:1], _saved())]


@cache
def _others() -> list[Any]:
    return gang(4, second_half, INTO[1:], _saved())
