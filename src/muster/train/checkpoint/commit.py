"""Writes and commits a checkpoint from an image in memory: every rank writes its files, rank 0 commits them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from muster.runtime import manifest, rank_info
from muster.runtime.manifest import Manifest
from muster.runtime.signals import kept_steps
from muster.train.checkpoint import plain, retention
from muster.train.checkpoint.gang import SaveGroup
from muster.train.checkpoint.index import INDEX
from muster.train.checkpoint.load import SHARED, extra_name, wrong_sizes
from muster.train.checkpoint.owner import Hold
from muster.train.checkpoint.plan import Plan
from muster.train.checkpoint.retention import Kept
from muster.train.checkpoint.stage import Stage
from muster.train.checkpoint.store import Store
from muster.train.errors import CheckpointError, CheckpointFull

THREADS: Final = 8  # files of one rank that are checksummed and written at once

File = tuple[str, int, int]  # name in the checkpoint's folder, size in bytes, CRC-32


@dataclass(frozen=True, slots=True)
class Draft:
    """What one rank has to write."""

    step: int
    plan: Plan
    stage: Stage
    shared: bytes
    extra: bytes
    ready: Callable[[], None]  # returns when the stage contains the snapshot
    values: dict[str, Any]  # plain values of the state of model and optimizer
    follows: Callable[[], int] | None = None  # the serial before this one's; default: of the newest in the store

    def failure(self, error: BaseException, where: str = "", room: str = "") -> str:
        left = f" ({room})" if room else ""
        intact = f"; those before it in {where} are intact" if where else ""
        return f"the checkpoint of step {self.step} was not saved: {error}{left}{intact}."


def write(
    draft: Draft, store: Store, gang: SaveGroup, hold: Hold | None, keep: tuple[int, int]
) -> tuple[str, int, int]:
    """Returns the checkpoint's location, size and serial. All ranks call it together; if one fails, all raise."""
    begun: list[str] = []

    def begin() -> str:
        begun.append(store.begin(draft.step))
        return begun[0]

    try:
        folder = gang.lead(begin)
        files = gang.gather(lambda: (_write_files(draft, store, folder, gang.rank), draft.values))
        written = [file for each, _ in files for file in each]
        values = {key: value for _, each in files for key, value in each.items()}
        final, total, serial = gang.lead(lambda: _commit(draft, store, hold, folder, written, values))
    except BaseException as error:
        room = store.room()
        for each in begun:
            store.abandon(each)
        text = draft.failure(error, store.where, room)
        full = " Free some space, or keep fewer checkpoints." if isinstance(error, CheckpointFull) else ""
        kind = type(error) if isinstance(error, CheckpointError) else CheckpointError
        raise kind(text + full) from error
    if gang.rank == 0:
        with suppress(CheckpointError, OSError):  # committed; old ones are removed after the next save
            needed = kept_steps() if draft.follows is None else frozenset()  # nobody starts from one in memory
            prune(store, *keep, needed)
    return f"{store.where}/{final}", total, serial


def newest_serial(store: Store) -> int:
    """Serials count the commits of a run; 0 for none."""
    return max((each.manifest.serial for each in store.committed() if each.manifest), default=0)


def prune(store: Store, keep: int, keep_every: int, needed: Collection[int] = ()) -> None:
    """Removes the checkpoints that retention no longer keeps. `needed`: steps that jobs have yet to start from."""
    found = []
    for each in store.committed():
        good = each.manifest is not None and wrong_sizes(store, each) is None
        found.append(Kept(each.folder, each.manifest.step if each.manifest else 0, good))
    for folder in retention.doomed(found, keep, keep_every, needed):
        store.delete(folder)


def _write_files(draft: Draft, store: Store, folder: str, rank: int) -> list[File]:
    draft.ready()
    image = draft.stage.bytes()
    jobs: list[tuple[str, memoryview]] = [(part.file, image[part.begin : part.end]) for part in draft.plan.parts]
    jobs.append((extra_name(rank), memoryview(draft.extra)))
    with ThreadPoolExecutor(THREADS, "muster-write") as pool:
        return list(pool.map(lambda job: _put(store, folder, *job), jobs))


def _commit(
    draft: Draft, store: Store, hold: Hold | None, folder: str, written: list[File], values: dict[str, Any]
) -> tuple[str, int, int]:
    assert draft.plan.index is not None
    common = plain.dump({"shared": plain.load(draft.shared), "values": values}, "Snapshot.shared")
    files = [*written, _put(store, folder, INDEX, memoryview(draft.plan.index))]
    files.append(_put(store, folder, SHARED, memoryview(common)))
    serial = 1 + (draft.follows() if draft.follows is not None else newest_serial(store))
    sizes = {name: (size, crc) for name, size, crc in sorted(files)}
    found = Manifest(draft.step, serial, time.time(), sizes, rank_info.attempt())
    if hold is not None:
        hold.check()
    return store.commit(folder, draft.step, manifest.encode(found)), found.total, serial


def _put(store: Store, folder: str, name: str, data: memoryview) -> File:
    return name, len(data), store.put(f"{folder}/{name}", data)
