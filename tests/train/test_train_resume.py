"""Resume is exact: a run that was killed, at any instant, ends bit for bit like one that was not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from loop_kit import PATIENCE, Run, make_tokens, settings, states

from gang_kit import gang
from muster.data.ledger import expected
from muster.train.checkpoint import newest
from muster.train.config import read_config
from muster.train.loop import train
from muster.train.plan import make_plan
from muster.train.tasks import language

STEPS = 100
MEASURED = ("loss", "grad_norm", "lr", "ledger")
ELSEWHERE = 60  # steps of the run that moves between numbers of ranks


def killed_and_continued(root: Path, world: int) -> dict[str, Any]:
    """100 steps straight; and 40, SIGKILL, 60 more in new processes."""
    straight = Run(root / "straight", settings(root / "straight", root / "data", steps=STEPS), world).start().end()
    config = settings(root / "killed", root / "data", steps=STEPS)
    config["data"]["workers"] = 2  # the straight run reads in a thread: nothing depends on that
    first = Run(root / "killed", config, world).start()
    assert first.kill_when(lambda: first.reached(42) and (root / "killed/checkpoints/step-000000040").exists())
    second = Run(root / "killed", config, world).start().end()
    return {
        "codes": [straight.codes, first.codes, second.codes],
        "straight": _curves(straight),
        "pieces": [_curves(first), _curves(second)],
        "weights": [states(root / each, STEPS) for each in ("straight", "killed")],
        "notes": second.notes(),
        "phases": [[doc["name"] for doc in second.docs("phase", rank)] for rank in range(world)],
        "shared": [_shared(root / each) for each in ("straight", "killed")],
    }


@pytest.mark.parametrize("world", [1, 2])
def test_forty_steps_a_kill_and_sixty_more_are_a_hundred_straight(tmp_path, world):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, killed_and_continued, tmp_path, world, group=False, timeout=PATIENCE)
    assert found["codes"] == [[0] * world, [-9] * world, [0] * world]
    first, second = found["pieces"]
    for name, whole in found["straight"].items():
        assert sorted(whole) == list(range(1, STEPS + 1)), name
        assert {**first[name], **second[name]} == whole, name
        assert min(second[name]) > 40, "it began before the last checkpoint"
    assert found["weights"][0] == found["weights"][1]
    assert found["shared"][0] == found["shared"][1]
    assert any("continuing after step 4" in note for note in found["notes"])
    for phases in found["phases"]:
        start = ["build", "rendezvous", "build", "load", "build", "load", "build", "training", "saving"]
        assert phases[: len(start)] == start  # first the checkpoint is looked for, and later its tensors are read
        assert phases[-1] == "", "the last phase goes on after the end of training"
    losses = found["straight"]["loss"]
    assert losses[STEPS] < losses[1] - 0.5, "it learns nothing, so equal losses would prove little"


def killed_again_and_again(root: Path, seed: int) -> dict[str, Any]:
    """Kills at random steps and in the middle of saves, one after another, and then lets it end."""
    straight = Run(root / "straight", settings(root / "straight", root / "data", steps=STEPS)).start().end()
    where, rng = root / "killed" / "checkpoints", random.Random(seed)
    config = settings(root / "killed", root / "data", steps=STEPS, checkpoint={"every": 4})
    cut_off, kills = 0, []
    for _ in range(12):
        run, at = Run(root / "killed", config).start(), rng.randint(1, 12)
        if cut_off < 2:
            run.kill_when(lambda: any(where.glob(".saving-*")))
            cut_off += any(where.glob(".saving-*"))
        else:
            run.kill_when(lambda run=run, at=at: run.lines() >= at)
        kills.append(run)
        if len(kills) >= 5 and cut_off >= 2:
            break
    last = Run(root / "killed", config).start().end()
    return {
        "cut_off": cut_off,
        "killed": [run.codes for run in kills],
        "code": last.codes,
        "straight": _curves(straight),
        "pieces": [_curves(run) for run in (*kills, last)],
        "weights": [states(root / each, STEPS) for each in ("straight", "killed")],
        "left": [path.name for path in where.glob(".saving-*")],
    }


def test_kills_at_random_instants_and_in_the_middle_of_a_save_change_nothing(tmp_path):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, killed_again_and_again, tmp_path, 7, group=False, timeout=PATIENCE)
    assert found["cut_off"] >= 2, "no save was cut off"
    assert found["killed"] == [[-9]] * len(found["killed"])
    assert found["code"] == [0]
    for name, whole in found["straight"].items():
        for piece in found["pieces"]:
            assert piece[name].items() <= whole.items(), name
        assert set().union(*(piece[name] for piece in found["pieces"])) == set(whole)
    assert found["weights"][0] == found["weights"][1]
    assert found["left"] == [], "what a cut-off save left is still there"


def moved(root: Path) -> dict[str, Any]:
    """One run on 1, 2, and 4 ranks in turn, in other layouts, and one on 1 rank alone."""
    same = {"model": {"dropout": 0.0, "layers": 2}, "schedule": {"steps": ELSEWHERE}}
    stretches: list[tuple[int, dict[str, Any]]] = [
        (1, {"steps": 20}),
        (2, {"steps": 40, "mesh": {"fsdp": 2}}),
        (4, {"steps": ELSEWHERE, "mesh": {"dp": 2, "pp": 2}, "data": {"micro_batch": 2}}),
    ]
    runs = [
        Run(root / "moved", settings(root / "moved", root / "data", **same, **more), world).start().end()
        for world, more in stretches
    ]
    alone = settings(root / "alone", root / "data", steps=ELSEWHERE, **same)
    straight = Run(root / "alone", alone).start().end()
    return {
        "codes": [run.codes for run in (*runs, straight)],
        "moved": {name: runs[0].metric(name) | runs[1].metric(name) | runs[2].metric(name) for name in MEASURED},
        "straight": _curves(straight),
        "shared": [_shared(root / each) for each in ("moved", "alone")],
    }


def test_a_run_that_moves_to_other_numbers_of_ranks_reads_the_same_data(tmp_path):
    data = make_tokens(tmp_path / "data")
    (found,) = gang(1, moved, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [[0], [0, 0], [0, 0, 0, 0], [0]]
    assert found["moved"]["ledger"] == found["straight"]["ledger"]
    assert len(found["straight"]["ledger"]) == ELSEWHERE
    plan = make_plan(read_config(settings(tmp_path, data, steps=ELSEWHERE)), 1)
    ledger = expected(plan.order, 0, ELSEWHERE)
    assert [each["ledger"] for each in found["shared"]] == [ledger, ledger]
    for step, loss in found["straight"]["loss"].items():
        assert found["moved"]["loss"][step] == pytest.approx(loss, rel=1e-4), step


def _curves(run: Run) -> dict[str, dict[int, float]]:
    return {name: run.metric(name) for name in MEASURED}


def _shared(root: Path) -> dict[str, Any]:
    found = newest(root / "checkpoints")
    assert found is not None
    return {key: found.shared[key] for key in ("step", "position", "ledger", "jumps", "guard")}


def resumed_without_drawing(root: Path) -> list[int]:
    """The steps of a run, and of one that goes on from its checkpoint and may draw no weights."""
    first = train(read_config(settings(root, root / "data", steps=20)))
    with mock.patch.object(language, "initialise", side_effect=AssertionError("weights were drawn")):
        second = train(read_config(settings(root, root / "data", steps=25)))
    return [first.step, second.step]


def test_weights_that_are_loaded_are_not_drawn_first(tmp_path):
    make_tokens(tmp_path / "data")
    assert gang(1, resumed_without_drawing, tmp_path, group=False, timeout=PATIENCE) == [[20, 25]]
