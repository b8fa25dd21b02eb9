"""Guards: each verdict and each policy, on the device's scalars and in real runs on one rank and two."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_kit import FAILED, PATIENCE, Run, make_tokens, settings, states

from gang_kit import gang
from muster import wire
from muster.data.ledger import expected
from muster.train.checkpoint import newest
from muster.train.config import read_config
from muster.train.guards import GRADIENT, NAN, SPIKE, Guard, Guards
from muster.train.plan import make_plan

CPU = torch.device("cpu")


def judged(guard: Guard, loss: float, norm: float = 1.0) -> int:
    return int(guard.judge(torch.tensor(loss), torch.tensor(norm)))


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)])
def test_what_is_not_finite_is_a_bad_step_unless_nobody_asks(loss, norm):
    assert judged(Guard(Guards(), CPU), loss, norm) == NAN
    assert judged(Guard(Guards(nan="off"), CPU), loss, norm) == 0


def test_an_infinite_gradient_is_the_scalers_business_where_there_is_one():
    guard = Guard(Guards(gradient="skip"), CPU, scaled=True)
    assert judged(guard, 1.0, math.inf) == 0
    assert judged(guard, math.nan, 1.0) == NAN


def test_a_gradient_above_its_limit_is_a_bad_step():
    guard = Guard(Guards(gradient="skip", gradient_limit=5.0), CPU)
    assert [judged(guard, 1.0, norm) for norm in (4.9, 5.0, 5.1)] == [0, 0, GRADIENT]
    assert judged(Guard(Guards(gradient_limit=5.0), CPU), 1.0, 5.1) == 0


def test_a_spike_is_found_after_the_window_and_is_not_remembered():
    guard = Guard(Guards(spike="skip", spike_sigmas=4.0, spike_window=20), CPU)
    assert judged(guard, 2.0) == 0
    for step in range(19):
        assert judged(guard, 2.0 + 0.1 * math.sin(step)) == 0
    before = guard.running.clone()
    assert judged(guard, 4.0) == SPIKE
    assert torch.equal(guard.running, before)
    assert judged(guard, 2.05) == 0
    assert judged(guard, 0.5) == 0, "a loss that falls is no spike"


def test_its_state_goes_on_in_another_guard():
    one, other = (Guard(Guards(spike="skip", spike_window=5), CPU) for _ in range(2))
    for step in range(7):
        judged(one, 1.0 + 0.01 * step)
    one.in_a_row = 2
    other.load(one.state())
    assert torch.equal(one.running, other.running)
    assert [judged(one, 9.0), one.in_a_row] == [judged(other, 9.0), other.in_a_row] == [SPIKE, 2]


def test_too_many_bad_steps_in_a_row_stop_a_run_and_a_good_one_ends_the_row():
    guard = Guard(Guards(nan="skip", patience=2), CPU)
    codes = [NAN, NAN, 0, NAN, NAN, NAN]
    actions = [guard.act(number, code, math.nan, 1.0).action for number, code in enumerate(codes, 1)]
    assert actions == ["skip", "skip", "go", "skip", "skip", "stop"]


def test_too_many_rollbacks_stop_a_run():
    guard = Guard(Guards(nan="rollback", rollbacks=1), CPU)
    verdicts = [guard.act(number, NAN, math.nan, 1.0) for number in (1, 2)]
    assert [verdict.action for verdict in verdicts] == ["rollback", "stop"]
    assert "guards.rollbacks allows 1" in verdicts[1].text


def guarded(root: Path, cases: dict[str, tuple[int, dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """Runs of 14 steps over samples in their own order, so that sample n is in batch n // 8 of 8."""
    found = {}
    for name, (world, bad, more) in cases.items():
        here = root / name
        base = {"steps": 14, "task": "poison_task:Poisoned", "data": {"shuffle": False}, "model": {"bad": bad}}
        envs = {wire.CHECKPOINT_MEMORY: str(root / "shared" / name)}
        run = Run(here, settings(here, root / "data", **{**base, **more}), world, envs).start().end()
        newest_ = newest(here / "checkpoints")
        found[name] = {
            "codes": run.codes,
            "printed": [run.printed(rank) for rank in range(world)],
            "notes": run.notes(),
            "loss": run.metric("loss"),
            "shared": newest_.shared if newest_ else None,
            "states": {n: states(here, n) for n in (5, 6) if list((here / "checkpoints").glob(f"step-{n:09d}*"))},
        }
    return found


def test_every_policy_in_real_runs(tmp_path):
    data = make_tokens(tmp_path / "data")
    often = {"every": 1, "keep": 20, "wait": True}
    fours = {"every": 4, "keep": 20, "wait": True}
    endless, large = {"43": math.inf}, {"43": 1000.0}  # in the batch of step 6
    late = {"73": math.inf}  # in that of step 10
    cases: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
        "skip": (1, endless, {"guards": {"nan": "skip"}, "checkpoint": often}),
        "stop": (1, endless, {"checkpoint": often}),
        "rollback": (1, late, {"guards": {"nan": "rollback"}, "checkpoint": fours}),
        "rollback-2": (2, late, {"guards": {"nan": "rollback"}, "checkpoint": {**fours, "memory": 1}}),
        "nowhere": (1, endless, {"guards": {"nan": "rollback"}, "checkpoint": {"every": 50}}),
        "gradient": (1, large, {"guards": {"gradient": "skip", "gradient_limit": 50}, "checkpoint": often}),
        "spike": (1, large, {"guards": {"spike": "skip", "spike_window": 4}, "checkpoint": often}),
        "patience": (1, {str(n): math.inf for n in range(999)}, {"guards": {"nan": "skip", "patience": 3}}),
    }
    (found,) = gang(1, guarded, tmp_path, cases, group=False, timeout=PATIENCE)
    good = {"skip", "rollback", "rollback-2", "gradient", "spike"}
    assert {name: run["codes"] for name, run in found.items()} == {
        name: [0 if name in good else FAILED] * cases[name][0] for name in cases
    }

    for name in ("skip", "gradient", "spike"):
        run = found[name]
        assert run["states"][5] == run["states"][6], f"{name}: the bad step reached the weights"
        assert sum("guard (skip): step 6:" in note for note in run["notes"]) == 1
        assert len(run["loss"]) == 14
        assert run["loss"][14] < run["loss"][1]
    assert math.isinf(found["skip"]["loss"][6])
    assert found["spike"]["loss"][6] > 1000

    assert "Diverged: step 6: loss inf" in found["stop"]["printed"][0]
    assert found["stop"]["shared"]["step"] in (5, 6), "nothing is saved after the bad step was seen"
    assert "There is no checkpoint to go back to" in found["nowhere"]["printed"][0]
    assert "guards.patience allows 3" in found["patience"]["printed"][0]

    plan = make_plan(read_config(settings(tmp_path, data, steps=14, data={"shuffle": False})), 1)
    for name in ("rollback", "rollback-2"):
        run = found[name]
        assert any("went back from step" in note and "to step 8" in note for note in run["notes"])
        assert run["shared"]["jumps"] == [(8, 10)]
        assert (run["shared"]["step"], run["shared"]["position"]) == (14, 16)
        assert run["shared"]["ledger"] == expected(plan.order, 10, 16, expected(plan.order, 0, 8))
