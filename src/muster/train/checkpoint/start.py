"""Takes the checkpoint of another run that this one starts from into its own store, where no launcher can: in object
storage, and where the program chose the place.

The ranks have the credentials that this needs. A launcher that has taken it says the same, with the run's own folder.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Final

from muster import wire
from muster.runtime import manifest, rank_info, reporter, signals
from muster.runtime.checkpoint_search import WAIT
from muster.runtime.manifest import MANIFEST
from muster.train.checkpoint import load
from muster.train.checkpoint.bucket import Bucket
from muster.train.checkpoint.commit import newest_serial
from muster.train.checkpoint.gang import SaveGroup
from muster.train.checkpoint.load import Found
from muster.train.checkpoint.store import BLOCK, Local, Store
from muster.train.errors import CheckpointDamaged, CheckpointError, StartMissing

TRIES: Final = 100  # checkpoints that the source removes while they are copied
THREADS: Final = 4
_PAUSE: Final = 5.0  # seconds between two looks at a store that can't be read


def take_start(store: Store, gang: SaveGroup) -> None:
    """Copies it if the store has no checkpoint yet. All ranks call it together; the store is held and clean.

    The manifest is written last, so it is there as a whole or not at all. Raises StartMissing, on all ranks.
    """
    where, step = os.environ.get(wire.START_FROM), os.environ.get(wire.START_STEP)
    if not where or where.rstrip("/") == store.where or not gang.lead(lambda: not store.committed()):
        return
    until = time.monotonic() + float(os.environ.get(wire.CHECKPOINT_WAIT) or WAIT)
    while True:
        try:
            _take(where, int(step) if step else None, store, gang)
            return
        except StartMissing:
            raise
        except (OSError, CheckpointError) as error:
            text = f"the checkpoint to start from in {where} can't be taken into {store.where}: {error}"
            if not gang.lead(lambda: time.monotonic() < until and not signals.should_stop()):
                raise StartMissing(text) from error
            if gang.rank == 0:
                rank_info.warn(f"{text} It is tried again.")
            time.sleep(_PAUSE)


def _take(where: str, step: int | None, store: Store, gang: SaveGroup) -> None:
    source = gang.together(lambda: load.open_store(where))
    for _ in range(TRIES):
        found = load.find(source, gang, step=step)
        if found is None:
            what = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            raise StartMissing(f"there is {what} in {where} that verifies")
        if gang.lead(lambda found=found: _copied(found, store)):  # type: ignore[misc]
            return
    raise StartMissing(f"checkpoints in {where} are removed faster than they can be copied")


def _copied(found: Found, store: Store) -> bool:
    """Whether it was copied; False if it was removed meanwhile."""
    began, folder = time.monotonic(), store.begin(found.step)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            ways = set(pool.map(lambda name: _copy(found, store, folder, name), found.manifest.files))
        own = replace(found.manifest, serial=1 + newest_serial(store), attempt=rank_info.attempt())
        final = store.commit(folder, found.step, manifest.encode(own))
    except (OSError, CheckpointError):
        store.abandon(folder)
        if _is_there(found):
            raise
        return False
    how, seconds = "link" if ways == {"link"} else "copy", time.monotonic() - began
    why = "each run has its own files there" if how == "copy" else ""
    path = f"{store.where}/{final}"
    reporter.document("taken", step=found.step, path=path, bytes=own.total, how=how, why=why, seconds=seconds)
    return True


def _copy(found: Found, store: Store, folder: str, name: str) -> str:
    """Returns "link" or "copy"."""
    source, target, size = found.store, f"{folder}/{name}", found.manifest.files[name][0]
    if isinstance(store, Bucket) and store.copy(target, f"{source.where}/{found.folder}/{name}"):
        return "copy"
    if isinstance(store, Local):
        (store.root / target).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, Local) and source.where == os.environ.get(wire.CHECKPOINT_DIR):
            with suppress(OSError):  # the launcher has taken it, and both folders are this run's own
                (store.root / target).hardlink_to(source.root / found.folder / name)
                return "link"
    data = bytearray(size)
    for at in range(0, size, BLOCK):
        source.read(f"{found.folder}/{name}", at, memoryview(data)[at : at + BLOCK])
    if store.put(target, memoryview(data)) != found.manifest.files[name][1]:
        raise CheckpointDamaged(f"{source.where}/{found.folder}/{name} has changed since it was verified.")
    return "copy"


def _is_there(found: Found) -> bool:
    there: dict[str, int] = {}
    with suppress(FileNotFoundError):
        there = found.store.files(found.folder)
    return MANIFEST in there and all(there.get(name) == size for name, (size, _) in found.manifest.files.items())
