"""Compiled blocks, most with tensor parallelism: combinations train as one process does, by one graph for all blocks.

`test_parallel_equal` has the cases of whole compilation. Here no code is generated from the graphs, which takes half of
the time and changes nothing in what can fail: tracing, and the passes through the graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from unittest.mock import patch

import pytest
import torch
from equal_kit import DEEP, GPT2, LLAMA, VISION, Case, Outcome, differences, divided, divided_all, merge, plain

from gang_kit import gang
from muster.train.parallel import ParallelSettings

LIMIT = 480.0  # seconds for all cases of a gang
S = partial(ParallelSettings, compile=True)

TWO = [
    Case("pp", {"pp": 2}, S(), micros=2),
    Case("dp, full", {"dp": 2}, S(checkpointing="full")),
    Case("tp, full, GPT-2, tied", {"tp": 2}, S(checkpointing="full"), config=replace(GPT2, tied=True), micros=2),
    Case("tp, images", {"tp": 2}, S(), config=VISION, max_norm=0.5),
]
FOUR = [
    Case("fsdp x tp, sequence, selective", {"fsdp": 2, "tp": 2}, S(sequence=True, checkpointing="selective")),
    Case(
        "tp x pp, sequence, full",
        {"tp": 2, "pp": 2},
        S(sequence=True, schedule="interleaved", checkpointing="full"),
        config=DEEP,
        micros=2,
    ),
]
CASES = {2: TWO, 4: FOUR}
MANY = Case("", {"tp": 2}, S(sequence=True, checkpointing="full"), config=replace(LLAMA, layers=12))


@pytest.mark.parametrize(
    ("world", "number"),
    [
        pytest.param(world, number, id=f"{world}: {case.name}")
        for world, cases in CASES.items()
        for number, case in enumerate(cases)
    ],
)
def test_as_one_process(world: int, number: int) -> None:
    assert not differences(_outcomes(world)[number], plain(CASES[world][number]))


def test_all_blocks_share_a_graph_of_one_piece() -> None:
    """A graph for each block would pass the limit of recompilations, and later blocks would run as they are."""
    assert gang(2, counted) == [(4, 0)] * 2  # of a block and of the last norm, in training and in evaluation


def traced(cases: list[Case]) -> list[Outcome]:
    with _graphs_alone():
        return divided_all(cases)


def counted() -> tuple[int, int]:
    """Graphs, and breaks in them."""
    from torch._dynamo.utils import counters  # noqa: PLC0415

    with _graphs_alone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own modules, when they are first imported
        divided(MANY)
    return counters["stats"]["unique_graphs"], len(counters["graph_break"])


@contextmanager
def _graphs_alone() -> Iterator[None]:
    with patch.object(torch, "compile", partial(torch.compile, backend="aot_eager")):
        yield


@cache
def _outcomes(world: int) -> list[Outcome]:
    return [merge(list(each)) for each in zip(*gang(world, traced, CASES[world], timeout=LIMIT), strict=True)]
