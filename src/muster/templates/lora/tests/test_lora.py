"""The fine-tuning: what `muster preflight` checks, that the base stays as it is, and what is saved and exported."""

from __future__ import annotations

from pathlib import Path

import base
import pytest
import torch
from lora import adapters, merged
from model import Config

import train
from muster.train import preflight

TINY = Config(base.SMALL.vocab, context=24, dim=64, layers=2)
ARGS = train.parser.parse_args(["--batch", "4", "--rank", "8", "--steps", "3"])


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a base that was trained elsewhere."""
    monkeypatch.chdir(tmp_path)
    torch.save(base.made(TINY, steps=60), tmp_path / "state.pt")
    monkeypatch.setenv("BASE", str(tmp_path / "state.pt"))
    return tmp_path


def test_its_gradients_optimizer_order_in_time_and_learning_are_in_order() -> None:
    report = preflight.check(**train.checked(ARGS))
    assert report.passed, str(report)


def test_only_adapters_are_trained_and_saved_and_the_export_computes_the_same(place: Path) -> None:
    train.main(ARGS)
    (newest,) = place.rglob("checkpoints/*/state.pt")
    saved = torch.load(newest, weights_only=True)
    assert saved["step"] == 3
    assert all(name.endswith(("adapter_down", "adapter_up")) for name in saved["adapters"])
    model, optimizer = train.build(ARGS)
    assert train.load(model, optimizer) == 3
    frozen = {name.replace(".frozen", ""): each for name, each in model.state_dict().items() if "adapter" not in name}
    original = torch.load(place / "state.pt", weights_only=True)["model"]
    assert all(torch.equal(each, original[name]) for name, each in frozen.items())
    window = train.dialect(2, TINY.context, 5)
    plain = merged(model)
    assert not adapters(plain)
    assert torch.allclose(plain(window[:, :-1]), model(window[:, :-1]), atol=1e-5)
    assert [file.name for file in (place / "export").iterdir()] in (["model.safetensors"], ["model.pt"])


def test_the_base_of_the_first_attempt_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = base.find().state_dict()
    (place / "state.pt").unlink()
    monkeypatch.delenv("BASE")
    assert all(torch.equal(each, first[name]) for name, each in base.find().state_dict().items())
