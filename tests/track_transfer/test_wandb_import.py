"""W&B's offline runs, as two versions of the real wandb wrote them; whole and damaged."""

from __future__ import annotations

import math
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from muster.foreign import blocklog
from muster.foreign.tfrecord import Damage
from muster.track.importers import IMPORTERS
from muster.track.importers.base import Ended, Facts, FoundRun, ImportedFile, ImportedMedium, Item, LeftOut, Rows
from transfer_kit import FIXTURES

READER = IMPORTERS.get("wandb")
VERSIONS = ("wandb-0.16", "wandb-0.31")


def found(path: Path) -> FoundRun:
    (one,) = READER.find(path)
    return one


def points(items: list[Item], name: str) -> list[tuple[int, float]]:
    rows = [item for item in items if isinstance(item, Rows) and name in item.names]
    return [(row.steps[0], row.values[0][row.names.index(name)]) for row in rows]


@pytest.mark.parametrize("version", VERSIONS)
class TestOfflineRun:
    def items(self, version: str) -> list[Item]:
        return list(READER.read(found(FIXTURES / version)))

    def test_it_is_named_for_ever(self, version: str, tmp_path: Path) -> None:
        shutil.copytree(FIXTURES / version, tmp_path / "elsewhere")
        here, there = found(FIXTURES / version), found(tmp_path / "elsewhere")
        assert here.key == there.key
        assert here.fingerprint() == there.fingerprint()
        assert (here.name, here.tool, here.purpose) == ("first", "wandb", "the first try")
        assert here.key.startswith("wandb:team/digits/")

    def test_history(self, version: str) -> None:
        items = self.items(version)
        assert points(items, "loss") == [(step, 1 / (step + 1)) for step in range(20)]
        assert points(items, "nested.a") == [(step, float(step)) for step in range(20)]
        assert points(items, "train/acc")[-1] == (19, 0.95)
        assert math.isnan(points(items, "bad")[0][1])
        assert points(items, "big") == [(25, math.inf)]
        assert points(items, "neg") == [(25, -math.inf)]
        assert points(items, "flag") == [(25, 1.0)]

    def test_times_are_those_of_the_history(self, version: str) -> None:
        one = found(FIXTURES / version)
        times = [item.times[0] for item in READER.read(one) if isinstance(item, Rows)]
        assert times == sorted(times)
        assert all(one.created_at <= time < one.created_at + 60 for time in times)

    def test_configuration_with_its_change_and_tags(self, version: str) -> None:
        facts = [item for item in self.items(version) if isinstance(item, Facts)]
        assert facts[0].params == {
            "lr": 3e-4, "layers": [64, 32], "opt.name": "adam", "opt.betas": [0.9, 0.999], "seed": 1,
        }  # fmt: skip
        assert [item.params for item in facts[1:] if item.params] == [{"lr": 1e-4}]
        tags = facts[0].tags
        assert (tags["baseline"], tags["wandb.group"], tags["job_type"]) == ("true", "seeds", "train")

    def test_media(self, version: str) -> None:
        media = {item.name: item for item in self.items(version) if isinstance(item, ImportedMedium)}
        assert media["h"].data["counts"] == [2.0] * 5
        assert media["h"].data["edges"][0] == 0.0
        assert media["h"].data["edges"][-1] == 9.0
        assert (media["im"].mime, media["im"].step) == ("image/png", 30)
        assert media["t"].data == {"columns": ["a", "b"], "rows": [[1, "x"], [2, "y"]]}
        assert media["note"].data == {"text": "some text"}

    def test_summary_files_and_what_is_left_out(self, version: str) -> None:
        items = self.items(version)
        assert points(items, "best") == [(30, 0.05)]
        kept = {item.path: item.file for item in items if isinstance(item, ImportedFile)}
        assert kept["model.txt"].read_text() == "weights\n"
        assert not any(path.startswith("media/") for path in kept)
        left = [item.what for item in items if isinstance(item, LeftOut)]
        assert "1 values of 'l' that are lists" in left

    def test_how_it_ended(self, version: str) -> None:
        ended = self.items(version)[-1]
        assert isinstance(ended, Ended)
        assert ended.outcome == ("failed" if version == "wandb-0.16" else "succeeded")

    def test_reading_it_twice_is_the_same(self, version: str) -> None:
        def text() -> list[str]:  # NaN is not equal to itself
            return [repr(item) for item in self.items(version)]

        assert text() == text()

    @pytest.mark.parametrize("cut", [1, 7, 500, 3000])
    def test_a_log_that_is_cut_off(self, version: str, cut: int, tmp_path: Path) -> None:
        shutil.copytree(FIXTURES / version, tmp_path / "run")
        log = next(tmp_path.rglob("*.wandb"))
        log.write_bytes(log.read_bytes()[:-cut])
        items = list(READER.read(found(tmp_path)))
        assert points(items, "loss")[0] == (0, 1.0)
        assert [item for item in items if isinstance(item, Damage)]
        ended = items[-1]
        assert isinstance(ended, Ended)
        if cut == 3000:  # the exit is among what is gone
            assert ended.outcome == "stopped"


def test_the_environment_that_was_captured() -> None:
    items = list(READER.read(found(FIXTURES / "wandb-0.31")))
    (environment,) = [item.environment for item in items if isinstance(item, Facts) and item.environment]
    assert environment["packages"]["numpy"] == "2.4.6"
    assert environment["host"]["name"] == "trainer"


def test_a_damaged_block_costs_that_block_alone(tmp_path: Path) -> None:
    """The log is cut into blocks of 32 kB: what follows a damaged one is still read."""
    made = _log([b"a" * 40_000, b"b" * 10, b"c" * 30_000, b"d" * 10])
    path = tmp_path / "run-x.wandb"
    path.write_bytes(made)
    whole = [record for record in blocklog.records(path) if isinstance(record, bytes)]
    assert [record[:1] for record in whole] == [b"a", b"b", b"c", b"d"]
    damaged = bytearray(made)
    damaged[100] ^= 1
    path.write_bytes(damaged)
    read = list(blocklog.records(path))
    assert isinstance(read[0], Damage)
    assert [record[:1] for record in read if isinstance(record, bytes)] == [b"b", b"c", b"d"]


def test_files_that_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "run-x.wandb").write_bytes(b"something else")
    (tmp_path / "run-y.wandb").write_bytes(b"")
    (tmp_path / "run-z.wandb").write_bytes(_log([b"\xff\xff"]))
    assert READER.find(tmp_path) == []


def test_a_link_to_the_latest_run_is_not_a_second_one(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "wandb-0.31", tmp_path / "wandb")
    (tmp_path / "wandb" / "latest-run").symlink_to(next((tmp_path / "wandb").glob("offline-run-*")).name)
    assert len(READER.find(tmp_path)) == 1


def test_a_link_that_the_log_does_not_name_is_not_followed(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "wandb-0.31", tmp_path / "wandb")
    (tmp_path / "secret.txt").write_text("private")
    folder = next(tmp_path.rglob("files"))
    (folder / "leak.txt").symlink_to(tmp_path / "secret.txt")
    kept = [item.path for item in READER.read(found(tmp_path)) if isinstance(item, ImportedFile)]
    assert "leak.txt" not in kept
    assert "model.txt" in kept


def _log(records: list[bytes]) -> bytes:
    """A log as LevelDB cuts it."""
    made = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        first = True
        while first or record:
            left = 32768 - len(made) % 32768
            if left < 7:
                made += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if first else 4) if not record else (2 if first else 3)
            made += struct.pack("<IHB", zlib.crc32(bytes((kind,)) + part), len(part), kind) + part
            first = False
    return bytes(made)
