"""Judges of diagnoses as pure functions: faults that this machine can't have, what is healthy, and what never fails."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.stacks import RankStacks, StackFrame, ThreadStack
from muster.cli import main, nodes, runs
from muster.monitor.diagnose import JUDGES, diagnose, looked_at, missing, outcome, verdict
from muster.monitor.diagnose.devices import single_precision
from muster.monitor.diagnose.divergence import departure
from muster.monitor.diagnose.evidence import Evidence, RankFigures, Save, Series, SlowRanks, bounds
from muster.monitor.diagnose.finding import Finding
from muster.monitor.diagnose.samples import Samples, activity_of, sampled

VERBS = {verb.name for verb in main.VERBS}
BELOW = {
    "nodes": {one.callback.__name__ for one in nodes.app.registered_commands if one.callback is not None},
    "runs": {verb.name for verb in runs.VERBS},
}
TORCH = "/venv/lib/python3.12/site-packages/torch"
IN_MODEL = [("forward", f"{TORCH}/nn/modules/linear.py", 125), ("step", "/job/train.py", 30)]
IN_ITEM = [("step", "/job/train.py", 31, "item")]
IN_LOADER = [("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 54), ("main", "/job/train.py", 12)]
IN_REDUCE = [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 2800), ("main", "/job/train.py", 40)]
BUSY = RankFigures(
    0, cpu=1.0, device_use=0.97, memory_share=0.8, throttled=0.0, temperature=60, clock=1900, clock_best=1980
)
GPU = Evidence(job="gpt-1", running=True, accelerators=1, accelerator="NVIDIA H100 80GB HBM3", cpus=8.0, ranks=[BUSY])


def frame(function: str, file: str, line: int, call: str = "") -> StackFrame:
    return {"function": function, "file": file, "line": line, **({"call": call} if call else {})}  # type: ignore[typeddict-item]


def thread(frames: list[Any], state: str = "running") -> ThreadStack:
    return {"name": "python", "main": True, "state": state, "wait": "", "frames": [frame(*one) for one in frames]}


def look(*stacks: list[Any], at: float = 0.0, state: str = "running") -> list[RankStacks]:
    return [
        {
            "rank": rank, "time": at, "problem": "",
            "processes": [
                {"pid": 1, "name": "python", "source": "py-spy", "problem": "", "threads": [thread(one, state)]}
            ],
        }
        for rank, one in enumerate(stacks)
    ]  # fmt: skip


def looks(count: int, *stacks: list[Any]) -> Samples:
    return sampled(look(*stacks, at=3.0 * number) for number in range(count))


def first(evidence: Evidence) -> Finding:
    found = diagnose(evidence)
    assert found, looked_at(evidence)
    return found[0]


def stated(**seconds: float) -> dict[str, Any]:
    return {"times": seconds, "stated": frozenset(("training", "data", "saving"))}


SMALL = replace(BUSY, device_use=0.4, memory_share=0.1)
HOT = replace(BUSY, throttled=0.6, temperature=88.0, clock=1200.0)
NORM = Series("grad_norm", range(1, 161), [1.0 + 0.01 * (step % 7) for step in range(1, 120)] + [9.0] * 41)
FAULTS: dict[str, Evidence] = {
    "hang": replace(GPU, hung="no step since 300 s; rank 3 is behind"),
    "divergence": replace(GPU, norms=NORM),
    "slow_rank": replace(GPU, world=2, slow=SlowRanks((3,), 0.4, True, "rank 3 works 62% longer")),
    "loader": replace(GPU, **stated(training=60.0, data=40.0)),
    "saving": replace(GPU, **stated(training=80.0, saving=20.0), saves=[Save(n, 10.0 * n, 2.0) for n in range(10)]),
    "synchronisation": replace(GPU, ranks=[SMALL], samples=looks(20, IN_ITEM)),
    "communication": replace(GPU, world=2, samples=looks(20, IN_REDUCE, IN_REDUCE)),
    "thermal": replace(GPU, ranks=[BUSY, HOT]),
    "precision": replace(GPU, params={"precision": "fp32"}),
    "small_batch": replace(GPU, ranks=[SMALL], samples=looks(20, IN_MODEL), params={"batch_size": "4"}),
    "waiting": Evidence(job="x", ranks=[RankFigures(0, cpu=0.01)], samples=sampled(
        look([("poll", "/job/train.py", 3)], at=3.0 * n, state="sleeping") for n in range(10))),
}  # fmt: skip
HEALTHY = {
    "busy device": replace(GPU, **stated(training=95.0, data=3.0, saving=2.0), params={"precision": "bf16"}),
    "host waits for a busy device": replace(GPU, samples=looks(20, IN_ITEM)),
    "busy in its framework": replace(GPU, samples=looks(20, IN_MODEL)),
    "fp32 where nothing is known of the device": Evidence(params={"precision": "fp32"}, samples=looks(9, IN_MODEL)),
    "fp32 on an idle device": replace(GPU, ranks=[replace(BUSY, device_use=0.2)], params={"precision": "fp32"}),
    "low use, and what the host does is not known": replace(GPU, ranks=[SMALL], **stated(training=99.0, data=1.0)),
    "low use, and the host is busy with its own work": replace(
        GPU, ranks=[SMALL], samples=looks(20, [("simulate", "/job/game.py", 9)])
    ),
    "a few looks in the loader": replace(GPU, samples=sampled([*[look(IN_LOADER)] * 2, *[look(IN_MODEL)] * 18])),
    "a spike that came back": replace(
        GPU, norms=Series("grad_norm", range(100), [*[1.0] * 60, *[9.0] * 6, *[1.0] * 34])
    ),
    "a spike that settled a little higher": replace(
        GPU, norms=Series("grad_norm", range(100), [*[1.0] * 60, *[9.0] * 6, *[1.8] * 34])
    ),
    "a new level of the norm while the loss falls": replace(
        GPU, norms=NORM, losses=Series("loss", range(1, 161), [3.0 - 0.01 * step for step in range(160)])
    ),
    "weak evidence for a slow rank": replace(GPU, world=2, slow=SlowRanks((1,), 0.5, False, "by CPU time")),
}


def test_every_judge_has_its_fault() -> None:
    assert FAULTS.keys() == JUDGES.keys()


@pytest.mark.parametrize("cause", FAULTS)
def test_a_fault_is_named_first_and_its_finding_is_whole(cause: str) -> None:
    found = first(FAULTS[cause])
    assert found.cause == cause
    assert found.text.endswith(".")
    assert 0 < found.share <= 1
    assert 0.6 <= found.confidence <= 1
    assert all(found.evidence)
    assert any(any(one.isdigit() for one in line) for line in found.evidence)
    assert found.change
    for command in found.commands:
        program, verb, *rest = shlex.split(command)
        assert (program, verb in VERBS) == ("muster", True), command
        assert verb not in BELOW or not rest or rest[0] in BELOW[verb], command


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_healthy_has_no_finding(name: str) -> None:
    assert diagnose(HEALTHY[name]) == []


def test_a_backward_pass_in_the_devices_own_thread_counts_as_giving_it_work() -> None:
    asleep = [("_engine_run_backward", f"{TORCH}/autograd/graph.py", 869), ("step", "/job/train.py", 30)]
    samples = sampled(
        look(asleep if n % 2 else IN_MODEL, at=3.0 * n, state="sleeping" if n % 2 else "running") for n in range(20)
    )
    assert first(replace(GPU, ranks=[SMALL], samples=samples)).cause == "small_batch"


def test_idle_devices_without_a_cause_are_not_called_healthy() -> None:
    idle = HEALTHY["low use, and the host is busy with its own work"]
    assert verdict(idle, diagnose(idle)).startswith("Don't know: its devices are in use 40% of the time")
    busy = HEALTHY["busy device"]
    assert verdict(busy, diagnose(busy)).startswith("Healthy")


def test_nothing_known_is_not_healthy() -> None:
    assert diagnose(Evidence()) == []
    assert verdict(Evidence(), []).startswith("Don't know")
    assert len(missing(Evidence(accelerators=1))) == 4
    assert verdict(HEALTHY["busy device"], []).startswith("Healthy")


def test_the_first_step_off_the_path_is_named_with_what_changed() -> None:
    rate = Series("lr", range(1, 161), [3e-4 if step < 118 else 3e-3 for step in range(1, 161)])
    found = first(replace(GPU, norms=NORM, rate=rate, changes=[(119, "attempt 2 began"), (10, "attempt 1 began")]))
    text = "\n".join(found.evidence)
    assert "left its path at step 120" in text
    assert "attempt 2 began at step 119" in text
    assert "lr rose from 0.0003 to 0.003 at step 118" in text
    assert "attempt 1" not in text


def test_a_curve_that_becomes_nan_left_its_path_there() -> None:
    left = departure(Series("loss", range(60), [2.0] * 50 + [float("nan")] * 10))
    assert left is not None
    assert left[0] == 50


def test_one_rank_behind_is_told_from_communication_by_who_waits() -> None:
    work = [("decode", "/job/train.py", 22)]
    behind = replace(GPU, world=3, samples=looks(10, IN_REDUCE, IN_REDUCE, work))
    found = diagnose(behind)
    assert [one.cause for one in found] == ["slow_rank"]
    assert "rank 2 is most often in decode at train.py:22" in found[0].evidence
    backward = [("_engine_run_backward", f"{TORCH}/autograd/graph.py", 865), ("main", "/job/train.py", 41)]
    asleep = sampled([[*look(backward, state="sleeping"), {**look(work)[0], "rank": 1}]] * 10)
    assert first(Evidence(world=2, samples=asleep)).cause == "slow_rank"  # as DDP waits on CPUs
    on_devices = replace(GPU, world=2, samples=asleep)  # there a backward pass sleeps in any case
    assert (diagnose(on_devices), outcome(on_devices, [])) == ([], "unknown")
    assert any("rank 1 is busy in decode" in line for line in missing(on_devices))
    unseen = replace(behind, world=4)  # the rank that was not seen may be the slow one
    assert diagnose(unseen) == []


@pytest.mark.parametrize(
    ("frames", "state", "activity"),
    [
        (IN_LOADER, "sleeping", "data"),
        (IN_REDUCE, "sleeping", "communication"),
        (IN_ITEM, "running", "synchronisation"),
        (IN_MODEL, "running", "framework"),
        ([("save", f"{TORCH}/serialization.py", 900), *IN_REDUCE], "sleeping", "saving"),
        ([("load", f"{TORCH}/serialization.py", 900), ("main", "/job/train.py", 4)], "sleeping", "framework"),
        ([("wait", "/job/train.py", 4)], "sleeping", "asleep"),
        ([("main", "/home/ada/grain/train.py", 4)], "running", "other"),  # a folder with the name of a package
    ],
)
def test_activities_are_known_by_frames(frames: list[Any], state: str, activity: str) -> None:
    assert activity_of(thread(frames, state)) == activity


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"precision": "fp32"}, "precision=fp32"),
        ({"mixed_precision": "no", "bf16": "True"}, "mixed_precision=no"),
        ({"bf16": "False", "fp16": "False"}, "bf16=False, fp16=False"),
        ({"bf16": "True", "fp16": "False"}, None),
        ({"dtype": "bfloat16"}, None),
        ({"lr": "32"}, None),
        ({}, None),
    ],
)
def test_single_precision_is_what_parameters_say(params: dict[str, str], told: str | None) -> None:
    assert single_precision(params) == told


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
MAYBE = st.none() | NUMBERS
CURVES = st.none() | st.lists(NUMBERS, max_size=80).map(lambda values: Series("loss", range(len(values)), values))
RANKS = st.builds(RankFigures, st.integers(0, 3), MAYBE, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE)
KINDS = st.sampled_from(["training", "data", "saving", "evaluating"])


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(KINDS, NUMBERS), st.frozensets(KINDS), st.lists(RANKS, max_size=3), MAYBE, MAYBE, CURVES, CURVES,
    st.lists(st.builds(Save, st.integers(0, 9), NUMBERS, MAYBE), max_size=4), st.integers(0, 8), st.integers(1, 3),
)  # fmt: skip
def test_no_number_makes_a_judge_fail(
    times: dict[str, float], kinds: frozenset[str], ranks: list[RankFigures], step: float | None, wait: float | None,
    losses: Series | None, norms: Series | None, saves: list[Save], count: int, world: int,
) -> None:  # fmt: skip
    evidence = Evidence(
        world=world, times=times, stated=kinds, ranks=ranks, step_seconds=step, wait_seconds=wait, losses=losses,
        norms=norms, saves=saves, samples=looks(count, *[IN_ITEM, IN_REDUCE, IN_MODEL][:world]), accelerators=1,
        accelerator="H100", params={"precision": "fp32"},
    )  # fmt: skip
    for found in diagnose(evidence):
        assert 0 <= found.share <= 1
        assert found.text
    assert all(isinstance(line, str) for line in (verdict(evidence, []), *looked_at(evidence), *missing(evidence)))


@given(st.floats(0, 1), st.integers(0, 100))
def test_bounds_hold_the_share(share: float, count: int) -> None:
    low, high = bounds(share, count)
    assert 0 <= low <= share + 1e-9
    assert share - 1e-9 <= high <= 1
