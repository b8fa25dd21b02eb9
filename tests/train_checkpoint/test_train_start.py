"""A run of `muster.train` that starts from another run's checkpoint: taken into its own store, by whichever store."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from ckpt_kit import check_loads, names, save

from gang_kit import GangFailure, gang
from muster import wire
from muster.runtime import StartMissing as RuntimeStartMissing
from muster.runtime import last_checkpoint
from muster.runtime.verdict import classify_exit
from muster.train.checkpoint import Saver, newest
from muster.train.checkpoint import start as start_module
from muster.train.checkpoint.bucket import Bucket, open_bucket
from muster.train.errors import StartMissing


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (wire.START_FROM, wire.START_STEP, wire.CHECKPOINT_KNOWN, wire.CHECKPOINT_SINCE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(wire.CHECKPOINT_WAIT, "0")


def start_from(monkeypatch: pytest.MonkeyPatch, where: Path | str, step: int | None = None) -> None:
    monkeypatch.setenv(wire.START_FROM, str(where))
    if step is not None:
        monkeypatch.setenv(wire.START_STEP, str(step))


def objects(where: str) -> list[str]:
    return sorted(each["path"] for page in open_bucket(where).store.list() for each in page)


def begins(where: Path | str) -> int | None:
    """The step that a run begins with."""
    with Saver(where) as saver:
        found = saver.newest()
        if found is not None:
            check_loads(found, found.step)
        return found.step if found is not None else None


def test_the_store_copies_it_and_the_source_can_be_removed(bucket, monkeypatch):
    source, own = f"{bucket}/runs/gpt-1", f"{bucket}/runs/tune-2"
    save(source, 1, 2, 3)
    start_from(monkeypatch, source)
    reads: list[str] = []
    real = Bucket.put

    def put(self: Bucket, name: str, data: memoryview) -> int:
        reads.append(name)
        return real(self, name, data)

    monkeypatch.setattr(Bucket, "put", put)
    assert begins(own) == 3
    assert [name for name in reads if not name.startswith(".")] == ["step-000000003/manifest.json"], "it was uploaded"
    found = newest(own)
    assert (found.manifest.serial, found.manifest.attempt, found.path) == (1, 1, f"{own}/step-000000003")
    save(source, 4)
    store = open_bucket(source)
    for folder in ("step-000000002", "step-000000003", "step-000000004"):
        store.delete(folder)
    assert begins(own) == 3, "it is not taken again"
    monkeypatch.setenv(wire.CHECKPOINT_SINCE, "2")  # `muster resume --from-scratch`
    assert newest(own) is None


def test_a_named_step_and_a_damaged_newest_one(bucket, monkeypatch, capfd):
    source = f"{bucket}/gpt-1"
    save(source, 1, 2, 3)
    store = open_bucket(source)
    data = bytearray(store.get("step-000000003/rank-00000-0.bin"))
    data[9] ^= 1
    store.put("step-000000003/rank-00000-0.bin", memoryview(data))
    start_from(monkeypatch, source)
    assert begins(f"{bucket}/newest") == 2
    assert "step-000000003 is damaged and is not used" in capfd.readouterr().err
    start_from(monkeypatch, source, 1)
    assert begins(f"{bucket}/first") == 1
    start_from(monkeypatch, source, 3)
    with pytest.raises(StartMissing, match=r"there is no checkpoint of step 3 in .*/gpt-1 that verifies"):
        begins(f"{bucket}/third")


def test_what_can_not_be_reached_ends_the_run_and_nothing_begins_at_zero(bucket, monkeypatch):
    for where in (f"{bucket}-elsewhere/gpt-1", f"{bucket}/nobody"):
        start_from(monkeypatch, where)
        with pytest.raises(StartMissing, match=r"gpt-1|nobody"):
            begins(f"{bucket}/own")
    tail = "Traceback (most recent call last):\n  x\nmuster.train.errors.StartMissing: the checkpoint is away\n"
    for text in (tail, "muster: rank 1: StartMissing: the checkpoint is away\n"):
        found = classify_exit(wire.RankExit(0, 1, None, 0.0), 7, text, oom_killed=False)
        assert found == ("start_missing", "the checkpoint is away")


def test_from_a_folder_to_a_bucket_and_back(bucket, monkeypatch, tmp_path):
    save(tmp_path / "gpt-1", 1, 2)
    start_from(monkeypatch, tmp_path / "gpt-1")
    assert begins(f"{bucket}/own") == 2
    start_from(monkeypatch, f"{bucket}/own/")
    assert begins(tmp_path / "own") == 2
    assert names(tmp_path / "own") == ["step-000000002"]


def test_what_the_launcher_has_taken_is_fetched_by_a_program_that_saves_elsewhere(monkeypatch, tmp_path):
    save(tmp_path / "tune-2", 5)  # stands for the launcher, which has taken it
    monkeypatch.setenv(wire.CHECKPOINT_DIR, str(tmp_path / "tune-2"))
    start_from(monkeypatch, tmp_path / "tune-2", 5)
    assert begins(tmp_path / "tune-2") == 5, "where it is, there is nothing to do"
    assert begins(tmp_path / "elsewhere") == 5
    one, other = (next((tmp_path / name).glob("*/rank-00000-0.bin")) for name in ("tune-2", "elsewhere"))
    assert one.stat().st_ino == other.stat().st_ino
    save(tmp_path / "elsewhere", 6)
    assert begins(tmp_path / "elsewhere") == 6


def test_a_program_without_muster_train_is_told_and_does_not_begin_at_zero(monkeypatch, tmp_path):
    monkeypatch.setenv(wire.CHECKPOINT_DIR, str(tmp_path / "tune-2"))
    assert last_checkpoint() is None
    start_from(monkeypatch, "s3://bucket/gpt-1")
    with pytest.raises(RuntimeStartMissing, match="starts from a checkpoint in s3://bucket/gpt-1"):
        last_checkpoint()
    assert last_checkpoint(tmp_path / "of its own") is None
    start_from(monkeypatch, tmp_path / "tune-2")
    assert last_checkpoint() is None


def test_a_source_that_removes_it_meanwhile_gives_the_next(bucket, monkeypatch):
    source = f"{bucket}/gpt-1"
    save(source, 1, 2)
    start_from(monkeypatch, source)
    real, turns = start_module._copy, []

    def copy(*args) -> str:
        if not turns:
            turns.append(1)
            save(source, 3, keep=1)
        return real(*args)

    monkeypatch.setattr(start_module, "_copy", copy)
    assert begins(f"{bucket}/own") == 3
    assert {name.partition("/")[0] for name in objects(f"{bucket}/own")} <= {"step-000000003", ".clock"}


def killed(source: str, own: str, number: int) -> None:
    """Killed before it copies an object, or writes one."""
    os.environ[wire.START_FROM], os.environ[wire.CHECKPOINT_WAIT] = source, "0"
    count, turn = 0, threading.Lock()
    reals = {name: getattr(Bucket, name) for name in ("copy", "put")}

    def watch(name: str):
        def call(self: Bucket, target: str, *more: object) -> object:
            nonlocal count
            with turn:
                count += not target.startswith(".")
                if count == number and not target.startswith("."):
                    os.kill(os.getpid(), signal.SIGKILL)
                return reals[name](self, target, *more)

        return call

    for name in reals:
        setattr(Bucket, name, watch(name))
    with Saver(own) as saver:
        saver.newest()


def test_killed_at_any_object_it_is_there_as_a_whole_or_not_at_all(s3, monkeypatch):
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    bucket = s3.address()
    source, own = f"{bucket}/gpt-1", f"{bucket}/tune-2"
    save(source, 1, 2)
    count = len(newest(source).manifest.files)
    for number in range(1, count + 2):
        with pytest.raises(GangFailure):
            gang(1, killed, source, own, number, group=False)
        assert newest(own) is None
    gang(1, killed, source, own, count + 2, group=False)
    check_loads(newest(own), 2)
    left = [name.partition("/")[0] for name in objects(own) if not name.startswith(".")]
    assert len(set(left)) == 1, "what a killed one left is gone"


def two_ranks(source: str, own: str) -> list[int | None]:
    os.environ[wire.START_FROM], os.environ[wire.CHECKPOINT_WAIT] = source, "0"
    with Saver(own) as saver:
        found = saver.newest()
        return [found.step if found is not None else None, found.manifest.serial if found is not None else None]


def refused(source: str, own: str) -> str:
    try:
        two_ranks(source, own)
    except StartMissing as error:
        return str(error)
    return ""


def test_all_ranks_begin_with_the_same(bucket):
    save(f"{bucket}/gpt-1", 1, 2)
    assert gang(2, two_ranks, f"{bucket}/gpt-1", f"{bucket}/own") == [[2, 1], [2, 1]]
    told = gang(2, refused, f"{bucket}/nobody", f"{bucket}/another")
    assert len(told) == 2
    assert all("/nobody" in one for one in told), told  # each of them, whichever is first
