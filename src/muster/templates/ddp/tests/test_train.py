"""The training program: the checks of `muster preflight`, and that it goes its whole way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

import train
from muster.train import preflight

SMALL = ["--batch", "4", "--context", "16", "--dim", "32", "--layers", "1", "--heads", "2", "--characters", "2000"]


@pytest.fixture(autouse=True)
def _no_group_is_left() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_its_gradients_order_in_time_and_learning_are_in_order() -> None:
    report = preflight.check(**train.checked(train.parser.parse_args(SMALL)))
    assert report.passed, str(report)


def test_it_trains_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train.main(train.parser.parse_args([*SMALL, "--steps", "2"]))
    assert list(tmp_path.rglob("state.pt"))


def test_ranks_share_a_step_and_no_window_is_read_twice() -> None:
    args = train.parser.parse_args(SMALL)
    data = train.characters(args.characters, args.seed)
    alone = train.parser.parse_args([*SMALL, "--batch", "8"])
    both = [train.batch(data, args, 3, rank, 2) for rank in (0, 1)]
    assert [row.tolist() for part in both for row in part] == train.batch(data, alone, 3, 0, 1).tolist()
