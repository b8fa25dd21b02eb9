"""Finds the newest valid checkpoint. The ranks divide the work of reading it."""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime.checkpoint_search import Search, counts
from muster.runtime.manifest import MANIFEST, Manifest
from muster.train.checkpoint import index, plain
from muster.train.checkpoint.bucket import open_bucket
from muster.train.checkpoint.gang import SaveGroup, shared_gang
from muster.train.checkpoint.index import INDEX, Index
from muster.train.checkpoint.reader import Reader
from muster.train.checkpoint.store import BLOCK, Committed, Local, Store, checksum
from muster.train.errors import CheckpointDamaged, CheckpointError, NoGoodCheckpoint

SHARED: Final = "shared.pt"
THREADS: Final = (4, 16)  # at least and at most, by the cores that this rank has for itself


@dataclass(frozen=True, slots=True)
class Found:
    """A valid checkpoint."""

    step: int
    path: str  # for display: a folder, or a URL such as s3://bucket/prefix/step-...
    folder: str
    manifest: Manifest = field(repr=False)
    store: Store = field(repr=False)
    gang: SaveGroup = field(repr=False)

    @property
    def shared(self) -> dict[str, Any]:
        """What was saved as `Snapshot.shared`: step, layout, model fingerprint, ..."""
        found: dict[str, Any] = self.common()["shared"]
        return found

    @property
    def world(self) -> int:
        """The number of ranks that saved it."""
        return self.index().world

    def index(self) -> Index:
        return index.decode(self.store.get(f"{self.folder}/{INDEX}"), self.path)

    def reader(self) -> Reader:
        """For torch.distributed.checkpoint."""
        return Reader(self.store, self.folder, self.index())

    def common(self) -> dict[str, Any]:
        """`shared`, and under `values` the plain values of the state of model and optimizer."""
        found: dict[str, Any] = plain.load(self.store.get(f"{self.folder}/{SHARED}"))
        return found

    def of_rank(self, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = plain.load(self.store.get(f"{self.folder}/{extra_name(rank)}"))
        return found


def newest(where: str | Path, *, checksums: bool = True) -> Found | None:
    """The newest valid checkpoint of a store, or None. Damaged ones are logged and skipped.

    With a process group all ranks call it together, and each reads a share of the files. `checksums=False` checks
    only the sizes.
    """
    return find(open_store(where), shared_gang(), checksums)


def open_store(where: str | Path) -> Store:
    """A folder, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix."""
    return open_bucket(str(where)) if "://" in str(where) else Local(Path(where).absolute())


def find(
    store: Store, gang: SaveGroup, checksums: bool = True, memory: Store | None = None, step: int | None = None
) -> Found | None:
    """The newest valid checkpoint of a store, or of the store and the one in memory beside it. `step`: only of it."""
    search, disk = search_in(store), store

    def look() -> list[tuple[bool, Committed]]:
        found = [(False, each) for each in _with_manifest(search.wait_for(lambda: _counting(disk)), search, disk)]
        found = [each for each in found if step is None or (each[1].manifest and each[1].manifest.step == step)]
        if memory is not None:
            found += [(True, each) for each in _with_manifest(_counting(memory), search, memory)]
        return sorted(found, key=_order, reverse=True)

    for kept, candidate in gang.lead(look):
        assert candidate.manifest is not None
        store = memory if kept and memory is not None else disk
        path = f"{store.where}/{candidate.folder}"
        what = gang.lead(lambda at=store, each=candidate: wrong_sizes(at, each))  # type: ignore[misc]
        if what is None and checksums:
            mine = _share(candidate.manifest, gang)
            found = gang.gather(lambda at=store, each=candidate, names=mine: _wrong_bytes(at, each, names))  # type: ignore[misc]
            what = next((each for each in found if each), None)
        if what is None:
            if gang.rank == 0:
                search.use(path, candidate.manifest.step)
            return Found(candidate.manifest.step, path, candidate.folder, candidate.manifest, store, gang)
        if gang.rank == 0:
            search.skip(path, what)
    gang.lead(search.use_none)
    return None


def search_in(store: Store) -> Search:
    return Search(store.where, NoGoodCheckpoint, (OSError, CheckpointError))


def wait_for(store: Store) -> None:
    """Returns when the store can be read, if the run has saved a checkpoint there. Raises NoGoodCheckpoint."""
    search_in(store).wait_for(lambda: _counting(store))


def wrong_sizes(store: Store, candidate: Committed) -> str | None:
    """Problems of a checkpoint that its file names and sizes show."""
    if candidate.manifest is None:
        return candidate.damage
    there = store.files(candidate.folder)
    for name, (size, _) in candidate.manifest.files.items():
        if there.get(name) != size:
            return f"{name} has {there[name]} bytes; {size} were saved" if name in there else f"{name} is not there"
    return None if INDEX in candidate.manifest.files else f"it has no {INDEX}: something else than training saved it"


def extra_name(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def _counting(store: Store) -> list[Committed]:
    return [each for each in store.committed() if each.manifest is None or counts(each.manifest)]


def _order(found: tuple[bool, Committed]) -> tuple[int, int, bool]:
    """The sort key: by commit. One in memory has the serial of the next on disk, so the step decides between them."""
    kept, committed = found
    assert committed.manifest is not None
    return committed.manifest.serial, committed.manifest.step, not kept


def _with_manifest(found: Sequence[Committed], search: Search, store: Store) -> list[Committed]:
    """Checkpoints with a manifest. The others are only logged."""
    for each in found:
        search.saw(each.folder)
        if each.manifest is None:
            search.skip(f"{store.where}/{each.folder}", each.damage or f"it has no {MANIFEST}")
    return [each for each in found if each.manifest is not None]


def _share(manifest: Manifest, gang: SaveGroup) -> list[str]:
    """The files that this rank verifies; all ranks get about the same number of bytes."""
    loads = [(0, rank) for rank in range(gang.world)]
    mine = []
    for name, (size, _) in sorted(manifest.files.items(), key=lambda item: (-item[1][0], item[0])):
        load, rank = heapq.heappop(loads)
        heapq.heappush(loads, (load + size, rank))
        if rank == gang.rank:
            mine.append(name)
    return mine


def _wrong_bytes(store: Store, candidate: Committed, names: list[str]) -> str | None:
    assert candidate.manifest is not None
    files = candidate.manifest.files
    with ThreadPoolExecutor(_threads()) as pool:
        found = pool.map(lambda name: _wrong(store, f"{candidate.folder}/{name}", *files[name]), names)
        return next((f"{name}: {what}" for name, what in zip(names, found, strict=True) if what), None)


def _threads() -> int:
    ranks = int(os.environ.get(wire.LOCAL_WORLD_SIZE, "1"))
    return min(max(THREADS[0], len(os.sched_getaffinity(0)) // max(1, ranks)), THREADS[1])


def _wrong(store: Store, name: str, size: int, expected: int) -> str | None:
    block = bytearray(min(size, BLOCK))
    crc = 0
    try:
        for at in range(0, size, BLOCK):
            part = memoryview(block)[: min(BLOCK, size - at)]
            store.read(name, at, part)
            crc = checksum(part, crc)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except CheckpointDamaged as error:
        return str(error)
    return None if crc == expected else f"its checksum is {crc:08x}; it was saved with {expected:08x}"
