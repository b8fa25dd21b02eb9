"""The training program: the checks of `muster preflight`, and that it goes its whole way."""

from __future__ import annotations

from pathlib import Path

import pytest

import train
from muster.train import preflight

SMALL = ["--batch", "64", "--hidden", "16"]


def test_its_gradients_optimizer_and_learning_are_in_order() -> None:
    report = preflight.check(**train.checked(train.parser.parse_args(SMALL)))
    assert report.passed, str(report)


def test_it_trains_saves_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train.main(train.parser.parse_args([*SMALL, "--steps", "2"]))
    train.main(train.parser.parse_args([*SMALL, "--steps", "3"]))
    assert "continuing from step 2" in capsys.readouterr().out
    assert sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir() if folder.is_dir())
