"""`muster init`: what it writes, what it refuses, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from muster.cli.init import copy, find, init, templates
from muster.core.errors import Invalid

NAMES = ["data", "ddp", "eval", "lora", "single", "sklearn", "tune"]


def _run(*arguments: str):
    app = typer.Typer()
    app.command()(init)
    return CliRunner().invoke(app, list(arguments))


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _refusal(*arguments: str) -> Invalid:
    result = _run(*arguments)
    assert isinstance(result.exception, Invalid), result.output
    return result.exception


def test_every_template_is_listed_with_its_title():
    result = _run("--list")
    assert result.exit_code == 0
    assert all(name in result.output for name in NAMES)
    listed = json.loads(_run("--list", "--json").output)["templates"]
    assert [one["name"] for one in listed] == NAMES
    every = {"job.yaml", "README.md", "requirements.txt", "tests/test_job.py", ".github/workflows/ci.yml", ".gitignore"}
    assert all(every < set(one["files"]) and one["title"] for one in listed)
    assert not any("__pycache__" in name or name.endswith(".pyc") for one in listed for name in one["files"])


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_copied_byte_for_byte(name, tmp_path):
    target = tmp_path / "a b" / name
    result = _run("--template", name, str(target))
    assert result.exit_code == 0, result.output
    root, made = Path(__file__).parents[2] / "src" / "muster" / "templates", find(name)
    assert _files(target) == list(made.files)
    assert all((target / file).read_bytes() == source.read_bytes() for file, source in made.sources.items())
    own = [path for path in _files(root / name) if "__pycache__" not in path]
    assert all((target / file).read_bytes() == (root / name / file).read_bytes() for file in own)
    first = "muster tune study.yaml" if name == "tune" else "muster run job.yaml"
    assert f"cd '{target}' && {first}" in result.output


def test_the_folder_is_named_after_the_template_unless_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = json.loads(_run("-t", "single", "--json").output)
    assert document["directory"] == "single"
    assert document["next"] == "cd single && muster run job.yaml"
    assert document["files"] == _files(tmp_path / "single")


def test_the_present_folder_needs_no_cd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert json.loads(_run("-t", "single", ".", "--json").output)["next"] == "muster run job.yaml"


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path):
    (tmp_path / "train.py").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine too")
    error = _refusal("--template", "single", str(tmp_path))
    assert "train.py" in error.message
    assert "overwritten" in error.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "train.py"]
    assert (tmp_path / "train.py").read_text() == "mine"


def test_a_project_that_has_a_ci_file_keeps_it(tmp_path):
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    (tmp_path / ".github" / "workflows" / "ci.yml").write_text("mine")
    assert ".github/workflows/ci.yml" in _refusal("-t", "data", str(tmp_path)).message
    assert _files(tmp_path) == [".github/workflows/ci.yml"]


def test_other_files_may_stand_beside_it(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    copy(find("single"), tmp_path)
    assert (tmp_path / "job.yaml").is_file()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    assert "is a file" in _refusal("-t", "ddp", str(tmp_path / "taken")).message


@pytest.mark.parametrize(
    ("given", "meant"), [("dpp", "ddp"), ("DDP", "ddp"), ("singel", "single"), ("sklaern", "sklearn")]
)
def test_a_misspelt_name_is_met_with_what_was_probably_meant(given, meant):
    error = _refusal("--template", given)
    assert repr(given) in error.message
    assert f"Did you mean `{meant}`?" in error.hint


def test_an_unknown_name_is_met_with_the_names_there_are():
    error = _refusal("--template", "zzzzzz")
    assert "Did you mean" not in error.hint
    assert all(one.name in error.hint for one in templates())
    assert all(name in _refusal().hint for name in NAMES)
