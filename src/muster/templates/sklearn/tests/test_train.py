"""The program: each fold is scored and saved, and a second start goes on with the next fold."""

from __future__ import annotations

from pathlib import Path

import pytest

import train

SMALL = ["--samples", "200", "--trees", "5"]


def test_it_scores_saves_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as stopped:
        stopped.setattr(train.runtime, "should_stop", lambda: True)
        train.main(train.parser.parse_args(SMALL))
    train.main(train.parser.parse_args(SMALL))
    printed = capsys.readouterr().out
    assert "asked to stop: 1 of 5 folds are saved" in printed
    assert "continuing after fold 1" in printed
    scores = train.load()
    assert len(scores) == 5
    assert sum(scores) / 5 > 0.6
