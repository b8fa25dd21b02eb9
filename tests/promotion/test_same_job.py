"""Which runs are of the same job: by what was accepted, so that nobody chooses the seeds that count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.track.same_job import devices_of, is_seed
from record_kit import Record, open_record

TREE = {"tree": "aa" * 32}


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    with open_record(f"sqlite:///{tmp_path}/m.db", tmp_path / "home") as found:
        yield found


def submit(record: Record, run: str = "train.py --seed 1 --lr 3", **fields: Any) -> str:
    return record.submit(run, **{"code": TREE, **fields})


def same(record: Record, run: str) -> list[str]:
    return [one.id for one in record.track.same_job.of(record.track.runs.need(run))]


def replicates(record: Record, run: str) -> list[str]:
    return [one.id for one in record.track.same_job.replicates(record.track.runs.need(run))]


def test_seeds_and_scale_make_no_other_job(record: Record):
    first = submit(record)
    alike = [
        submit(record, "train.py --seed=7 --lr 3"),
        submit(record, "train.py --seed 1 --lr 3", envs={"SEED": "4", "PATH": "/x"}),
        submit(record, "train.py --seed 1 --lr 3", user="bob"),
    ]
    larger = submit(record, num_nodes=2)
    assert same(record, first) == [first, *alike, larger]
    assert replicates(record, first) == [first, *alike]
    assert replicates(record, larger) == [larger]


@pytest.mark.parametrize(
    "fields",
    [
        {"run": "train.py --seed 1 --lr 4"},
        {"run": "train.py --seed 1 --lr 3 --more"},
        {"envs": {"LR": "1"}},
        {"code": {"tree": "bb" * 32}},
        {"code": {}},
        {"data": ["c4@v2"]},
        {"image": "other"},
        {"project": "beta"},
        {"name": "other"},
        {"kind": "eval"},
    ],
)
def test_anything_else_does(record: Record, fields: dict[str, Any]):
    first = submit(record)
    other = submit(record, **fields)
    assert same(record, first) == [first]
    assert same(record, other) == [other]


def test_a_parameter_that_a_program_reports_sets_replicates_apart(record: Record):
    runs = [submit(record) for _ in range(3)]
    for run, lr in zip(runs, ("0.1", "1e-1", "0.2"), strict=True):
        record.start(run)
        record.report(run, {"type": "params", "values": {"lr": lr, "trainer.seed": run}})
    assert replicates(record, runs[0]) == runs[:2]
    assert same(record, runs[0]) == runs


def test_a_hidden_run_counts(record: Record):
    """Otherwise a seed that did badly could be hidden."""
    first, bad = submit(record), submit(record)
    record.track.runs.hide(bad, "eve")
    assert replicates(record, first) == [first, bad]


def test_devices_and_seeds():
    for accelerators, devices in ((0, 6), (4, 8)):
        spec = {"num_nodes": 2, "nproc": 3, "resources": {"accelerators": accelerators}}
        assert devices_of(SimpleNamespace(doc={"spec": spec})) == devices  # type: ignore[arg-type]
    assert is_seed("SEED")
    assert is_seed("trainer.seed")
    assert not is_seed("seedling")
