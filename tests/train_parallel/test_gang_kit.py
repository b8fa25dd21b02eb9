"""The gang helper itself: results by rank, failures told with their traceback, hangs and deaths bounded."""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist

from gang_kit import GangFailure, gang


def add(value: float) -> tuple[int, float]:
    total = torch.tensor(value * (dist.get_rank() + 1))
    dist.all_reduce(total)
    return dist.get_rank(), float(total)


def fail_on_one() -> None:
    if dist.get_rank() == 1:
        raise ZeroDivisionError("rank one divides")
    dist.barrier()


def die_on_zero() -> None:
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def hang() -> None:
    signal.pause()


def test_each_rank_returns() -> None:
    assert gang(3, add, 2.0) == [(0, 12.0), (1, 12.0), (2, 12.0)]


def test_a_failure_keeps_its_type_and_tells_where() -> None:
    with pytest.raises(ZeroDivisionError, match="rank one divides") as caught:
        gang(2, fail_on_one)
    assert "rank 1 of 2" in caught.value.__notes__[0]
    assert "fail_on_one" in caught.value.__notes__[0]


def test_a_killed_rank_ends_the_gang() -> None:
    with pytest.raises(GangFailure, match=r"exit status by rank \{'0': -9\} of 2"):
        gang(2, die_on_zero)


def test_a_hang_is_bounded_and_says_where_it_stands() -> None:
    with pytest.raises(GangFailure, match="did not end in 1 s") as caught:
        gang(2, hang, timeout=1.0)
    assert "in hang" in str(caught.value)
