"""Takes the checkpoint of another run that a run starts from into the run's own folder, before its ranks start.

In the run's folder of checkpoints (see `checkpoints`):

    .saving-A-start-...   being taken by attempt A: start.json, and the checkpoint under its name
    .started              the same, whole and verified. It is renamed to this only if there is none, so that whatever
                          is killed or done twice, one checkpoint is taken; then it is moved out of it, to its place

So a checkpoint of the source is taken whole or not at all. If the source's program removes it meanwhile, the next
newest is taken. The files are links where the two runs may share them, and read-only then; else they are copies.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import checkpoint_files as files
from muster.runtime import manifest, processes
from muster.runtime.checkpoint_files import Committed, Owner, Stopped, Unusable, Vanished
from muster.runtime.manifest import COMMITTED, Manifest

STARTED: Final = ".started"
START: Final = "start.json"
TRIES: Final = 1000  # checkpoints that vanish while they are taken
LOOKS: Final = 3  # that find nothing good
_BETWEEN_LOOKS: Final = 0.02  # seconds
_FIRST_PAUSE: Final = 0.5  # seconds, doubled up to
_LAST_PAUSE: Final = 10.0
_SHOWN: Final = 5  # steps, or damaged checkpoints, that a message names
_AWAY: Final = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EAGAIN)
_START_MAX: Final = 1 << 16  # bytes

Wait = Callable[[float], bool]  # waits so many seconds; False: somebody wants this process to stop


class NoStart(Exception):
    """Why the checkpoint can't be had, as a readable sentence."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What the run has taken. `path` is the checkpoint in the run's own folder, where its program may prune it."""

    step: int
    path: str
    bytes: int
    how: str  # link, copy
    why: str = ""  # it is a copy


@dataclass(frozen=True, slots=True)
class Taker:
    """The run that takes it."""

    own: Path  # its folder of checkpoints, which exists
    attempt: int
    owner: Owner
    wait: Wait

    def go_on(self) -> bool:
        return self.wait(0.0)


def take(start: wire.Start, run: Taker, patience: float = 0.0) -> Taken:
    """Takes the checkpoint, if the run has not taken it before.

    `patience`: seconds to try again if the source's folder can't be read. Raises NoStart, and Stopped if the run's
    `wait` returns False.
    """
    began, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            return taken(run.own) or _take(start, run)
        except OSError as error:
            why = f"the checkpoint of {start.run} can't be taken into {run.own}: {error}"
            if error.errno not in _AWAY or time.monotonic() - began >= patience:
                raise NoStart(why) from error
            processes.log_line(f"{why}; it is tried again")
        if not run.wait(pause):
            raise Stopped
        pause = min(2 * pause, _LAST_PAUSE)


def await_taken(own: Path, wait: Wait, patience: float) -> Taken:
    """What another worker of the gang takes; it is waited for."""
    began, pause = time.monotonic(), 0.1
    while True:
        with suppress(OSError):
            if found := taken(own):
                return found
        if time.monotonic() - began >= patience:
            raise NoStart(
                f"the gang's first worker has taken no checkpoint into {own} in {patience:.0f} s, as this node sees "
                "that folder; all nodes have to share it"
            )
        if not wait(pause):
            raise Stopped
        pause = min(2 * pause, 2.0)


def taken(own: Path) -> Taken | None:
    """What the run has taken; None if it has not. Finishes what a killed process began."""
    folder = files.open_folder(str(own))
    try:
        try:
            started = files.open_folder(STARTED, folder)
        except FileNotFoundError:
            return None
        try:
            for name in os.listdir(started):  # noqa: PTH208  (of a descriptor)
                if COMMITTED.fullmatch(name):
                    _rename(name, name, started, folder)
            fd = os.open(START, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=started)
            with os.fdopen(fd, "rb") as file:
                return _decode(file.read(_START_MAX), own)
        finally:
            os.close(started)
    finally:
        os.close(folder)


def _decode(data: bytes, own: Path) -> Taken:
    try:
        raw: Any = json.loads(data)
        name = str(raw["name"])
        if not COMMITTED.fullmatch(name):
            raise ValueError(name)
        return Taken(int(raw["step"]), str(own / name), int(raw["bytes"]), str(raw["how"]), str(raw["why"]))
    except (ValueError, KeyError, TypeError) as error:
        raise NoStart(f"{own / STARTED / START} can't be read: {error!r}; remove {own / STARTED}") from error


def _take(start: wire.Start, run: Taker) -> Taken:
    where = run.own.parent / start.run
    if not start.run or "/" in start.run or start.run.startswith("."):
        raise NoStart(f"{start.run!r} is no run's id")
    try:
        source = files.open_folder(str(where))
    except FileNotFoundError:
        raise NoStart(f"{where} is not there: {start.run} has saved nothing in a place that this node sees") from None
    try:
        spoilt: dict[Committed, str] = {}
        empty = 0
        for _ in range(TRIES):
            found = [one for one in files.committed(source) if start.step is None or one.step == start.step]
            good = [one for one in found if not one.damage and one not in spoilt]
            try:
                if good:
                    return _take_one(source, good[0], run)
            except Vanished:
                continue
            except Unusable as error:
                spoilt[good[0]] = str(error)
                processes.log_line(f"{where / good[0].name} is not taken: {error}")
            else:
                empty += not any(one.gone for one in found)  # a listing may miss what comes while it is made
                if empty == LOOKS:
                    raise NoStart(_nothing_good(source, start, where, found, spoilt))
            if not run.wait(_BETWEEN_LOOKS):
                raise Stopped
        raise NoStart(f"{start.run} removes its checkpoints in {where} faster than they can be taken")
    finally:
        os.close(source)


def _nothing_good(
    source: int, start: wire.Start, where: Path, found: list[Committed], spoilt: dict[Committed, str]
) -> str:
    if found:
        named = [f"{each.name}: {each.damage or spoilt[each]}" for each in found[:_SHOWN]]
        return f"no checkpoint of {start.run} in {where} can be used: {'; '.join(named)}"
    steps = sorted({each.step for each in files.committed(source)}, reverse=True)
    there = f"; it has {', '.join(map(str, steps[:_SHOWN]))}" if steps else ""
    what = "no checkpoint" if start.step is None else f"no checkpoint of step {start.step}"
    return f"{start.run} has {what} in {where}{there}"


def _take_one(source: int, candidate: Committed, run: Taker) -> Taken:
    draft, name = f".saving-{run.attempt}-start-{os.urandom(4).hex()}", f"step-{candidate.step:09d}"
    with ExitStack() as held:
        folder = files.open_folder(str(run.own))
        held.callback(os.close, folder)
        held.callback(shutil.rmtree, draft, ignore_errors=True, dir_fd=folder)  # unless it has its final name
        at = _made(draft, folder, run.owner, 0o700, held)
        found, how, why = _fill(source, candidate, _made(name, at, run.owner, 0o755, held), run)
        made = Taken(found.step, str(run.own / name), found.total, how, why)
        files.write_file(at, START, json.dumps({"name": name, **asdict(made)}).encode(), run.owner)
        os.fchmod(at, 0o755)
        os.fsync(at)
        processes.fault("start_verified")
        _rename(draft, STARTED, folder, folder)
        processes.fault("start_taken")
    settled = taken(run.own)
    processes.fault("start_settled")
    if settled is None:
        raise NoStart(f"somebody has removed {run.own / STARTED}")
    return settled


def _fill(source: int, candidate: Committed, into: int, run: Taker) -> tuple[Manifest, str, str]:
    """The manifest of the run's own checkpoint, how its files were had, and why they are copies."""
    found = files.read_manifest(source, candidate.name)
    if found.step != candidate.step:
        raise Unusable(f"its {manifest.MANIFEST} is that of step {found.step}")
    protected = _modes_protect(into, run.owner)
    try:
        there = files.open_folder(candidate.name, source)
    except FileNotFoundError:
        raise Vanished from None
    try:
        owner = replace(run.owner, links=run.owner.links and protected)
        how, why = files.take(there, into, found, owner, run.go_on)
    finally:
        os.close(there)
    if how == "copy" and not why:
        why = (
            "the two runs may not share files"
            if not run.owner.links
            else "read-only files are open to its ranks for writing"
        )
    mine = files.open_folder(str(run.own))
    try:
        serial = 1 + max((each.serial for each in files.committed(mine)), default=0)
    finally:
        os.close(mine)
    # Its own attempt and serial: it counts like a checkpoint that this attempt has saved first.
    own = replace(found, serial=max(serial, 1), attempt=run.attempt)
    files.write_file(into, manifest.MANIFEST, manifest.encode(own), run.owner)
    os.fsync(into)
    return own, how, why


def _rename(name: str, final: str, source: int, target: int) -> None:
    """Does nothing if another process has moved it, or if a folder with that name is there."""
    try:
        os.rename(name, final, src_dir_fd=source, dst_dir_fd=target)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY):
            raise
    os.fsync(target)


def _made(name: str, above: int, owner: Owner, mode: int, held: ExitStack) -> int:
    """A descriptor of a new folder."""
    os.mkdir(name, mode, dir_fd=above)
    fd = files.open_folder(name, above)
    held.callback(os.close, fd)
    files.give(fd, owner)
    return fd


def _modes_protect(folder: int, owner: Owner) -> bool:
    """Whether a read-only file can't be opened for writing by the ranks: by root it mostly can. It is tried, unless the
    ranks run as another user than this process: those have no rights but their user's."""
    if owner.uid != os.geteuid():
        return owner.uid != 0
    probe = "probe"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444, dir_fd=folder))
    try:
        os.close(os.open(probe, os.O_WRONLY, dir_fd=folder))
    except PermissionError:
        return True
    finally:
        os.unlink(probe, dir_fd=folder)
    return False
