"""`muster scan`: files and folders, with no server; what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from pickle_kit import acts, torch_zip
from typer.testing import CliRunner

from muster.cli.call import reset
from muster.cli.scan import scan

KEY = "gh" + "p_" + "q7Xw2LmZ9kRt4VbN8sYc1Hd6Pf3Gj5TaEuKo"


def run(*arguments: str):
    app = typer.Typer()
    app.command()(scan)
    reset()
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "ignored").mkdir()
    (tmp_path / "ignored" / "x.py").write_text(f"k = '{KEY}'")
    return tmp_path


def test_nothing_is_found(folder: Path) -> None:
    found = run(str(folder))
    assert found.exit_code == 0, found.output
    assert "2 files, no findings" in found.output


def test_what_is_found_is_named_with_what_to_do(folder: Path) -> None:
    (folder / "keys.py").write_text(f"import x\nk = '{KEY}'\n")
    (folder / "model.pt").write_bytes(torch_zip(acts(2)))
    (folder / "gone").symlink_to("/nowhere")
    found = run(str(folder), "--json")
    assert found.exit_code == 1
    doc = json.loads(found.stdout)
    places = {(one["sort"], one["place"].removeprefix(str(folder))) for one in doc["findings"]}
    assert ("secret", "/keys.py:2") in places
    assert any(sort == "unsafe" and "data.pkl in " in place for sort, place in places)
    assert len(places) == 2
    assert KEY not in found.output
    words = run(str(folder / "model.pt")).output
    assert "could run code when it is loaded: io.open" in words


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert run(str(tmp_path / "x")).exit_code != 0
