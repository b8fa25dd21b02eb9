"""A checkpoint in a single safetensors file, for hand-over, by one process without a process group."""

from __future__ import annotations

import pytest
import torch
from ckpt_kit import save, snapshot

from muster.train.checkpoint import Saver, Snapshot, export, newest
from muster.train.errors import CheckpointError
from muster.train.models import safetensors


def test_the_model_and_nothing_else(tmp_path):
    save(tmp_path / "c", 3)
    path = export(newest(tmp_path / "c"), tmp_path / "model.safetensors")
    state = safetensors.read_folder(tmp_path)
    expected = snapshot(3).model
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        assert state[name].dtype == value.dtype
        assert torch.equal(state[name], value), name
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == [path.name]


def test_in_another_precision(tmp_path):
    save(tmp_path / "c", 3)
    export(newest(tmp_path / "c"), tmp_path / "model.safetensors", dtype=torch.float16)
    state = safetensors.read_folder(tmp_path)
    assert torch.equal(state["embed.weight"], snapshot(3).model["embed.weight"].half())
    assert state["steps"].dtype == torch.int64


def test_without_a_model_it_says_so(tmp_path):
    with Saver(tmp_path) as saver:
        saver.save(Snapshot({}, {"a": torch.ones(1)}, {}, {"step": 1}), wait=True)
    with pytest.raises(CheckpointError, match="has no model to export"):
        export(newest(tmp_path), tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()
