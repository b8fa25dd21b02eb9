"""Preflight of muster.train's own tasks, and of tasks with a mistake: the training loop itself, saved and killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.data.formats import tar, tokens
from muster.train.config import Config, read_config
from muster.train.errors import ConfigError
from muster.train.preflight import check_task, check_task_resume
from muster.train.preflight.command import FAILED, MISTAKEN, main
from muster.train.preflight.tiny import layouts, tiny

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(HERE))
    row = np.random.default_rng(0).integers(0, 64, 4000)
    tokens.write(tmp_path / "text", [{"tokens": row}], vocab=64)


def language(**more: Any) -> Config:
    model = {"vocab": 64, "dim": 512, "layers": 6, "heads": 8, "kv_heads": 4, "context": 128, **more.pop("model", {})}
    raw = {"task": "language", "steps": 500, "model": model, "data": {"batch": 64, "sources": [{"path": "text"}]}}
    return read_config({**raw, "optimizer": {"lr": 1e-3}, **more})


def own(name: str, **more: Any) -> Config:
    raw = {"task": f"preflight_tasks:{name}", "steps": 50, "data": {"batch": 16}, "optimizer": {"lr": 1e-2}}
    return read_config({**raw, **more})


def test_a_language_model_passes_as_it_is_divided() -> None:
    config = language(mesh={"dp": 4, "tp": 2}, model={"dropout": 0.1})
    report = check_task(config)
    assert report.passed, str(report)
    for name in ("future", "shift", "accumulation", "layout", "modes"):
        assert report.of(name).status == "ok", str(report)
    assert "dp 2 and as tp 2" in report.of("layout").finding.detail
    assert "model.layers 6 → 2" in report.notes[0]
    resumed = check_task_resume(config)
    assert resumed.passed, str(resumed)
    assert len(resumed.named("ok")) == 10


def test_a_pipeline_goes_on_from_one_process() -> None:
    config = language(mesh={"pp": 2}, data={"batch": 64, "micro_batch": 8, "sources": [{"path": "text"}]})
    assert check_task(config).of("layout").status == "ok"
    assert check_task_resume(config).of("processes").status == "ok"


def test_a_classifier_passes(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    samples = [
        {"__key__": str(number), "npy": draw.integers(0, 255, (3, 8, 8), np.uint8), "cls": int(draw.integers(0, 3))}
        for number in range(64)
    ]
    tar.write(tmp_path / "images", samples)
    shape = {"classes": 3, "image": 8, "patch": 4, "dim": 64, "layers": 4}
    raw = {"task": "classify", "steps": 20, "model": shape, "data": {"batch": 16, "sources": [{"path": "images"}]}}
    report = check_task(read_config({**raw, "optimizer": {"lr": 1e-3}}))
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Correct", set()), ("MeanLoss", {"accumulation", "layout"}), ("BatchMean", {"accumulation", "layout"})],
)
def test_a_mistake_of_a_task_is_caught(name: str, expected: set[str]) -> None:
    report = check_task(own(name))
    assert set(report.named("failed")) == expected, str(report)


def test_what_a_task_keeps_beside_its_checkpoints_is_found() -> None:
    report = check_task_resume(own("Counter"))
    assert report.named("failed") == ["metrics", "processes"], str(report)
    assert check_task_resume(own("Correct", model={"dropout": 0.1})).passed


def test_sizes_that_fit_are_left_and_those_of_a_shape_fit_each_other() -> None:
    small, notes = tiny(language(model={"dim": 48, "heads": 4, "kv_heads": 4, "layers": 1}))
    assert (small.model["dim"], small.model["layers"]) == (48, 1)
    assert small.model["sequence"] == 32
    wide, _ = tiny(language())
    assert (wide.model["dim"], wide.model["heads"], wide.model["kv_heads"]) == (64, 4, 2)
    whole, _ = tiny(language(), full_size=True)
    assert (whole.model["dim"], whole.data.batch) == (512, 64)
    assert "batch 64 → 8" in notes[0]
    assert [str(each) for each in layouts(language(mesh={"fsdp": "auto", "tp": 4}))] == ["fsdp 2", "tp 2"]


def test_the_command_prints_writes_and_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"task": "preflight_tasks:MeanLoss", "steps": 50, "data": {"batch": 16}}))
    assert main([str(file), "optimizer.lr=1e-2", "--level", "unit", "--json", "report.json"]) == FAILED
    printed = capsys.readouterr().out
    assert "FAILED  accumulation" in printed
    assert "NOT passed" in printed
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["version"], found["passed"]) == (1, False)
    (report,) = found["reports"]
    named = {each["name"]: each for each in report["checks"]}
    assert set(named["layout"]) == {"rung", "name", "proves", "status", "detail", "hint", "numbers", "seconds"}
    assert named["accumulation"]["status"] == "failed"
    assert main([str(file), "optimizer.lr=1e-2", "--level", "unit", "--skip", "accumulation", "--skip", "layout"]) == 0
    assert main([str(file), "stepps=3"]) == MISTAKEN
    assert "Traceback" not in capsys.readouterr().err


def test_a_configuration_with_mistakes_is_refused() -> None:
    with pytest.raises(ConfigError, match="heads"):
        check_task(language(model={"layers": 6, "heads": 7}))
