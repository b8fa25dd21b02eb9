"""Checkpoints: committed or absent, verified before use, whatever dies or fills up in between."""

from __future__ import annotations

import errno
import json
import random
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from rank_kit import documents, recovered, run, start

from components import small_disk
from live import until
from muster import wire
from muster.runtime import checkpoint, checkpoint_dir, checkpoint_every, last_checkpoint
from muster.runtime.checkpoints import CheckpointError


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (
        wire.RANK,
        wire.RANK_DIR,
        wire.CHECKPOINT_DIR,
        wire.CHECKPOINT_KEEP,
        wire.CHECKPOINT_EVERY,
        wire.ATTEMPT,
    ):
        monkeypatch.delenv(name, raising=False)


def save(folder: Path, step: int, text: str = "") -> None:
    with checkpoint(step, folder) as place:
        (place / "model.bin").write_text(text or f"state {step}" * 100)
        (place / "optim").mkdir()
        (place / "optim" / "shard.0").write_bytes(bytes(step))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_checkpoint_is_named_listed_and_found(tmp_path):
    folder = tmp_path / "a" / "b"
    assert last_checkpoint(folder) is None
    save(folder, 123)
    found = last_checkpoint(folder)
    assert found == folder / "step-000000123"
    assert (found / "model.bin").read_text().startswith("state 123")
    manifest = json.loads((found / "manifest.json").read_text())
    assert (manifest["step"], set(manifest["files"])) == (123, {"model.bin", "optim/shard.0"})
    assert manifest["files"]["optim/shard.0"]["bytes"] == 123
    assert found.stat().st_mode & 0o777 == (folder / "..").stat().st_mode & 0o777


def test_an_exception_leaves_no_trace_but_a_word(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(ZeroDivisionError) as caught, checkpoint(2, tmp_path) as folder:
        (folder / "half").write_text(f"{1 / 0}")
    assert "the checkpoint of step 2 was not saved" in caught.value.__notes__[0]
    assert names(tmp_path) == ["step-000000001"]
    with pytest.raises(KeyboardInterrupt), checkpoint(2, tmp_path):
        raise KeyboardInterrupt
    assert last_checkpoint(tmp_path) == tmp_path / "step-000000001"


def test_the_newest_stay_and_steps_may_go_back(tmp_path, monkeypatch):
    monkeypatch.setenv(wire.CHECKPOINT_KEEP, "2")
    for step in (100, 200, 300):
        save(tmp_path, step)
    assert names(tmp_path) == ["step-000000200", "step-000000300"]
    save(tmp_path, 50)  # went back to an earlier state by hand: this is the newest now
    assert names(tmp_path) == ["step-000000050", "step-000000300"]
    assert last_checkpoint(tmp_path) == tmp_path / "step-000000050"
    save(tmp_path, 60)
    assert names(tmp_path) == ["step-000000050", "step-000000060"]


def test_the_same_step_again_replaces_the_first(tmp_path):
    for text in ("one", "two", "three"):
        save(tmp_path, 7, text)
        assert len(names(tmp_path)) == 1
        assert (last_checkpoint(tmp_path) / "model.bin").read_text() == text
    save(tmp_path, 8)
    assert last_checkpoint(tmp_path).name == "step-000000008"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: flip(folder / "model.bin"), "checksum"),
        (lambda folder: (folder / "model.bin").write_text("short"), "has 5 bytes"),
        (lambda folder: (folder / "optim" / "shard.0").unlink(), "cannot be read"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json cannot be read"),
        (lambda folder: (folder / "manifest.json").write_text('{"step": 3'), "manifest.json cannot be read"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "manifest.json cannot be read"),
    ],
)
def test_a_damaged_one_is_skipped_with_a_warning(tmp_path, capfd, spoil, words):
    for step in (1, 2, 3):
        save(tmp_path, step)
    spoil(tmp_path / "step-000000003")
    assert last_checkpoint(tmp_path) == tmp_path / "step-000000002"
    said = capfd.readouterr().err
    assert "step-000000003 is damaged and is not used" in said
    assert words in said


def test_sizes_alone_may_be_checked(tmp_path):
    save(tmp_path, 1)
    flip(tmp_path / "step-000000001" / "model.bin")
    assert last_checkpoint(tmp_path, checksums=False) is not None
    assert last_checkpoint(tmp_path) is None


def test_damaged_ones_do_not_count_towards_those_that_stay(tmp_path, monkeypatch):
    monkeypatch.setenv(wire.CHECKPOINT_KEEP, "1")
    save(tmp_path, 1)
    monkeypatch.setenv(wire.CHECKPOINT_KEEP, "3")
    save(tmp_path, 2)
    save(tmp_path, 3)
    (tmp_path / "step-000000002" / "model.bin").unlink()
    (tmp_path / "step-000000003" / "manifest.json").unlink()
    monkeypatch.setenv(wire.CHECKPOINT_KEEP, "2")
    save(tmp_path, 4)
    assert {"step-000000001", "step-000000004"} <= set(names(tmp_path))
    save(tmp_path, 5)
    assert names(tmp_path) == ["step-000000004", "step-000000005"]


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        assert file.write(bytes(2 << 20)) < 2 << 20  # as much as there is room for


def test_a_full_disk_leaves_the_older_ones_and_says_so(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        save(disk, 1)
        words = r"No space left.*step 2 was not saved.*are intact.*Free some space"
        with pytest.raises(CheckpointError, match=words), checkpoint(2, disk) as folder:
            (folder / "model.bin").write_bytes(bytes(2 << 20))
        assert names(disk) == ["step-000000001"]
        with pytest.raises(CheckpointError, match=words), checkpoint(2, disk) as folder:
            fill(folder / "fits exactly")  # and leaves no room for the manifest
        assert names(disk) == ["step-000000001"]
        fill(disk / "ballast")
        with pytest.raises(CheckpointError, match=words):
            save(disk, 2)
        (disk / "ballast").unlink()
        assert last_checkpoint(disk) == disk / "step-000000001"
        save(disk, 2)
        assert last_checkpoint(disk) == disk / "step-000000002"


def torch_save(path: Path) -> None:
    """As `torch.save` fails on a full disk: its writer is no Python."""
    raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")


def hidden(path: Path) -> None:
    try:
        path.write_bytes(bytes(2 << 20))
    except OSError as error:
        raise RuntimeError("the model was not written") from error


@pytest.mark.parametrize("write", [hidden, torch_save, lambda path: path.write_bytes(bytes(2 << 20))])
def test_a_quota_a_limit_of_files_and_other_words_are_a_full_disk_too(tmp_path, write):
    save(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        words = r"step 2 was not saved.*are intact.*Free some space"
        with pytest.raises(CheckpointError, match=words), checkpoint(2, tmp_path) as folder:
            write(folder / "model.bin")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["step-000000001"]
    with pytest.raises(PermissionError, match="not yours"), checkpoint(2, tmp_path):
        raise PermissionError(errno.EACCES, "not yours")


def test_what_cannot_be_a_checkpoint_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="no file was saved"), checkpoint(1, tmp_path):
        pass
    with pytest.raises(ValueError, match=r"manifest\.json is Muster's own"), checkpoint(1, tmp_path) as folder:
        (folder / "manifest.json").write_text("mine")
    for target in ("/etc/hostname", "."):
        with pytest.raises(ValueError, match="is a link"), checkpoint(1, tmp_path) as folder:
            (folder / "link").symlink_to(target)
    with pytest.raises(ValueError, match="expected 0 or more"), checkpoint(-1, tmp_path):
        pass
    with pytest.raises(TypeError), checkpoint(1.5, tmp_path):
        pass
    monkeypatch.setenv(wire.RANK, "3")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="Call it on rank 0 alone"), checkpoint(1):
        pass
    save(tmp_path / "rank-3", 1)
    assert names(tmp_path) == ["rank-3"]


def test_one_that_is_being_saved_is_left_alone_by_another(tmp_path):
    with checkpoint(1, tmp_path) as first:
        (first / "a").write_text("1")
        save(tmp_path, 2)
        (first / "b").write_text("2")
    assert names(tmp_path) == ["step-000000001", "step-000000002"]
    assert last_checkpoint(tmp_path) == tmp_path / "step-000000001"  # committed last


STUCK = """
import sys
import muster.runtime as muster
with muster.checkpoint(1) as folder:
    (folder / "a").write_text("1")
    print("saving", flush=True)
    sys.stdin.read()
    try:
        (folder / "b").write_text("2")
    except FileNotFoundError:
        print("fenced", flush=True)
        raise
"""


def test_an_earlier_attempt_that_still_saves_is_fenced_off(tmp_path):
    place = {wire.CHECKPOINT_DIR: str(tmp_path / "ckpt")}
    ranks = [tmp_path / f"rank-{i}" for i in range(2)]
    for rank in ranks:
        rank.mkdir()
    stuck = start(STUCK, ranks[0], **place, **{wire.ATTEMPT: "1"})
    assert stuck.stdout.readline() == "saving\n"
    save_one = "import muster.runtime as m\nwith m.checkpoint(2) as f: (f / 'x').write_text('x')"
    run(save_one, ranks[1], **place, **{wire.ATTEMPT: "1"})
    assert len(names(tmp_path / "ckpt")) == 2  # one of the same attempt that lives is let be
    run(save_one, ranks[1], **place, **{wire.ATTEMPT: "2"})
    assert names(tmp_path / "ckpt") == ["step-000000002.1"]
    assert stuck.communicate("")[0] == "fenced\n"
    assert names(tmp_path / "ckpt") == ["step-000000002.1"]


def test_inside_muster_it_is_reported(tmp_path):
    script = """
import muster.runtime as muster
for step in (1, 2):
    with muster.checkpoint(step) as folder:
        (folder / "a").write_bytes(bytes(1000))
(muster.checkpoint_dir() / "step-000000002" / "a").write_text("damage")
assert muster.last_checkpoint().name == "step-000000001"
assert muster.checkpoint_every() == 90.0
"""
    rank, place = tmp_path / "rank-0", tmp_path / "checkpoints"
    rank.mkdir()
    run(script, rank, **{wire.CHECKPOINT_DIR: str(place), wire.CHECKPOINT_KEEP: "5", wire.CHECKPOINT_EVERY: "90"})
    first, second = documents(rank, "checkpoint")
    assert (first["step"], second["path"], second["bytes"]) == (1, str(place / "step-000000002"), 1000)
    assert second["seconds"] >= 0
    (restored,) = documents(rank, "restore")
    (skipped,) = restored["skipped"]
    assert skipped == {"path": str(place / "step-000000002"), "what": "a has 6 bytes; 1000 were saved"}
    assert (restored["path"], restored["step"]) == (str(place / "step-000000001"), 1)
    assert (checkpoint_dir(), checkpoint_every()) == (None, None)


KILLED_AT_EACH_STEP = """
import os, signal, sys
from pathlib import Path
from muster.runtime import checkpoint, last_checkpoint

folder, step = Path(sys.argv[1]), 2

def save(step):
    with checkpoint(step, folder) as place:
        (place / "model").write_text(f"{step}")
        (place / "optim").write_bytes(bytes(100))

def killed_at(event):
    pid = os.fork()
    if pid == 0:
        seen = 0
        def count(name, args):
            nonlocal seen
            if name in ("open", "fcntl.flock") or name.startswith("os."):
                seen += 1
                if seen == event:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        save(step)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == signal.SIGKILL

save(0)
save(1)
save(step)  # saved again and again below, the hardest case: each replaces one of the same step
event = 1
while killed_at(event):
    found = last_checkpoint(folder)
    assert found and (found / "model").read_text() == str(step), (event, found)
    event += 1
    if event % 5 == 0:
        step += 1
        save(step)
        left = sorted(p.name for p in folder.iterdir() if p.name.startswith((".saving", ".removing")))
        assert not left, (event, left)
print(event)
"""


def test_a_save_that_is_killed_at_any_step_leaves_a_good_one(tmp_path):
    events = int(run(KILLED_AT_EACH_STEP, None, tmp_path))
    assert events > 30  # files, renames and removals: the hook has seen them


SAVING_FOR_EVER = """
import muster.runtime as muster
step = 0
while True:
    step += 1
    with muster.checkpoint(step % 5) as folder:
        for part in range(8):
            (folder / f"part-{part}").write_text(f"{step} " * 5000)
    print(step, flush=True)
"""


@pytest.mark.parametrize("round_", range(4))
def test_a_save_that_is_killed_at_any_instant_leaves_a_good_one(tmp_path, round_):
    rank, place, chance = tmp_path / "rank-0", tmp_path / "checkpoints", random.Random(round_)
    rank.mkdir()
    child = start(SAVING_FOR_EVER, rank, **{wire.CHECKPOINT_DIR: str(place), wire.CHECKPOINT_KEEP: "2"})
    for _ in range(chance.randrange(1, 6)):
        saved = int(child.stdout.readline())
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(chance.random() * 0.1)  # seconds, into the next save
    child.send_signal(signal.SIGKILL)
    printed = child.communicate()[0].split()
    saved = int(printed[-1]) if printed else saved
    found = last_checkpoint(place)
    texts = {(found / f"part-{part}").read_text() for part in range(8)}
    assert texts in ({f"{step} " * 5000} for step in (saved, saved + 1))
    assert len(recovered(rank).docs) >= 2


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    child = start(STUCK, tmp_path, **{wire.CHECKPOINT_DIR: str(tmp_path / "ckpt")})
    assert child.stdout.readline() == "saving\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert until(lambda: names(tmp_path / "ckpt"))[0].startswith(".saving-")
    save(tmp_path / "ckpt", 2)
    assert names(tmp_path / "ckpt") == ["step-000000002"]
