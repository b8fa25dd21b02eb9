"""Runs side by side: differences first, snapshots by file, and groups of seeds, on both databases."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from ask_kit import write_runs

from muster.core.errors import Invalid
from muster.track.blob_refs import in_use
from muster.track.blobs import Blobs
from muster.track.compare import Comparer
from muster.track.experiments import Experiments
from muster.track.open_blob_store import open_blob_store
from muster.track.query import QueryError
from muster.track.record_db import RecordDb
from muster.track.runs import Runs
from muster.track.search import Search


@pytest.fixture
def comparer(db: RecordDb, tmp_path: Path) -> Comparer:
    blobs = Blobs(db, open_blob_store("", tmp_path), in_use)
    return Comparer(db, Runs(db, Experiments(db)), Search(db), blobs)


def snapshot(blobs: Blobs, files: dict[str, bytes]) -> str:
    """The digest of a manifest whose files are all there."""
    digests = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    manifest = json.dumps({path: [digests[path], len(data), 0o644] for path, data in files.items()}).encode()
    tree = hashlib.sha256(manifest).hexdigest()
    blobs.put_many([*((digests[path], data) for path, data in files.items()), (tree, manifest)])
    return tree


def environment(torch: str, python: str = "3.11.4") -> dict[str, Any]:
    return {"environment": {"python": {"version": python}, "packages": {"torch": torch, "numpy": "2.4.6"}}}


def test_differences_come_by_space_and_the_same_is_counted(db: RecordDb, comparer: Comparer) -> None:
    spec = {"name": "x", "run": "python train.py", "resources": {"cpus": 4}, "envs": {"A": "1"}}
    write_runs(
        db,
        {
            "id": "a-1", "params": {"lr": "3e-4", "depth": 12, "only": "a"}, "data": ["c4-en@v3", "wiki"],
            "code_commit": "1" * 40, "code_branch": "main", "doc": {**environment("2.1"), "spec": spec},
        },
        {
            "id": "b-2", "params": {"lr": "0.0003", "depth": 24}, "data": ["c4-en@v4", "wiki"],
            "code_commit": "2" * 40, "code_branch": "main",
            "doc": {**environment("2.10"), "spec": {**spec, "name": "y", "resources": {"cpus": 8}}},
        },
    )  # fmt: skip
    found = comparer.compare(["a-1", "b-2"], everything=True)
    rows = {space: {row["name"]: row["values"] for row in rows} for space, rows in found["differences"].items()}
    assert rows == {
        "params": {"depth": ["12", "24"], "only": ["a", None]},  # 3e-4 is 0.0003
        "configuration": {"resources.cpus": ["4", "8"]},
        "environment": {},
        "packages": {"torch": ["2.1", "2.10"]},  # but these versions are two
        "code": {"commit": ["1" * 40, "2" * 40]},
        "data": {"c4-en": ["v3", "v4"]},
    }
    assert found["same"] == {
        "params": 1, "configuration": 2, "environment": 1, "packages": 1, "code": 2, "data": 1,
    }  # fmt: skip
    assert found["equal"]["packages"] == [{"name": "numpy", "values": ["2.4.6", "2.4.6"]}]
    assert found["files"] is None
    assert found["significance"] is None


def test_snapshots_are_compared_by_file_and_by_line(db: RecordDb, comparer: Comparer) -> None:
    one = snapshot(
        comparer.blobs, {"a.py": b"x = 1\ny = 2\n", "old.py": b"gone\n", "same.py": b"s\n", "b.bin": b"\xff"}
    )
    two = snapshot(
        comparer.blobs, {"a.py": b"x = 1\ny = 3\n", "new.py": b"come\n", "same.py": b"s\n", "b.bin": b"\xfe"}
    )
    runs = [{"id": "a-1", "code_tree": one}, {"id": "b-2", "code_tree": two}, {"id": "c-3", "code_tree": one}]
    write_runs(db, *runs, {"id": "d-4", "code_tree": "f" * 64})
    files = comparer.compare(["a-1", "b-2", "c-3", "d-4"], lines=True)["files"]
    assert files["base"] == "a-1"
    changed, lost = files["changes"]
    assert {key: changed[key] for key in ("run", "added", "removed", "changed")} == {
        "run": "b-2", "added": ["new.py"], "removed": ["old.py"], "changed": ["a.py", "b.bin"],
    }  # fmt: skip
    assert "-y = 2\n+y = 3\n" in changed["diff"]
    assert "+come\n" in changed["diff"]
    assert "b.bin: large or no text" in changed["diff"]
    assert (lost["run"], bool(lost["problem"])) == ("d-4", True)


def seeds(lr: float, values: list[float], start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "id": f"r-{lr}-{start + i}",
            "params": {"lr": lr, "opt.seed": i},
            "metrics": {"val_loss": value, "acc": -value},
        }
        for i, value in enumerate(values)
    ]


class TestSeeds:
    def test_groups_differ_in_their_seed_alone(self, db: RecordDb, comparer: Comparer) -> None:
        runs = [*seeds(0.1, [1.0, 1.1, 0.9, 1.05, 0.95]), *seeds(0.2, [2.0, 2.1, 1.9, 2.05, 1.95])]
        write_runs(db, *runs)
        found = comparer.compare([run["id"] for run in runs])["significance"]
        assert (found["metric"], found["mode"]) == ("val_loss", "min")
        assert [(g["label"], g["count"], g["best"]) for g in found["groups"]] == [
            ("lr=0.1", 5, True),
            ("lr=0.2", 5, False),
        ]
        (one,) = found["differences"]
        assert one["labels"] == ["lr=0.1", "lr=0.2"]
        assert one["difference"] == pytest.approx(-1.0)
        assert one["adjusted"] == one["p"] < 1e-5
        assert found["notes"] == []

    def test_higher_is_better_where_the_name_says_so_or_one_says_it(self, db: RecordDb, comparer: Comparer) -> None:
        runs = [*seeds(0.1, [1.0, 1.1]), *seeds(0.2, [2.0, 2.1])]
        write_runs(db, *runs)
        ids = [run["id"] for run in runs]

        def best(**asked: Any) -> str:
            groups = comparer.compare(ids, **asked)["significance"]["groups"]
            return next(group["label"] for group in groups if group["best"])

        assert best(metric="acc") == "lr=0.1"
        assert best(metric="acc", mode="min") == "lr=0.2"
        assert best(metric="val_loss.max", mode="max") == "lr=0.2"

    def test_what_keeps_an_answer_from_meaning_much_is_said(self, db: RecordDb, comparer: Comparer) -> None:
        runs = [*seeds(0.1, [1.0]), *seeds(0.2, [2.0]), *seeds(0.3, [3.0, float("nan")])]
        write_runs(db, *runs)
        ids = [run["id"] for run in runs]
        found = comparer.compare(ids)["significance"]
        assert "several seeds" in found["notes"][0]
        assert [one["adjusted"] for one in found["differences"]] == [None, None, None]
        assert found["left_out"] == ["r-0.3-1"]
        assert "one group" in comparer.compare(ids[2:])["significance"]["notes"][0]

    def test_groups_by_a_field_and_by_other_names_of_a_seed(self, db: RecordDb, comparer: Comparer) -> None:
        runs = [*seeds(0.1, [1.0, 1.1]), *seeds(0.2, [2.0, 2.1])]
        for i, run in enumerate(runs):
            run["params"]["fold"] = i % 2
            run["tags"] = {"team": "x" if i else "y"}
        write_runs(db, *runs)
        ids = [run["id"] for run in runs]
        assert len(comparer.compare(ids)["significance"]["groups"]) == 4
        assert len(comparer.compare(ids, by=["fold", "seed"])["significance"]["groups"]) == 2
        grouped = comparer.compare(ids, group="tags.team")["significance"]["groups"]
        assert [(one["label"], one["count"]) for one in grouped] == [("tags.team = y", 1), ("tags.team = x", 3)]


def test_runs_of_a_search_that_differ_in_all_parameters_are_compared_without_a_test(
    db: RecordDb, comparer: Comparer
) -> None:
    runs: list[dict[str, Any]] = [
        {"id": f"s-{i}", "params": {f"p{j}": i + j for j in range(60)}, "metrics": {"val_loss": float(i)}}
        for i in range(60)
    ]
    write_runs(db, *runs)
    found = comparer.compare([run["id"] for run in runs])
    assert len(found["runs"]) == 60
    assert len(found["differences"]["params"]) == 60
    assert found["significance"] is not None
    assert (found["significance"]["groups"], found["significance"]["differences"]) == ([], [])
    assert "fall into 60 groups" in found["significance"]["notes"][0]
    few = comparer.compare([run["id"] for run in runs[:50]])["significance"]
    assert few is not None
    assert len(few["groups"]) == 50


def test_what_can_not_be_compared_is_refused(db: RecordDb, comparer: Comparer) -> None:
    write_runs(db, *seeds(0.1, [1.0, 2.0]))
    with pytest.raises(Invalid, match="1 run to compare"):
        comparer.compare(["r-0.1-0", "r-0.1-0"])
    with pytest.raises(Invalid, match="has a metric 'oops'"):
        comparer.compare(["r-0.1-0", "r-0.1-1"], metric="oops")
    with pytest.raises(QueryError):
        comparer.compare(["r-0.1-0", "r-0.1-1"], group="oops")
