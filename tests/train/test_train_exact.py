"""`exact: true`: what it sets and puts back, what it refuses, and that a run over several ranks repeats and resumes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_kit import FAILED, PATIENCE, Run, make_tokens, settings
from torch import Tensor

from gang_kit import gang
from muster.train.errors import NotExact
from muster.train.exact import WORKSPACE, exact
from muster.train.task import Tensors
from muster.train.tasks.language import Language

STEPS, SAVED = 12, 5


@pytest.fixture
def workspace(monkeypatch):
    monkeypatch.setenv(WORKSPACE, "")  # so that it is put back
    monkeypatch.delenv(WORKSPACE)


def test_everything_is_deterministic_within_and_as_before_after_it(workspace):
    def switches():
        cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
        return [
            torch.are_deterministic_algorithms_enabled(), cudnn.deterministic,
            cudnn.benchmark, cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
        ]  # fmt: skip

    before = switches()
    with exact(False):
        assert switches() == before
        assert WORKSPACE not in os.environ
    with exact(True):
        assert switches() == [True, True, False, False, False, True, False]
        assert os.environ[WORKSPACE] == ":4096:8"
    assert switches() == before


def test_an_operation_that_has_no_deterministic_algorithm_is_named(workspace):
    with pytest.raises(NotExact, match=r"exact is on, and put_ has no deterministic algorithm"), exact(True):
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(RuntimeError, match="another"), exact(True):
        raise RuntimeError("another error")


def test_a_workspace_with_which_products_differ_is_refused(workspace, monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with exact(True):
        assert os.environ[WORKSPACE] == ":16:8"
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with pytest.raises(NotExact, match=re.escape("is ':0:0', with which products may differ")), exact(True):
        pass


@dataclass
class Putting(Language):
    """A loss with an operation that may give another result each time."""

    def loss(self, output: Tensor, batch: Tensors) -> Tensor:
        found = super().loss(output, batch)
        return found + torch.zeros(2).put_(torch.tensor([0, 0]), found.detach().expand(2)).sum()


def runs(root: Path) -> dict[str, Any]:
    """One straight on three ranks, one in two parts, one more whose loss can't be exact."""

    def start(name: str, steps: int, world: int, **more: Any) -> Run:
        given = settings(
            root / name, root / "data", steps=steps, exact=True, schedule={"steps": STEPS}, mesh={"dp": world}, **more
        )
        return Run(root / name, given, world).start().end()

    whole, first, second = start("whole", STEPS, 3), start("parts", SAVED, 3), start("parts", STEPS, 3)
    odd = start("odd", STEPS, 1, task="test_train_exact:Putting")
    return {
        "codes": [run.codes for run in (whole, first, second, odd)],
        "curves": [{name: run.metric(name) for name in ("loss", "grad_norm")} for run in (whole, first, second)],
        "odd": odd.printed(),
    }


def test_a_resumed_run_of_three_ranks_is_the_straight_one_and_what_cannot_be_is_refused(tmp_path):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, runs, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [[0] * 3, [0] * 3, [0] * 3, [FAILED]], found["odd"]
    whole, first, second = found["curves"]
    for name, values in whole.items():
        assert sorted(values) == list(range(1, STEPS + 1))
        assert {**first[name], **second[name]} == values, name
        assert min(second[name]) == SAVED + 1
    assert "NotExact: exact is on, and put_ has no deterministic algorithm" in found["odd"]
