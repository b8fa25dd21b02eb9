"""What every importer keeps: it finds the same runs each time and wherever they lie, reads the same of them, changes
nothing, and takes nothing that is not of its tool."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from muster.foreign import tbevent
from muster.foreign.tfrecord import framed
from muster.track.importers import IMPORTERS
from muster.track.importers.base import FoundRun
from muster.track.importers.spool import Encoder
from transfer_kit import FIXTURES


def copied(name: str) -> Callable[[Path], None]:
    return lambda folder: shutil.copytree(FIXTURES / name, folder, dirs_exist_ok=True)  # type: ignore[return-value]


def tensorboard(folder: Path) -> None:
    events = [tbevent.first_event(1.0), *(tbevent.event(2.0, step, tbevent.scalar("loss", 0.5)) for step in range(3))]
    (folder / "run").mkdir()
    (folder / "run" / "events.out.tfevents.0000000001.host").write_bytes(b"".join(map(framed, events)))


def optuna_journal(folder: Path) -> None:
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "studies.log"))
    storage = optuna.storages.JournalStorage(backend)
    for name in ("lr", "wd"):
        study = optuna.create_study(storage=storage, study_name=name, sampler=optuna.samplers.RandomSampler(1))
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)


SAMPLES: dict[str, Callable[[Path], None]] = {
    "wandb": copied("wandb-0.31"),
    "ray-tune": copied("ray-tune-2.60"),
    "optuna": optuna_journal,
    "tensorboard": tensorboard,
}


def told(found: list[FoundRun]) -> list[tuple[str, str, str, float, str]]:
    return [(one.key, one.name, one.parent, one.created_at, one.fingerprint()) for one in found]


def read(name: str, found: FoundRun) -> tuple[bytes, object]:
    encoder = Encoder(found.created_at)
    return b"".join(piece.data for piece in encoder.pieces(IMPORTERS.get(name).read(found))), encoder.ended


def content(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def test_every_importer_has_a_sample() -> None:
    assert set(SAMPLES) == set(IMPORTERS)


@pytest.mark.parametrize("name", sorted(IMPORTERS))
class TestImporter:
    def test_it_finds_and_reads_the_same_again_and_elsewhere(self, name: str, tmp_path: Path) -> None:
        here = tmp_path / "here"
        here.mkdir()
        SAMPLES[name](here)
        before = content(here)
        found = IMPORTERS.get(name).find(here)
        assert found
        assert told(found) == told(IMPORTERS.get(name).find(here))
        items = [read(name, one) for one in found]
        assert items == [read(name, one) for one in found]
        assert all(data for data, _ in items)
        assert content(here) == before, "an import reads"
        there = tmp_path / "there" / "here"
        shutil.copytree(here, there)
        again = IMPORTERS.get(name).find(there)
        assert told(again) == told(found)
        assert [read(name, one) for one in again] == items

    def test_a_run_is_found_once_and_after_the_one_that_it_belongs_to(self, name: str, tmp_path: Path) -> None:
        SAMPLES[name](tmp_path)
        seen: set[str] = set()
        for one in IMPORTERS.get(name).find(tmp_path):
            assert one.key not in seen
            assert not one.parent or one.parent in seen
            assert one.tool == name
            seen.add(one.key)

    def test_it_leaves_alone_what_is_of_another_tool(self, name: str, tmp_path: Path) -> None:
        for other, make in SAMPLES.items():
            if {name, other} not in ({"tensorboard", "ray-tune"}, {name}):
                (tmp_path / other).mkdir()
                make(tmp_path / other)
                assert not IMPORTERS.get(name).find(tmp_path / other)
        odd = tmp_path / "odd"
        odd.mkdir()
        for file, text in (("params.json", "[1"), ("a.db", "SQLite format 3\0and no more"), ("b.log", '{"op_code": 1}'),
                           ("result.json", ""), ("experiment_state-x.json", "{"), ("c", "\x00\xff")):  # fmt: skip
            (odd / file).write_text(text)
        assert not IMPORTERS.get(name).find(odd)
        assert not IMPORTERS.get(name).find(tmp_path / "nowhere")
