"""Checkpoints that are either committed and verified or do not exist at all.

A folder of checkpoints:

    step-000000123      committed: the user's files and manifest.json
    step-000000123.1    the same step, saved again: the older one is removed only when this one is committed
    .saving-A-...       being saved by attempt A; the next save removes what a killed process left
    .removing-...       being removed
    .lock               held, shared, by every process that saves
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import index
from pathlib import Path
from typing import Final, NamedTuple, SupportsIndex

from muster import wire
from muster.runtime import manifest, rank_info, reporter
from muster.runtime.checkpoint_search import COMMITTED, Search, check_start, counts
from muster.runtime.checkpoint_search import NoGoodCheckpoint as NoGoodCheckpoint
from muster.runtime.checkpoint_search import StartMissing as StartMissing
from muster.runtime.manifest import Manifest
from muster.runtime.phases import phase
from muster.runtime.signals import kept_steps

ALONE: Final = "checkpoints"  # the folder outside Muster, in the working directory
KEEP_ALONE: Final = 3
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room, over quota, beyond a limit of the file's size
# The same in words: of the system, of torch.save (two versions) and of NumPy, which don't give the number.
_TORCH_SAVE: Final = r"inline_container\.cc:\d+\] \. (?:unexpected pos|PytorchStreamWriter failed writing)"
_FULL_WORDS: Final = re.compile("|".join([*map(os.strerror, _FULL), _TORCH_SAVE, r"\d+ requested and \d+ written"]))
_SAVING: Final = re.compile(r"\.saving-(\d+)-.*")


class CheckpointError(OSError):
    """A checkpoint could not be saved because the disk, a quota or a file is full; earlier ones are intact."""


def checkpoint_dir() -> Path | None:
    """The run's folder of checkpoints, the same for all its attempts; None outside Muster."""
    named = os.environ.get(wire.CHECKPOINT_DIR)
    return Path(named) if named else None


def memory_dir(create: bool = False) -> Path | None:
    """The run's folder of checkpoints in this machine's memory. None if none are kept there, if it does not exist, and
    if it, or the folder that it is in, is not this user's alone: anybody can make folders in shared memory."""
    named = os.environ.get(wire.CHECKPOINT_MEMORY)
    if not named:
        return None
    with suppress(OSError):
        for folder in (Path(named).parent, Path(named)):
            if create:
                with suppress(FileExistsError):
                    folder.mkdir(mode=0o700)
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
                return None
        return Path(named)
    return None


def checkpoint_every() -> float | None:
    """Seconds between saves according to the job file; None if it does not say, and outside Muster."""
    text = os.environ.get(wire.CHECKPOINT_EVERY)
    return float(text) if text else None


@contextmanager
def checkpoint(step: SupportsIndex, dir: Path | str | None = None) -> Iterator[Path]:
    """Yields an empty folder to save into, and commits its content when the block ends without an exception:

        with checkpoint(step) as folder:
            torch.save(state, folder / "state.pt")

    One process saves one checkpoint: in a gang that is rank 0, or each rank gives its own `dir`. `dir` defaults to the
    run's folder, and outside Muster to ./checkpoints. The newest ones are kept, as many as the job file says.
    """
    number, parent, started = index(step), _parent(dir), time.monotonic()
    if number < 0:
        raise ValueError(f"checkpoint(): step got {number}; expected 0 or more.")
    if dir is None and rank_info.rank() != 0:
        raise ValueError(
            f"checkpoint(step={number}): rank {rank_info.rank()} of {rank_info.world_size()} would replace what rank 0 "
            "saves. Call it on rank 0 alone, or give each rank a `dir` of its own."
        )
    with phase("saving"), saving(parent, number) as folder:
        yield folder
        serial = run_serial() if parent == checkpoint_dir() else next_serial(parent)
        found = manifest.seal(folder, number, serial, time.time(), rank_info.attempt())
        final = commit(parent, folder, number)
    seconds = time.monotonic() - started
    reporter.document(
        "checkpoint", step=number, path=str(final), bytes=found.total, seconds=seconds, files=len(found.files)
    )
    _prune(parent, keep=final)


def last_checkpoint(dir: Path | str | None = None, *, checksums: bool = True) -> Path | None:
    """The newest checkpoint whose files are all as they were saved, or None. Damaged ones are skipped, with a warning.

    Reads every byte of it; `checksums=False` checks the sizes only. If the run has saved checkpoints, it waits for a
    folder that can't be read, and raises NoGoodCheckpoint if none of them is good. The run's folder includes what
    `checkpoint_in_memory` has kept on this machine, and the checkpoint of another run that the job starts from; if that
    one is kept elsewhere, StartMissing is raised.
    """
    parent = _parent(dir)
    search = Search(str(parent))
    memory = memory_dir() if parent == checkpoint_dir() else None
    found = search.wait_for(
        lambda: [each for each in candidates(parent, memory) if not each.manifest or counts(each.manifest)]
    )
    for candidate in sorted(found, key=lambda each: each.manifest is not None):
        search.saw(candidate.path.name)
        what = candidate.damage
        if candidate.manifest is not None:
            what = manifest.damage(candidate.path, candidate.manifest, checksums)
        if what is None:
            assert candidate.manifest is not None
            search.use(str(candidate.path), candidate.manifest.step)
            return candidate.path
        search.skip(str(candidate.path), what)
    search.use_none()
    if parent == checkpoint_dir():
        check_start(str(parent))
    return None


class Candidate(NamedTuple):
    """A folder with the name of a committed checkpoint."""

    path: Path
    manifest: Manifest | None
    damage: str | None  # why there is no manifest

    @property
    def order(self) -> tuple[int, int]:
        """The sort key: by commit, not by step or clock, because a run may go back to an earlier step,
        and clocks differ."""
        found = COMMITTED.fullmatch(self.path.name)
        step = int(found[1]) if found else 0
        return (self.manifest.serial, step) if self.manifest else (-1, step)


def _parent(dir: Path | str | None) -> Path:
    return Path(dir if dir is not None else checkpoint_dir() or ALONE).absolute()


@contextmanager
def saving(parent: Path, step: int) -> Iterator[Path]:
    """A new folder, which is removed again if saving fails."""
    folder = parent / f".saving-{rank_info.attempt()}-{step:09d}-{os.urandom(4).hex()}"
    try:
        if not parent.is_dir():
            parent.mkdir(parents=True, exist_ok=True)
            manifest.sync_folder(parent.parent)
        with cleaned(parent):
            folder.mkdir()
            yield folder
    except BaseException as error:
        free = free_space(parent)
        shutil.rmtree(folder, ignore_errors=True)
        text = f"the checkpoint of step {step} was not saved ({free}); those before it in {parent} are intact"
        if full := disk_full(error):
            hint = "Free some space, or keep fewer checkpoints."
            what, file = (error.strerror, error.filename) if isinstance(error, OSError) else (None, None)
            raise CheckpointError(full, f"{what or error}: {text}. {hint}", file) from error
        error.add_note(f"muster: {text}.")
        raise


def disk_full(error: BaseException) -> int | None:
    """The error number, if a write failed for want of room; also behind another error that was raised because of it."""
    seen: BaseException | None = error
    while seen is not None:
        number = seen.errno if isinstance(seen, OSError) else None
        if number in _FULL:
            return number
        if number is None and _FULL_WORDS.search(str(seen)):
            return errno.ENOSPC
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return None


@contextmanager
def cleaned(parent: Path, take: Callable[[Path], object] | None = None) -> Iterator[None]:
    """Removes what dead processes left, or gives it to `take`, then marks this process as saving."""
    fd = os.open(parent / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        alone = _flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in parent.iterdir():
            saving = _SAVING.fullmatch(path.name)
            abandoned = alone or (saving and int(saving[1]) < rank_info.attempt())
            if abandoned and (saving or path.name.startswith(".removing-")):
                (take or remove)(path)
        _flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def _flock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how)
    except OSError as error:  # locked by another, or no locks here: only what earlier attempts left is removed
        if error.errno is None:  # a timeout raised by a signal handler
            raise
        return False
    return True


def commit(parent: Path, folder: Path, step: int) -> Path:
    """Gives the folder its final name, then removes others of the same step, so that a valid one always exists."""
    name = f"step-{step:09d}"
    others = [path for path in parent.iterdir() if (found := COMMITTED.fullmatch(path.name)) and int(found[1]) == step]
    suffixes = [int(found[2] or 0) for path in others if (found := COMMITTED.fullmatch(path.name))]
    final = parent / (f"{name}.{max(suffixes) + 1}" if suffixes else name)
    folder.rename(final)
    manifest.sync_folder(parent)
    for path in others:
        remove(path)
    return final


def _prune(parent: Path, keep: Path) -> None:
    """Keeps the newest valid ones, and `keep` in any case. Checks sizes, not every byte: that is for loading."""
    text = os.environ.get(wire.CHECKPOINT_KEEP)
    wanted = max(1, int(text)) if text else KEEP_ALONE
    good, needed = 0, kept_steps() if parent == checkpoint_dir() else frozenset()
    for candidate in candidates(parent):
        step = candidate.manifest.step if candidate.manifest else None
        if good >= wanted and candidate.path != keep and step not in needed:
            remove(candidate.path)
        elif candidate.manifest and manifest.damage(candidate.path, candidate.manifest, checksums=False) is None:
            good += 1


def candidates(parent: Path, memory: Path | None = None) -> list[Candidate]:
    """All committed checkpoints of both folders, the newest first; those without a readable manifest last."""
    found = []
    for folder in (parent, memory) if memory is not None else (parent,):
        with suppress(FileNotFoundError, NotADirectoryError):
            for path in folder.iterdir():
                if COMMITTED.fullmatch(path.name):
                    try:
                        found.append(Candidate(path, manifest.load(path), None))
                    except ValueError as error:
                        found.append(Candidate(path, None, str(error)))
    return sorted(found, key=lambda candidate: candidate.order, reverse=True)


def next_serial(parent: Path, memory: Path | None = None) -> int:
    return 1 + max((c.manifest.serial for c in candidates(parent, memory) if c.manifest), default=0)


def run_serial() -> int:
    """The serial of the run's next checkpoint, on disk or in memory: the newest of both has the highest."""
    return next_serial(_parent(None), memory_dir())


def remove(path: Path) -> None:
    """Renames first, so that a process still writing to it fails, and no process sees half of it."""
    with suppress(OSError):
        shutil.rmtree(set_aside(path), ignore_errors=True)


def set_aside(path: Path) -> Path:
    """Moves a folder into a new one, which `cleaned` finds if it is not removed. Raises OSError."""
    place = Path(tempfile.mkdtemp(prefix=".removing-", dir=path.parent))
    try:
        path.rename(place / path.name)
    except OSError:  # another process was first
        place.rmdir()
        raise
    return place


def free_space(parent: Path) -> str:
    try:
        return f"{shutil.disk_usage(parent).free} bytes were free"
    except OSError as error:
        return f"free space unknown: {error}"
