"""Configurations: read from three formats, and refused with every mistake at once before anything is spent."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_kit import make_tokens, settings

from forked_script_kit import Script
from gang_kit import torch_process
from muster.train.config import Config, Every, read_config
from muster.train.errors import ConfigError
from muster.train.mesh import Layout
from muster.train.plan import make_plan
from muster.train.settings import duration

MINIMAL = {"task": "language", "steps": 5}


def problems(raw: object, *overrides: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        read_config(raw, overrides)  # type: ignore[arg-type]
    return {each.where: str(each) for each in caught.value.problems}


def test_a_tree_says_the_same_in_yaml_toml_and_json(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "task: language\nsteps: 5\noptimizer: {lr: 3e-4, betas: [0.9, 0.99]}\nmesh: {tp: 2, dp: auto}\n"
        "precision: bf16\ncheckpoint: {every: 10m, keep: 2}\nguards: {nan: off}\nschedule: linear\n"
    )
    (tmp_path / "a.toml").write_text(
        'task = "language"\nsteps = 5\noptimizer = {lr = 3e-4, betas = [0.9, 0.99]}\nmesh = {tp = 2, dp = -1}\n'
        'precision = "bf16"\ncheckpoint = {every = "10m", keep = 2}\nguards = {nan = "off"}\nschedule = "linear"\n'
    )
    tree = {"optimizer": {"lr": 3e-4, "betas": [0.9, 0.99]}, "mesh": {"tp": 2, "dp": "auto"}, "precision": "bfloat16"}
    tree |= {"checkpoint": {"every": "600s", "keep": 2}, "guards": {"nan": "off"}, "schedule": {"kind": "linear"}}
    (tmp_path / "a.json").write_text(json.dumps(MINIMAL | tree))
    found = [read_config(tmp_path / f"a.{ending}") for ending in ("yaml", "toml", "json")]
    assert found[0] == found[1] == found[2]
    assert found[0].mesh == Layout(dp=-1, tp=2)
    assert found[0].checkpoint.every == Every(seconds=600.0)
    assert found[0].guards.nan == "off"
    assert found[0].optimizer.lr == 3e-4


def test_every_mistake_is_told_at_once_with_the_nearest_name():
    raw = {
        "task": "language",
        "stpes": 5,
        "optimizer": {"lr": "fast", "weight_decay": -1, "beta": 1},
        "data": {"batch": 0, "sources": [{"path": "a", "wieght": 2}, "b"]},
        "schedule": {"kind": "cosinus"},
        "mesh": {"tp": 0, "cp": 2},
        "checkpoint": {"every": "often", "keep": 1.5},
        "evaluate": None,
        "guards": {"nan": "ignore"},
    }
    found = problems(raw)
    assert set(found) == {
        "stpes",
        "steps",
        "optimizer.lr",
        "optimizer.weight_decay",
        "optimizer.beta",
        "data.batch",
        "data.sources[0].wieght",
        "data.sources[1]",
        "schedule.kind",
        "mesh",
        "checkpoint.every",
        "checkpoint.keep",
        "evaluate",
        "guards.nan",
    }
    assert "Did you mean `steps`?" in found["stpes"]
    assert "got nothing, expected a whole number of at least 1" in found["steps"]
    assert "got 'fast', expected a number" in found["optimizer.lr"]
    assert "Did you mean `betas`?" in found["optimizer.beta"]
    assert "got 0, expected a whole number of at least 1" in found["data.batch"]
    assert "Did you mean `weight`?" in found["data.sources[0].wieght"]
    assert "one of cosine, linear, constant. Did you mean `cosine`?" in found["schedule.kind"]
    assert "cp is not a dimension" in found["mesh"]
    assert "steps (50), a duration (10m) or auto" in found["checkpoint.every"]
    assert "one of off, skip, rollback, stop" in found["guards.nan"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "task: language\nsteps: 1\nsteps: 2\n", "the key 'steps' stands there twice"),
        ("a.json", '{"task": "a", "task": "b"}', "the key 'task' stands there twice"),
        ("a.yaml", "task: [", "readable .yaml file"),
        ("a.toml", "task =", "readable .toml file"),
        ("a.yaml", "", "got nothing, expected a mapping of task, steps"),
        ("a.yaml", "- task\n", "a mapping of task, steps"),
        ("a.ini", "task=1", "expected one of .yaml, .yml, .toml, .json"),
    ],
)
def test_a_file_that_can_not_be_read_says_why(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    assert words in " ".join(problems(tmp_path / name).values())
    assert "no such file" in " ".join(problems(tmp_path / f"other-{name}").values()) or name == "a.ini"


def test_without_pyyaml_the_error_names_the_other_formats(tmp_path):
    """In a process that has torch, and imports all of Muster anew."""
    (tmp_path / "a.yaml").write_text("task: language\n")
    (tmp_path / "read.py").write_text(
        "import sys\n"
        "for name in [name for name in sys.modules if name.split('.')[0] in ('muster', 'yaml')]:\n"
        "    del sys.modules[name]\n"
        "sys.modules['yaml'] = None\n"
        "from muster.train.config import read_config\n"
        "from muster.train.errors import ConfigError\n"
        "try:\n read_config('a.yaml')\nexcept ConfigError as error:\n sys.stdout.write(str(error))\n"
    )
    script = Script(torch_process(), tmp_path, "read.py", env=os.environ)
    code, printed = script.finish(100)
    assert "PyYAML is not installed: install it, or write the file as .toml or .json" in printed, script.err.read_text()
    assert code == 0


def test_overrides_go_over_the_file_and_are_checked_like_it():
    found = read_config(MINIMAL, ["optimizer.lr=1e-2", "mesh.tp=2", "data.shuffle=false", "clip=none", "seed=7"])
    assert (found.optimizer.lr, found.mesh.tp, found.data.shuffle, found.clip, found.seed) == (0.01, 2, False, None, 7)
    assert found.mesh == Layout(tp=2)
    wrong = problems(MINIMAL, "optimizer.lr", "steps.x=1", "optimizer.momentum=1")
    assert set(wrong) == {"optimizer.lr", "steps.x=1", "optimizer.momentum"}


@given(raw=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        [each.name for each in dataclasses.fields(Config)] + ["lr", "batch", "every", "kind", "dp", "x"]
    ), inner, max_size=6)
), max_leaves=20))  # fmt: skip
def test_whatever_is_given_is_read_or_refused_with_reasons(raw):
    found: Config | ConfigError
    try:
        found = read_config(raw if isinstance(raw, dict) else {"task": raw})
    except ConfigError as error:
        found = error
    assert isinstance(found, Config) or found.problems


@given(seconds=st.integers(0, 10**6))
def test_durations(seconds):
    assert duration(seconds) == duration(f"{seconds}s") == float(seconds)
    hours, rest = divmod(seconds, 3600)
    assert duration(f"{hours}h{rest // 60}m{rest % 60}s") == float(seconds)


def plan_problems(config: dict[str, object], world: int) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        make_plan(read_config(config), world)
    return {each.where: str(each) for each in caught.value.problems}


def test_what_does_not_fit_together_is_told_before_anybody_joins(tmp_path):
    data = make_tokens(tmp_path / "data")
    base = settings(tmp_path, data, steps=20)
    assert make_plan(read_config(base), 2).layout == Layout(dp=2)

    found = plan_problems({**base, "mesh": {"dp": 2, "tp": 2}, "schedule": {"warmup": 50}}, 6)
    assert "tp 2 = 4, but 6 processes" in found["mesh"]
    assert "warmup 50 leaves none of the 20 steps" in found["schedule"]

    model = {**base["model"], "dropout": 0.0, "layers": 2}
    found = plan_problems({**base, "model": model, "mesh": {"tp": 3}}, 3)
    assert "4 heads don't divide by tp 3" in found["mesh"]
    assert "2 layers can't make pp 4 stages" in plan_problems({**base, "model": model, "mesh": {"pp": 4}}, 4)["mesh"]
    assert "needs 2 micro-batches" in plan_problems({**base, "model": model, "mesh": {"pp": 2}}, 2)["mesh"]
    assert "8 samples is less than 9 data ranks" in plan_problems(base, 9)["data.batch"]
    batch = {**base["data"], "micro_batch": 3}
    assert make_plan(read_config({**base, "data": batch}), 2).micros == 2  # 8 samples as 2, 2, 2 and 2
    stages = {**base, "model": model, "mesh": {"pp": 2}, "data": batch}
    assert "8 samples doesn't divide by 1 data ranks x 3" in plan_problems(stages, 2)["data.batch"]

    found = plan_problems({**base, "model": {**model, "layer": 2}, "evaluate": {"every": 5}}, 1)
    assert "Did you mean `layers`?" in found["model.layer"]
    assert "held-out data" in plan_problems({**base, "evaluate": {"every": 5}}, 1)["data.evaluate"]
    assert "tiny-llama" in plan_problems({**base, "model": {"shape": "tiny-lama"}}, 1)["model"]
    assert (
        "at most the context of 128"
        in plan_problems({**base, "model": {**model, "sequence": 200}}, 1)["model.sequence"]
    )
    assert "nowhere" in plan_problems({**base, "model": {"hub": str(tmp_path / "nowhere")}}, 1)["model"]
    assert "data to train on" in plan_problems({**base, "data": {"batch": 8}}, 1)["data.sources"]
    missing = {"batch": 8, "sources": [{"path": str(tmp_path / "nowhere")}]}
    assert "nowhere" in plan_problems({**base, "data": missing}, 1)["data"]


def test_tasks_that_are_not_there_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty_task_module.py").write_text("class Half:\n    unit = 'x'\n")
    base = {"steps": 1, "model": {}}
    assert "Did you mean `language`?" in plan_problems({**base, "task": "langauge"}, 1)["task"]
    assert "can be imported" in plan_problems({**base, "task": "no_such_module_here:Task"}, 1)["task"]
    assert "It has no 'Whole'" in plan_problems({**base, "task": "empty_task_module:Whole"}, 1)["task"]
    assert "without build, data, inputs" in plan_problems({**base, "task": "empty_task_module:Half"}, 1)["task"]


def test_the_package_is_light_until_it_is_used():
    script = "import sys, muster.train; assert 'torch' not in sys.modules; assert 'train' in dir(muster.train)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)
