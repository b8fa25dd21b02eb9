"""What every exporter keeps: all runs and points it was given are in the folder, written again they are the same, and
nothing half written stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.track.exporters import EXPORTERS
from muster.track.exporters.base import Facts, Medium, Series, file_name
from transfer_kit import PNG, GivenRun, series

NAN, INF = float("nan"), float("inf")


def sample(run: str = "gpt-17") -> GivenRun:
    facts = Facts(
        run, "language", "gpt", "ada", purpose="a baseline", created_at=1.7e9, started_at=1.7e9, ended_at=1.7e9 + 60,
        params={"lr": "3e-4", "opt": "adam", "amp": "True"}, tags={"task": "pretrain"}, metrics={"loss": 0.5, "x": NAN},
    )  # fmt: skip
    given = [
        series("loss", range(100), [1 / (step + 1) for step in range(100)]),
        series("loss", [60, 61], [9.0, 8.0], superseded=True),
        series("odd/α", [-5, 0, 2**40, 7], [NAN, INF, -INF, 1e300]),
        series("empty", [], []),
        series("system/cpu", [0, 5], [1.0, 2.0], rank=3),
    ]
    media = [
        Medium("pic", "image", 3, 1.7e9, mime="image/png", content=PNG),
        Medium("weights", "histogram", 3, 1.7e9, data={"edges": [0.0, 1.0, 2.0], "counts": [3, 4]}),
        Medium("rows", "table", 4, 1.7e9, data={"columns": ["a", "b"], "rows": [[1, "x|y"], [2, None]]}),
        Medium("said", "text", 5, 1.7e9, data={"text": "hello"}),
    ]
    return GivenRun(facts, given, media)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", sorted(EXPORTERS))
class TestExporter:
    def test_every_run_is_told_with_its_points_and_media(self, name: str, tmp_path: Path) -> None:
        runs = [sample("a-1"), sample("b-2")]
        told = list(EXPORTERS.get(name).export(runs, tmp_path))
        assert [one.run for one in told] == ["a-1", "b-2"]
        assert [(one.points, one.media) for one in told] == [(106, 4), (106, 4)]
        assert all(one.path.is_dir() and one.path.parent == tmp_path and files(one.path) for one in told)

    def test_superseded_points_come_when_they_are_asked_for(self, name: str, tmp_path: Path) -> None:
        (told,) = EXPORTERS.get(name).export([sample()], tmp_path, superseded=True)
        assert told.points == 108

    def test_written_again_it_is_the_same(self, name: str, tmp_path: Path) -> None:
        list(EXPORTERS.get(name).export([sample()], tmp_path))
        first = files(tmp_path)
        list(EXPORTERS.get(name).export([sample()], tmp_path))
        assert files(tmp_path) == first
        assert not [path for path in first if path.endswith(".part")]

    def test_a_run_without_anything(self, name: str, tmp_path: Path) -> None:
        (told,) = EXPORTERS.get(name).export([GivenRun(Facts("bare", "default"))], tmp_path)
        assert (told.points, told.media) == (0, 0)

    def test_no_runs_at_all(self, name: str, tmp_path: Path) -> None:
        assert list(EXPORTERS.get(name).export([], tmp_path)) == []

    def test_ids_that_are_no_file_names(self, name: str, tmp_path: Path) -> None:
        odd = ["../up", "a/b", ".hidden", "x" * 400, "x" * 401, "ü ö"]
        told = list(EXPORTERS.get(name).export([sample(run) for run in odd], tmp_path / "out"))
        assert len({one.path for one in told}) == len(odd)
        assert {path.name for path in tmp_path.iterdir()} == {"out"}

    def test_what_fails_in_the_midst_leaves_nothing_half_written(self, name: str, tmp_path: Path) -> None:
        class Broken(GivenRun):
            def series(self, superseded: bool = False) -> Iterator[Series]:
                yield series("loss", [1], [1.0])
                raise OSError("the server went away")

        with pytest.raises(OSError, match="went away"):
            list(EXPORTERS.get(name).export([Broken(Facts("broken", "default"))], tmp_path))
        assert files(tmp_path) == {}


def test_file_names_are_short_and_differ_where_the_texts_do() -> None:
    made = [file_name(text) for text in ("a/b", "a%2Fb", "a b", ".", "..", "é" * 300, "é" * 301)]
    assert len(set(made)) == len(made)
    assert all(len(name.encode()) <= 200 and "/" not in name and not name.startswith(".") for name in made)
