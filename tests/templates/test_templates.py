"""Every starter template as a user would run it: by itself, as a gang where it is one, interrupted and continued."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from forked_script_kit import Script
from gang_kit import free_port, torch_process
from muster import wire
from muster.cli.init import copy, find, templates
from muster.core.parse import parse_job
from muster.tune.study_file import Site, parse_study
from muster.tune.trial_spec import env_name

SOURCES = Path(__file__).parents[2] / "src"
SMALL = ["--batch", "4", "--context", "32", "--dim", "64", "--layers", "2", "--characters", "20000", "--dropout", "0.1"]
LIMIT = 120.0  # seconds after which a process counts as hung


NAMES = [one.name for one in templates()]


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The template that the test names, copied as `muster init` does."""
    copy(find(request.param), tmp_path / request.param)
    return tmp_path / request.param


def _environment(**more: str) -> dict[str, str]:
    drop = ("MUSTER_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_", "CHECKPOINT")
    return {**{k: v for k, v in os.environ.items() if not k.startswith(drop)}, "PYTHONUNBUFFERED": "1", **more}


def _run(folder: Path, *words: str, **env: str) -> str:
    """What the script printed, with an interpreter of its own; it must end well and warn of nothing."""
    command = [sys.executable, *words]
    ended = subprocess.run(command, cwd=folder, env=_environment(**env), capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def _run_warm(folder: Path, *words: str, load: str = "", **env: str) -> str:
    """The same in a process that has torch already, and the module `load`."""
    script = _script(folder, *words, load=load, **env)
    code, printed = script.finish(LIMIT)
    assert code == 0, printed + script.err.read_text()
    assert script.err.read_text() == ""
    return printed


def _script(folder: Path, *words: str, load: str = "", **env: str) -> Script:
    return Script(torch_process(), folder, *words, env=_environment(**env), load=load)


class Gang:
    """Two ranks of `train.py` with the environment that a launcher gives them."""

    def __init__(self, folder: Path, *words: str, second: dict[str, str] | None = None) -> None:
        common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        common["MASTER_PORT"] = str(free_port())
        self.ranks = []
        for rank in (0, 1):
            env = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank), **((second or {}) if rank else {})}
            self.ranks.append(_script(folder, "train.py", *SMALL, *words, **env))

    def lines(self) -> Iterator[str]:
        yield from self.ranks[0].stdout

    def errors(self) -> list[str]:
        return [script.err.read_text() for script in self.ranks]

    def end(self) -> list[int]:
        """Exit codes; the output that nobody read yet is dropped."""
        try:
            return [script.process.wait(LIMIT) for script in self.ranks]
        finally:
            for script in self.ranks:
                script.close()


def _asked_to_stop(folder: Path) -> dict[str, str]:
    """The environment of a rank that the platform has already asked to save and leave."""
    (folder / "control").write_bytes(bytes([1]) + bytes(wire.CONTROL_BYTES - 1))
    (folder / "rank").mkdir()
    return {wire.CONTROL: str(folder / "control"), wire.RANK_DIR: str(folder / "rank")}


def _losses(printed: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step +(\d+)  (?:val_)?loss ([\d.]+)", printed)}


def _last_state(folder: Path) -> dict[str, object]:
    newest = max(folder.rglob("state.pt"), key=lambda file: torch.load(file)["step"])
    state: dict[str, object] = torch.load(newest)
    return state


def _same(one: object, other: object) -> bool:
    """Equal to the last bit, tensors included."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return one == other


@pytest.mark.parametrize("folder", NAMES, indirect=True)
def test_its_job_file_is_valid_and_names_a_script_that_is_there(folder):
    spec = parse_job((folder / "job.yaml").read_text(), source=f"{folder.name}/job.yaml")
    script = re.search(r"python (\S+\.py)", spec.run)
    assert script
    assert (folder / script[1]).is_file()
    read = (folder / script[1]).read_text() + "".join(one.read_text() for one in folder.glob("*.py"))
    assert all(f"${name}" in spec.run or f'os.environ.get("{name}"' in read for name in spec.envs)
    readme = (folder / "README.md").read_text()
    assert len(readme.splitlines()) <= 15
    assert "    muster preflight job.yaml" in readme


@pytest.mark.parametrize("folder", ["ddp"], indirect=True)
def test_ddp_alone_learns_and_its_checkpoint_can_be_evaluated(folder, tmp_path):
    printed = _run(folder, "train.py", *SMALL, "--steps", "60", "--lr", "5e-3", "--save-every", "30")
    losses = _losses(printed)
    assert losses[60] < 0.8 * losses[10]
    copy(find("eval"), tmp_path / "eval")
    trained = _run(tmp_path / "eval", "eval.py", "--batches", "2", CHECKPOINT=str(folder / "checkpoints"))
    untrained = _run_warm(tmp_path / "eval", "eval.py", "--batches", "2", CHECKPOINT="")
    assert "step 60: " in trained
    floor = _number(r"allows ([\d.]+)", trained)
    assert floor < _number(r"loss ([\d.]+)", trained) < 0.8 * _number(r"loss ([\d.]+)", untrained)


@pytest.mark.parametrize("folder", ["ddp"], indirect=True)
def test_a_gang_that_was_killed_ends_bit_for_bit_like_one_that_was_not(folder, tmp_path):
    words = ("--steps", "120", "--save-every", "20")
    copy(find("ddp"), tmp_path / "straight")
    straight = Gang(tmp_path / "straight", *words)
    expected = _losses("".join(straight.lines()))
    assert straight.end() == [0, 0]
    assert straight.errors() == ["", ""]

    broken = Gang(folder, *words)
    next(line for line in broken.lines() if line.startswith("step   30"))
    broken.ranks[1].kill()
    codes = broken.end()
    assert codes[1] == -signal.SIGKILL
    # By an exception or, where gloo finds no way to raise one, by an abort.
    assert codes[0] != 0, "the other rank notices that its peer is gone and fails"

    again = Gang(folder, *words)
    printed = "".join(again.lines())
    assert again.end() == [0, 0]
    resumed_at = int(_number(r"continuing from step (\d+)", printed))
    assert 20 <= resumed_at < 120
    assert resumed_at % 20 == 0
    losses = _losses(printed)
    assert min(losses) == resumed_at + 10
    assert losses == {step: loss for step, loss in expected.items() if step > resumed_at}
    assert _same(_last_state(folder), _last_state(tmp_path / "straight"))


@pytest.mark.parametrize("folder", ["ddp"], indirect=True)
def test_one_rank_that_is_asked_to_stop_takes_the_gang_along_at_the_same_step(folder):
    gang = Gang(folder, "--steps", "1000", second=_asked_to_stop(folder))
    printed = "".join(gang.lines())
    assert gang.end() == [0, 0]
    assert "asked to stop: saved at step 1 and leaving" in printed
    assert _last_state(folder)["step"] == 1


@pytest.mark.parametrize("folder", ["single"], indirect=True)
def test_single_learns_and_continues_bit_for_bit(folder, tmp_path):
    words = ("train.py", "--steps", "1500", "--save-every", "50", "--hidden", "64", "--batch", "256", "--lr", "1e-2")
    copy(find("single"), tmp_path / "straight")
    losses = _losses(_run(tmp_path / "straight", *words))
    assert losses[1500] < 0.3 * losses[100]

    killed = _script(folder, *words)
    next(line for line in killed.stdout if line.startswith("step  100"))
    killed.kill()
    assert killed.end(LIMIT) == -signal.SIGKILL
    printed = _run_warm(folder, *words)
    resumed_at = int(_number(r"continuing from step (\d+)", printed))
    assert resumed_at >= 50
    assert resumed_at % 50 == 0
    assert _losses(printed) == {step: loss for step, loss in losses.items() if step > resumed_at}
    assert _same(_last_state(folder), _last_state(tmp_path / "straight"))


@pytest.mark.parametrize("folder", ["sklearn"], indirect=True)
def test_sklearn_stops_after_a_fold_and_goes_on_with_the_next(folder, tmp_path):
    words = ("train.py", "--samples", "400", "--trees", "20", "--folds", "5")
    copy(find("sklearn"), tmp_path / "straight")
    whole = re.findall(r"fold (\d) of 5: accuracy ([\d.]+)", _run(tmp_path / "straight", *words))
    assert [fold for fold, _ in whole] == ["1", "2", "3", "4", "5"]
    assert min(float(score) for _, score in whole) > 0.75
    stopped = _run_warm(folder, *words, load="sklearn.ensemble", **_asked_to_stop(folder))
    assert "asked to stop: 1 of 5 folds are saved" in stopped
    again = _run_warm(folder, *words, load="sklearn.ensemble")
    assert again.startswith("continuing after fold 1")
    assert re.findall(r"fold (\d) of 5: accuracy ([\d.]+)", again) == whole[1:]


@pytest.mark.parametrize("folder", ["sklearn"], indirect=True)
def test_sklearn_without_scikit_learn_says_how_to_install_it(folder):
    env = _environment(PYTHONPATH=str(SOURCES))
    command = [sys.executable, "-S", "train.py"]  # -S: nothing that was installed can be imported
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 1
    assert "-m pip install scikit-learn" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("folder", ["tune"], indirect=True)
def test_a_trial_of_the_study_learns_and_continues_bit_for_bit(folder, tmp_path):
    words = ("train.py", "--steps", "540", "--lr", "0.5")
    copy(find("tune"), tmp_path / "straight")
    losses = _losses(_run(tmp_path / "straight", *words))
    assert losses[540] < 0.9 * losses[20]
    assert "asked to stop: saved at step 1 and leaving" in _run(folder, *words, **_asked_to_stop(folder))
    printed = _run(folder, *words)
    assert printed.startswith("continuing from step 1 ")
    assert _losses(printed) == losses


def test_the_study_of_the_template_is_over_the_parameters_of_its_job():
    root = SOURCES / "muster" / "templates" / "tune"
    job = parse_job((root / "job.yaml").read_text(), source="job.yaml")
    study = parse_study((root / "study.yaml").read_text(), Site(job=job))
    assert {env_name(one.name) for one in study.space.parameters} | {"SEED"} == set(job.envs)
    assert study.name == "spirals"


@pytest.mark.parametrize("folder", ["eval"], indirect=True)
def test_an_evaluation_of_nothing_says_what_to_give(folder):
    script = _script(folder, "eval.py", CHECKPOINT=str(folder))
    code, _ = script.finish(LIMIT)
    assert code == 1
    assert "CHECKPOINT: no state.pt in" in script.err.read_text()
    assert "Traceback" not in script.err.read_text()


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])
