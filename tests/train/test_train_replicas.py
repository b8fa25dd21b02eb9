"""Replicas whose weights differ are found and named, whatever the element, and equal ones are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from loop_kit import FAILED, Run, make_tokens, settings
from torch import nn

from gang_kit import gang
from muster.train import loop
from muster.train.errors import ReplicasDiffer
from muster.train.feed import StepInput
from muster.train.replicas import check_replicas, checksum
from muster.train.session import Session

KINDS = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.complex64)


def model_of(kinds: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)) -> nn.Module:
    torch.manual_seed(5)
    made = nn.Module()
    for number, kind in enumerate(kinds):
        made.register_parameter(f"w{number}", nn.Parameter(torch.randn(7, 5).to(kind), requires_grad=False))
    return made


def flipped(rank: int, index: int) -> str:
    """One bit of one weight of one of three ranks."""
    model = model_of()
    if dist.get_rank() == rank:
        bits = model.w0.data.view(torch.int32)
        bits.view(-1)[index] ^= 1 << (index % 31)
    try:
        check_replicas(model)
    except ReplicasDiffer as error:
        return str(error)
    return ""


def cases() -> list[str]:
    found = [flipped(rank, index) for rank in range(3) for index in (0, 17, 34)]
    found.append(flipped(-1, 0))
    model = model_of()
    model.w1.data += dist.get_rank()  # all differ: nobody can say which is right
    try:
        check_replicas([model])
    except ReplicasDiffer as error:
        found.append(str(error))
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    check_replicas(model, alone)
    check_replicas(nn.ReLU())
    return found


def test_one_bit_on_one_rank_is_found_and_named() -> None:
    for told in gang(3, cases):
        for number, text in enumerate(told[:9]):
            assert text == (
                f"The replicas' weights differ in 1 of 2 tensors (w0): rank {number // 3} is unlike the others."
            )
        assert told[9] == ""
        assert told[10] == "The replicas' weights differ in 1 of 2 tensors (w1): ranks [0, 1, 2] do not agree."


@pytest.mark.parametrize("kind", KINDS)
def test_a_checksum_sees_bits_and_not_values(kind: torch.dtype) -> None:
    one = torch.arange(12).to(kind)
    other = one.clone()
    assert torch.equal(checksum(one), checksum(other))
    other[3] = 0
    assert not torch.equal(checksum(one), checksum(other))
    assert not torch.equal(checksum(torch.tensor([0.0])), checksum(torch.tensor([-0.0])))
    if kind.is_complex:
        return
    swapped = one.clone()
    swapped[4], swapped[5] = one[5], one[4]
    assert not torch.equal(checksum(one), checksum(swapped))


def test_without_a_gang_there_is_nothing_to_compare() -> None:
    check_replicas(nn.Linear(2, 2))


def damaged(root: Path, data: Path) -> dict[str, tuple[list[int], str, list[str]]]:
    """Runs of two replicas by policy: how they ended, what they printed and noted. One bit of one changes in step 3."""
    step = loop.one_step

    def faulty(run: Session, turn: StepInput) -> None:
        step(run, turn)
        if run.step == 3 and dist.get_rank() == 1:
            next(run.prepared.parts[0].parameters()).data.view(torch.int32).view(-1)[11] ^= (
                1 << 20
            )  # the next update would round a lower bit away

    loop.one_step = faulty
    found = {}
    for policy in ("off", "note", "stop"):
        guards = {"replicas": policy, "replicas_every": 2}
        config = settings(root / policy, data, steps=8, mesh={"dp": 2}, guards=guards, checkpoint={"at_end": False})
        run = Run(root / policy, config, world=2).start().end()
        found[policy] = run.codes, run.printed(), run.notes()
    return found


def test_a_run_notes_it_once_or_stops(tmp_path: Path) -> None:
    (found,) = gang(1, damaged, tmp_path, make_tokens(tmp_path / "tokens"), group=False)
    assert found["off"][0] == [0, 0]
    assert not any("replicas" in note for note in found["off"][2])
    codes, _, notes = found["note"]
    told = [note for note in notes if "replicas" in note]
    assert (codes, len(told)) == ([0, 0], 1)
    assert told[0].startswith("guard (note): at step 4 The replicas' weights differ in 1 of ")
    codes, printed, _ = found["stop"]
    assert codes == [FAILED, FAILED]
    assert "ReplicasDiffer: The replicas' weights differ" in printed
