"""The program of trials over a Python function: how its file is loaded, and what becomes of what it returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster import wire
from muster.runtime.function import values_of

LIMIT = 120.0  # seconds after which a process counts as hung


def _run(folder: Path, *words: str, **params: float) -> subprocess.CompletedProcess[str]:
    (folder / "rank").mkdir(exist_ok=True)
    env = {**os.environ, wire.PARAMS: json.dumps(params), wire.RANK_DIR: str(folder / "rank")}
    command = [sys.executable, "-m", "muster.runtime.function", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT)


def test_a_file_is_loaded_under_its_own_name_and_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("from program import LOADED\n\n\ndef shift(x):\n    return x + LOADED\n")
    train = "def train(params):\n    from neighbour import shift\n    print(__name__, shift(params['x']))\n"
    guard = "if __name__ == '__main__':\n    raise SystemExit('it started again')\n"
    (tmp_path / "program.py").write_text(f"LOADED = 1\n\n\n{train}\n\n{guard}")
    (tmp_path / "elsewhere").mkdir()
    ended = _run(tmp_path / "elsewhere", "../program.py", "train", x=2)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "program 3\n", "")


def test_a_file_of_a_package_is_loaded_as_a_part_of_it(tmp_path: Path) -> None:
    inner = tmp_path / "pack" / "inner"
    inner.mkdir(parents=True)
    for place in (tmp_path / "pack", inner):
        (place / "__init__.py").write_text("")
    (tmp_path / "pack" / "shared.py").write_text("NAME = 'shared'\n")
    (inner / "work.py").write_text("from ..shared import NAME\n\n\ndef train(params):\n    print(__name__, NAME)\n")
    ended = _run(tmp_path, "pack/inner/work.py", "train")
    assert (ended.returncode, ended.stdout) == (0, "pack.inner.work shared\n"), ended.stderr


def test_what_is_wrong_is_said_and_fails_the_trial(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "def train(params):\n    return [1.0, 2.0]\n\n\ndef text(params):\n    return 'x'\n"
    )
    gone = _run(tmp_path, "nowhere.py", "train")
    assert (gone.returncode, "is not there" in gone.stderr) == (1, True)
    missing = _run(tmp_path, "program.py", "other")
    assert (missing.returncode, "has no function 'other'" in missing.stderr) == (1, True)
    several = _run(tmp_path, "program.py", "train", "--objective", "loss")
    assert (several.returncode, "returned 2 values, and the study has 1 objectives" in several.stderr) == (1, True)
    assert "Traceback" not in gone.stderr + missing.stderr + several.stderr
    no_number = _run(tmp_path, "program.py", "text", "--objective", "loss")
    assert no_number.returncode == 1
    assert "loss" in no_number.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("result", "objectives", "values"),
    [
        (0.5, ["loss"], {"loss": 0.5}),
        ((1, 2), ["a", "b"], {"a": 1, "b": 2}),
        ({"a": 1, "memory": 3}, ["a"], {"a": 1, "memory": 3}),
    ],
)
def test_a_result_is_by_metric(result: object, objectives: list[str], values: dict[str, float]) -> None:
    assert values_of(result, objectives, "train") == values
