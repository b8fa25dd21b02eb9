"""Mirrors: what rank 0 reports is in Muster's spool whatever happens, and in the other tool as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.control.decode import decode
from muster.runtime.spool import SpoolReader
from transfer_kit import board

REPORT = """
from muster import runtime
runtime.params(lr=3e-4, opt="adam")
runtime.note("begun")
runtime.text("said", 3, "hello")
runtime.histogram("weights", 4, [0.0, 1.0, 2.0], bins=2)
for step in range(1000):
    runtime.report(step=step, loss=1 / (step + 1), acc=step)
"""
# What wandb has of it; the real one lives in an environment of its own, and was tried there.
STAND_IN = """
import json, os
_out = open(os.environ["STAND_IN"], "a")
def _say(*words):
    _out.write(json.dumps(words, default=str) + "\\n"); _out.flush()
class Settings:
    def __init__(self, **given): self.given = given
def Histogram(np_histogram): return ["histogram", *np_histogram]
class _Config:
    def update(self, values, allow_val_change): _say("config", values)
class Run:
    config, tags, notes = _Config(), (), None
    def log(self, values, step): _say("log", step, values)
    def finish(self): _say("finish")
def init(**given):
    given.pop("settings"); _say("init", given)
    if os.environ.get("STAND_IN_FAILS"): raise RuntimeError("no network")
    return Run()
"""


def script(folder: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    rank = folder / "rank-0"
    rank.mkdir(parents=True, exist_ok=True)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER", "WANDB"))}
    environment = {**known, "MUSTER_RANK_DIR": str(rank), "MUSTER_JOB": "job-1", "MUSTER_ATTEMPT": "2", **env}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )


def reported(folder: Path) -> list[int]:
    return list(decode(SpoolReader(folder / "rank-0").read(0, 1 << 24, final=True), {}).columns["loss"].steps)


def said(folder: Path) -> list[list[object]]:
    return [json.loads(line) for line in (folder / "said").read_text().splitlines()]


def stand_in(folder: Path) -> dict[str, str]:
    (folder / "modules").mkdir()
    (folder / "modules" / "wandb.py").write_text(STAND_IN)
    return {"PYTHONPATH": str(folder / "modules"), "STAND_IN": str(folder / "said"), "HOME": str(folder)}


def test_tensorboard(tmp_path: Path) -> None:
    done = script(tmp_path, REPORT, MUSTER_MIRROR="tensorboard:logs")
    assert done.stderr == ""
    found = board(tmp_path / "logs" / "job-1-2")
    assert [one.step for one in found.Scalars("loss")] == list(range(1000))
    assert found.Scalars("acc")[-1].value == 999
    assert found.Tensors("said")[0].tensor_proto.string_val[0] == b"hello"
    assert found.Histograms("weights")[0].histogram_value.num == 3
    assert found.SummaryMetadata("_hparams_/session_start_info").plugin_data.plugin_name == "hparams"
    assert reported(tmp_path) == list(range(1000))


def test_from_the_script_and_in_the_midst(tmp_path: Path) -> None:
    code = """
from muster import runtime
for step in range(10):
    runtime.report(step=step, loss=step)
runtime.mirror("tensorboard:logs")
for step in range(10, 20):
    runtime.report(step=step, loss=step)
"""
    script(tmp_path, code)
    assert [one.step for one in board(tmp_path / "logs" / "job-1-2").Scalars("loss")] == list(range(10, 20))
    assert reported(tmp_path) == list(range(20))


def test_wandb_gets_all_of_it(tmp_path: Path) -> None:
    done = script(tmp_path, REPORT, MUSTER_MIRROR="wandb", **stand_in(tmp_path))
    assert done.stderr == ""
    words = said(tmp_path)
    assert words[0] == ["init", {"name": "job-1-2", "group": "job-1", "mode": "offline", "id": "job-1-attempt-2"}]
    assert ["config", {"lr": 3e-4, "opt": "adam"}] in words
    assert ["log", 3, {"said": "hello"}] in words
    logged = [word for word in words if word[0] == "log" and isinstance(word[2], dict) and "loss" in word[2]]
    assert [word[1] for word in logged] == list(range(1000))
    assert words[-1] == ["finish"]


def test_with_a_key_it_is_not_offline(tmp_path: Path) -> None:
    script(tmp_path, REPORT, MUSTER_MIRROR="wandb", WANDB_API_KEY="x", **stand_in(tmp_path))
    given = said(tmp_path)[0][1]
    assert isinstance(given, dict)
    assert "mode" not in given


def test_settings_of_the_script(tmp_path: Path) -> None:
    code = (
        "from muster import runtime\nruntime.mirror('wandb', project='p', name='mine')\nruntime.report(step=1, loss=1)"
    )
    script(tmp_path, code, **stand_in(tmp_path))
    given = said(tmp_path)[0][1]
    assert isinstance(given, dict)
    assert (given["project"], given["name"]) == ("p", "mine")


def test_wandb_that_is_not_installed_is_one_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "modules"
    blocked.mkdir()
    (blocked / "wandb.py").write_text("raise ImportError('no wandb here')")
    done = script(tmp_path, REPORT, MUSTER_MIRROR="wandb", PYTHONPATH=str(blocked))
    assert done.stderr.count("\n") == 1
    assert "wandb is not installed" in done.stderr
    assert reported(tmp_path) == list(range(1000))


@pytest.mark.parametrize("target", ["neptune", "wandb:x"])
def test_a_mirror_that_is_none_is_told_and_training_goes_on(tmp_path: Path, target: str) -> None:
    done = script(tmp_path, REPORT, MUSTER_MIRROR=target)
    assert f"got '{target}'" in done.stderr
    assert reported(tmp_path) == list(range(1000))
    code = f"from muster import runtime\nruntime.mirror({target!r})"
    with pytest.raises(subprocess.CalledProcessError) as raised:
        script(tmp_path, code)
    assert "ValueError" in raised.value.stderr


def test_a_tool_that_fails_costs_the_mirror_alone(tmp_path: Path) -> None:
    done = script(tmp_path, REPORT, MUSTER_MIRROR="wandb,tensorboard:logs", STAND_IN_FAILS="1", **stand_in(tmp_path))
    assert "no longer mirrored to wandb: no network" in done.stderr
    assert len(board(tmp_path / "logs" / "job-1-2").Scalars("loss")) == 1000
    assert reported(tmp_path) == list(range(1000))


def test_other_ranks_are_not_mirrored(tmp_path: Path) -> None:
    script(tmp_path, REPORT, MUSTER_MIRROR="tensorboard:logs", RANK="1")
    assert not (tmp_path / "logs").exists()
    assert reported(tmp_path) == list(range(1000))


def test_a_forked_child_leaves_it_alone(tmp_path: Path) -> None:
    code = (
        REPORT
        + """
import os
pid = os.fork()
if pid == 0:
    runtime.report(step=5000, loss=1.0)
    raise SystemExit
os.waitpid(pid, 0)
"""
    )
    script(tmp_path, code, MUSTER_MIRROR="tensorboard:logs")
    assert [one.step for one in board(tmp_path / "logs" / "job-1-2").Scalars("loss")] == list(range(1000))
