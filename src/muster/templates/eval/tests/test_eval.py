"""The evaluation: what it measures of an untrained model is known, and a checkpoint is read back."""

from __future__ import annotations

import math
import re
from pathlib import Path

import eval as program
import pytest
import torch
from grammar import ALPHABET
from model import Config, Transformer

SMALL = ["--batches", "2", "--batch", "8"]


def test_an_untrained_model_guesses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("CHECKPOINT", raising=False)
    program.main(program.parser.parse_args(SMALL))
    found = re.search(r"step 0: loss ([\d.]+)", capsys.readouterr().out)
    assert found
    assert float(found[1]) == pytest.approx(math.log(len(ALPHABET)), rel=0.1)


def test_a_checkpoint_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(len(ALPHABET), context=16, dim=16, layers=1, heads=2)
    state = {"step": 7, "config": config.to_dict(), "model": Transformer(config).state_dict()}
    torch.save(state, tmp_path / "state.pt")
    model, step = program.load(str(tmp_path))
    assert step == 7
    assert all(torch.equal(value, state["model"][name]) for name, value in model.state_dict().items())


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no state\.pt"):
        program.load(str(tmp_path))
