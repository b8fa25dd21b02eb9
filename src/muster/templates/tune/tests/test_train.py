"""A trial: its gradient is the slope of the loss, and it goes its whole way; and the study fits the job."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import train

ROOT = Path(__file__).parents[1]


def test_its_gradient_is_the_slope_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    args = train.parser.parse_args([])
    assert train.own_checks(args).passed
    right = train.gradient
    monkeypatch.setattr(train, "gradient", lambda w, x, y: {n: 1.01 * slope for n, slope in right(w, x, y).items()})
    assert not train.own_checks(args).passed


def test_it_trains_saves_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train.main(train.parser.parse_args(["--steps", "20"]))
    train.main(train.parser.parse_args(["--steps", "30"]))
    assert "continuing from step 20" in capsys.readouterr().out


def test_what_the_study_searches_over_is_what_the_job_takes() -> None:
    study, job = (yaml.safe_load((ROOT / name).read_text()) for name in ("study.yaml", "job.yaml"))
    assert {name.upper() for name in study["space"]} <= set(job["envs"])
