"""Every combination that is offered trains as one process does: losses, gradient norms, weights and Adam's state.

The cases of one number of processes run in one gang, one after another. The reference is plain PyTorch, with nothing of
what is tested here but the model. Tolerances are stated in `equal_kit.Tolerance`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

import pytest
from equal_kit import DEEP, GPT2, LLAMA, TIED, VISION, Case, Outcome, differences, divided_all, merge, plain

from gang_kit import GangFailure, gang
from muster.train.parallel import ParallelSettings

LIMIT = 480.0  # seconds for all cases of a gang
S = ParallelSettings
Schedule = Literal["gpipe", "1f1b", "interleaved"]
SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved")
ODD = replace(LLAMA, vocab=61, ffn=50, layers=3)  # nothing divides evenly but the heads
DEEP_ODD = replace(ODD, layers=5)
WIDE = replace(LLAMA, kv_heads=4)

ONE = [
    Case("alone"),
    Case("alone, clipped", max_norm=0.5, meta=False),
    Case("alone, 4 micro-batches", micros=4, max_norm=0.5),
    Case("alone, full", settings=S(checkpointing="full"), micros=2),
    Case("alone, selective", settings=S(checkpointing="selective"), config=GPT2),
]
TWO = [
    Case("dp", {"dp": 2}),
    Case("dp, accumulated", {"dp": 2}, S(bucket_mb=1), micros=4, max_norm=0.5),
    Case("dp, selective", {"dp": 2}, S(checkpointing="selective"), config=TIED, micros=2),
    Case("fsdp", {"fsdp": 2}, meta=False),
    Case("fsdp, accumulated", {"fsdp": 2}, micros=4, max_norm=0.5),
    Case("fsdp, reduced once", {"fsdp": 2}, S(defer_reduce=True, reshard=False), micros=4, max_norm=0.5),
    Case("fsdp, full, tied", {"fsdp": 2}, S(checkpointing="full"), config=replace(GPT2, tied=True)),
    Case("fsdp, selective, odd", {"fsdp": 2}, S(checkpointing="selective"), config=ODD, max_norm=0.5),
    Case("fsdp, offload", {"fsdp": 2}, S(offload=True), micros=2, max_norm=0.5),
    Case("tp", {"tp": 2}, max_norm=0.5),
    Case("tp, odd", {"tp": 2}, config=ODD, meta=False),
    Case("tp, full, GPT-2, tied", {"tp": 2}, S(checkpointing="full"), config=replace(GPT2, tied=True), micros=2),
    Case("tp, sequence, selective", {"tp": 2}, S(sequence=True, checkpointing="selective"), max_norm=0.5),
    Case("tp, sequence, GPT-2", {"tp": 2}, S(sequence=True), config=GPT2, micros=2, max_norm=0.5),
    Case("tp, images", {"tp": 2}, config=VISION, max_norm=0.5),
    *(Case(f"pp, {each}", {"pp": 2}, S(schedule=each), config=DEEP, micros=4, max_norm=0.5) for each in SCHEDULES),
    Case("pp, 1f1b, full, odd", {"pp": 2}, S(checkpointing="full"), config=DEEP_ODD, micros=2, meta=False),
    Case(
        "pp, interleaved, selective",
        {"pp": 2},
        S(schedule="interleaved", checkpointing="selective"),
        config=DEEP,
        micros=2,
    ),
    Case("pp, images", {"pp": 2}, config=VISION, micros=2),
]
THREE = [  # the batch does not divide by them, as when a gang of four has lost a node
    Case("dp 3, uneven", {"dp": 3}, max_norm=0.5),
    Case("dp 3, uneven, accumulated", {"dp": 3}, micros=2, max_norm=0.5),
    Case("fsdp 3, uneven", {"fsdp": 3}, config=ODD, micros=2, max_norm=0.5),
]
FOUR = [
    Case("dp 4", {"dp": 4}, micros=2, max_norm=0.5),
    Case("fsdp 4", {"fsdp": 4}, config=ODD, max_norm=0.5),
    Case("tp 4, sequence", {"tp": 4}, S(sequence=True), config=WIDE, max_norm=0.5),
    Case("pp 4, gpipe", {"pp": 4}, S(schedule="gpipe"), config=DEEP, micros=2, max_norm=0.5),
    Case("pp 4, 1f1b", {"pp": 4}, config=DEEP, micros=8, max_norm=0.5),
    Case("dp x fsdp", {"dp": 2, "fsdp": 2}, micros=2, max_norm=0.5),
    Case("dp x fsdp, reduced once", {"dp": 2, "fsdp": 2}, S(defer_reduce=True), micros=2, max_norm=0.5),
    Case("dp x fsdp, offload", {"dp": 2, "fsdp": 2}, S(offload=True), micros=2, max_norm=0.5),
    Case("dp x tp", {"dp": 2, "tp": 2}, micros=2, max_norm=0.5),
    Case("dp x tp, sequence, full", {"dp": 2, "tp": 2}, S(sequence=True, checkpointing="full"), max_norm=0.5),
    Case("fsdp x tp", {"fsdp": 2, "tp": 2}, micros=2, max_norm=0.5),
    Case("fsdp x tp, odd, offload", {"fsdp": 2, "tp": 2}, S(offload=True), config=ODD, max_norm=0.5),
    Case(
        "fsdp x tp, sequence, selective, tied",
        {"fsdp": 2, "tp": 2},
        S(sequence=True, checkpointing="selective"),
        config=replace(GPT2, tied=True),
        max_norm=0.5,
    ),
    *(
        Case(f"dp x pp, {each}", {"dp": 2, "pp": 2}, S(schedule=each), config=DEEP, micros=4, max_norm=0.5)
        for each in SCHEDULES
    ),
    *(
        Case(f"fsdp x pp, {each}", {"fsdp": 2, "pp": 2}, S(schedule=each), config=DEEP, micros=4, max_norm=0.5)
        for each in SCHEDULES
    ),
    *(
        Case(f"tp x pp, {each}", {"tp": 2, "pp": 2}, S(schedule=each), config=DEEP, micros=4, max_norm=0.5)
        for each in SCHEDULES
    ),
    Case(
        "fsdp x pp, offload, full", {"fsdp": 2, "pp": 2}, S(offload=True, checkpointing="full"), config=DEEP, micros=2
    ),
    Case(
        "tp x pp, sequence, selective",
        {"tp": 2, "pp": 2},
        S(sequence=True, schedule="interleaved", checkpointing="selective"),
        config=DEEP,
        micros=4,
        max_norm=0.5,
    ),
]
EIGHT = [
    Case("dp x tp x pp", {"dp": 2, "tp": 2, "pp": 2}, config=DEEP, micros=2, max_norm=0.5),
    Case("dp x fsdp x tp", {"dp": 2, "fsdp": 2, "tp": 2}, S(sequence=True), micros=2, max_norm=0.5),
    Case("dp x fsdp x pp", {"dp": 2, "fsdp": 2, "pp": 2}, S(schedule="gpipe"), config=DEEP, micros=2, max_norm=0.5),
    Case(
        "fsdp x tp x pp",
        {"fsdp": 2, "tp": 2, "pp": 2},
        S(sequence=True, schedule="interleaved", checkpointing="full"),
        config=DEEP_ODD,
        micros=2,
        max_norm=0.5,
    ),
]
CASES = {1: ONE, 2: TWO, 3: THREE, 4: FOUR, 8: EIGHT}
COMPILED = [
    Case("fsdp, compiled", {"fsdp": 2}, S(compile=True, checkpointing="selective")),
    Case("tp, compiled", {"tp": 2}, S(compile=True, sequence=True, checkpointing="full"), max_norm=0.5),
]


@pytest.mark.parametrize(
    ("world", "number"),
    [
        pytest.param(world, number, id=f"{world}: {case.name}")
        for world, cases in CASES.items()
        for number, case in enumerate(cases)
    ],
)
def test_as_one_process(world: int, number: int) -> None:
    case = CASES[world][number]
    assert not differences(_outcomes(world)[number], plain(case))


@pytest.mark.parametrize("number", range(len(COMPILED)), ids=[case.name for case in COMPILED])
def test_compiled_as_one_process(number: int) -> None:
    assert not differences(_compiled()[number], plain(COMPILED[number]))


def test_every_rank_of_a_gang_tells_the_same() -> None:
    """Guards decide by loss and norm on each rank alone: one bit apart, and the gang would part."""
    for outcomes in zip(*_gang(4), strict=True):
        for outcome in outcomes[1:]:
            assert (outcome.losses, outcome.norms) == (outcomes[0].losses, outcomes[0].norms)


def _gang(world: int) -> list[list[Outcome]]:
    found = _ran(world)
    if isinstance(found, GangFailure):
        raise found
    return found


@cache
def _ran(world: int) -> list[list[Outcome]] | GangFailure:
    """A gang that hangs is not started again for each of its cases."""
    try:
        return gang(world, divided_all, CASES[world], timeout=LIMIT)
    except GangFailure as failure:
        return failure


@cache
def _outcomes(world: int) -> list[Outcome]:
    return [merge(list(outcomes)) for outcomes in zip(*_gang(world), strict=True)]


@cache
def _compiled() -> list[Outcome]:
    return [merge(list(outcomes)) for outcomes in zip(*gang(2, divided_all, COMPILED, timeout=LIMIT), strict=True)]
