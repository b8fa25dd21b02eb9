"""Killed in the middle of a save, at every call that changes the disk: never half a checkpoint, never none."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import torch.distributed as dist
from ckpt_kit import check_loads, in_child, kill_at, names, save, snapshot

from gang_kit import gang
from muster.train.checkpoint import Saver, newest
from muster.train.checkpoint.store import Local

KILLED = -signal.SIGKILL


def kill_everywhere(root: str) -> dict[str, list[int]]:
    """By what was found afterwards: at which calls the save of step 2 was killed."""
    folder = Path(root)
    save(folder / "template", 1)
    found: dict[str, list[int]] = {}
    for number in range(1, 500):
        place = folder / f"killed-{number}"
        shutil.copytree(folder / "template", place)

        def work(place: Path = place, number: int = number) -> None:
            kill_at(number)
            save(place, 2, keep=1)

        ended = in_child(work)
        good = newest(place)
        assert good is not None, number
        check_loads(good, good.step)
        if ended == 0:
            assert names(place) == ["step-000000002"]
            return found
        assert ended == KILLED
        found.setdefault(str(good.step), []).append(number)
        save(place, 3, keep=1)  # cleans up what the dead process left
        check_loads(newest(place), 3)
        assert names(place) == ["step-000000003"], number
    raise AssertionError("the save never came to its end")


def test_killed_at_every_call(tmp_path):
    (found,) = gang(1, kill_everywhere, str(tmp_path), group=False)
    assert sum(len(each) for each in found.values()) >= 25
    # One call is the commit: before it the old checkpoint is the newest, after it the new one.
    assert max(found["1"]) < min(found["2"])
    assert len(found["1"]) >= 10
    assert len(found["2"]) >= 5


def two_ranks(where: str, store: str, rank: int, when: str) -> None:
    """Rank 1 dies in its part of the save of step 2; rank 0 must see that and commit nothing."""
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    saver = Saver(where).open()
    saver.save(snapshot(1), wait=True)
    real = Local.put

    def put(self: Local, name: str, data: memoryview) -> int:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        crc = real(self, name, data[: len(data) // 2] if when == "within" else data)
        os.kill(os.getpid(), signal.SIGKILL)
        return crc

    if rank == 1:
        Local.put = put  # type: ignore[method-assign]
    saving = saver.save(snapshot(2))
    assert saving is not None
    assert saving.wait(180)
    os._exit(0 if saving.error is not None and "step 2 was not saved" in str(saving.error) else 3)


def kill_one_of_two(root: str) -> list[tuple[str, list[int], list[str]]]:
    found = []
    for when in ("before", "within", "after"):
        place, store = Path(root) / when, Path(root) / f"store-{when}"
        pids = []
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                two_ranks(str(place), str(store), rank, when)
            pids.append(pid)
        ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        found.append((when, ends, names(place)))
        good = newest(place)
        assert good is not None
        assert (good.step, good.world) == (1, 2)
    return found


def test_one_rank_of_two_is_killed(tmp_path):
    (found,) = gang(1, kill_one_of_two, str(tmp_path), group=False)
    for when, ends, left in found:
        assert ends == [0, KILLED], when
        assert left == ["step-000000001"], when
