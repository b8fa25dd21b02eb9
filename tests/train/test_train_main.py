"""`python -m muster.train`: trains, checks, exports, and says what is wrong in one line and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from loop_kit import PATIENCE, PAUSE, Run, make_tokens, settings

from gang_kit import gang
from muster.train.command import FAILED, MISTAKEN, main
from muster.train.models import safetensors
from muster.train.throughput import PARTS


def by_command(root: Path, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Each command in a process of its own that has torch already: its exit code and all that it wrote."""
    found = []
    for number, words in enumerate(commands):
        out = root / f"out-{number}"
        pid = os.fork()
        if pid == 0:
            file = os.open(out, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
                os.environ.pop(name)
            os._exit(_exit_code(words))
        found.append((os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.read_text()))
    return found


def _exit_code(words: list[str]) -> int:
    try:
        return main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def test_commands_and_their_exit_codes(tmp_path):
    data = make_tokens(tmp_path / "data")
    file, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    file.write_text(json.dumps(settings(tmp_path, data, steps=6, schedule={"warmup": 2})))
    (tmp_path / "bad.json").write_text(json.dumps({"task": "language", "stepz": 1}))
    other = tmp_path / "other"
    commands = [
        [str(file), "--check"],
        [str(file), "--check", "--world", "9"],
        [str(file), f"--export={weights}"],  # nothing is saved yet
        [str(file), "steps=4"],
        [str(file)],
        [str(file), "steps=3"],  # more than all is done
        [str(file), f"--export={weights}"],
        [str(tmp_path / "bad.json")],
        [str(file), "model.dim=64", "steps=9"],  # the checkpoint is of another model
        [str(file), "data.batch=16", "steps=9"],  # and of another order
        [str(file), "data.batch=16", "steps=9", "data.may_change=true"],
        [str(file), f"checkpoint.where={other}", "guards.gradient=stop", "guards.gradient_limit=1e-9"],
    ]
    (found,) = gang(1, by_command, tmp_path, commands, group=False, timeout=PATIENCE)
    codes = [code for code, _ in found]
    texts = [text for _, text in found]
    assert codes == [0, MISTAKEN, FAILED, 0, 0, 0, 0, MISTAKEN, FAILED, FAILED, 0, FAILED], texts
    assert "is in order" in texts[0]
    assert "8 samples is less than 9 data ranks" in texts[1]
    assert "there is no checkpoint in" in texts[2]
    assert "done: 4 steps" in texts[3]
    assert "continuing after step 4" in texts[4]
    assert "done: 6 steps" in texts[5]
    assert "step 6/6" not in texts[5]
    assert "the model after step 6" in texts[6]
    assert "embed.weight" in safetensors.read(weights)
    assert "Did you mean `steps`?" in texts[7]
    assert "CheckpointMismatch" in texts[8]
    assert "embed.weight" in texts[8]
    assert "batch was 8 and is 16" in texts[9]
    assert "it goes on all the same, as data.may_change says" in texts[10]
    assert "Diverged: step 1: gradient norm" in texts[11]
    for text in texts:
        assert "Traceback" not in text


def two_at_once(root: Path) -> dict[str, Any]:
    """A second run with the same place for its checkpoints, while the first is on its way."""
    config = settings(root / "one", root / "data", steps=1_000_000)
    first = Run(root / "one", config).start()
    while not first.reached(2):
        time.sleep(PAUSE)
    second = Run(root / "two", {**config, "steps": 50}).start().end()
    first.kill()
    return {"codes": second.codes, "printed": second.printed(), "first": first.pids[0]}


def test_two_runs_with_one_place_are_told_so(tmp_path):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, two_at_once, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [FAILED]
    assert "CheckpointHeld" in found["printed"]
    assert str(found["first"]) in found["printed"], "it doesn't say who holds it"


def reported(root: Path) -> dict[str, Any]:
    held_out = {"evaluate": [{"path": str(root / "data")}]}
    config = settings(root, root / "data", steps=12, data={**held_out, "micro_batch": 2}, evaluate={"every": 6})
    config |= {"peak_flops": 1e12, "checkpoint": {"where": str(root / "checkpoints"), "every": "auto"}}
    run = Run(root, config).start().end()
    names = ("loss", "lr", "grad_norm", "tokens_per_s", "step_s", "data_s", "forward_s", "backward_s", "optimizer_s")
    names += ("wait_s", "save_s", "evaluate_s", "memory", "mfu", "ledger", "eval_loss")
    return {
        "codes": run.codes,
        "metrics": {name: run.metric(name) for name in names},
        "params": run.docs("params"),
        "data": run.docs("data"),
        "progress": run.docs("progress"),
    }


def test_every_step_is_reported_with_where_its_time_went(tmp_path):
    make_tokens(tmp_path / "data")
    (found,) = gang(1, reported, tmp_path, group=False, timeout=PATIENCE)
    assert found["codes"] == [0]
    metrics = found["metrics"]
    for name, values in metrics.items():
        assert sorted(values) == ([6, 12] if name == "eval_loss" else list(range(1, 13))), name
    for step in range(1, 13):
        parts = [metrics[f"{part}_s"][step] for part in PARTS]
        assert all(part >= 0 for part in parts)
        assert sum(parts) == pytest.approx(metrics["step_s"][step])
        assert metrics["forward_s"][step] > 0
        assert metrics["backward_s"][step] > 0
        assert metrics["memory"][step] > 1e7
        assert 0 < metrics["mfu"][step] < 1
    assert metrics["evaluate_s"][7] > 0, "the evaluation after step 6 is in the time of the next"
    assert found["params"][0]["values"]["optimizer"]["lr"] == 3e-3
    assert "seed" in found["params"][0]["values"]
    train, held_out = found["data"]
    assert (train["about"]["split"], held_out["about"]["split"]) == ("train", "evaluate")
    assert train["digest"] == held_out["digest"], "the same files have the same fingerprint"
    assert train["digest"].startswith("files:")
    assert train["rows"] > 0
    assert found["progress"][-1]["step"] == 12


def test_the_module_is_a_command(tmp_path):
    (tmp_path / "bad.yaml").write_text("task: language\nsteps: none\n")
    command = [sys.executable, "-m", "muster.train", "bad.yaml", "seed=-1"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == MISTAKEN
    assert "bad.yaml has 2 mistakes." in ended.stderr
    assert "steps: got 'none', expected a whole number of at least 1" in ended.stderr
