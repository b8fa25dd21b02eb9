"""The program that a cluster starts on a node: finds this worker's place in its gang, and supervises its launcher.

`python -m muster.runtime.boot slurm|kubernetes FOLDER [--recover]`, where FOLDER is the gang's (see `boot_gang`). The
exit status is 0 when the worker succeeded, or when there is nothing to do here, else 1. With `--recover` no rank is
started: remaining processes are killed and unreported data is reported; outside of a Slurm job, for every worker that
left data in the gang's folder. `python -m muster.runtime.boot check FOLDER [OPTION...]` checks the node instead, with
the options of `node_checks`; its exit status is 0, whatever was found.

Restarting it after a kill is always safe: it writes files atomically, and ranks start once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Literal

from muster import wire
from muster.runtime import boot_kubernetes, boot_slurm, processes, verdict
from muster.runtime.boot_gang import BootError, GangFile
from muster.runtime.boot_scratch import discard, leave, prepare
from muster.runtime.boot_supervise import HELD, LauncherSupervisor
from muster.runtime.folder import Folder, write_whole
from muster.runtime.unpack import USAGE

Kind = Literal["slurm", "kubernetes"]
LOG_SHOWN: Final = 4000  # bytes of the launcher's own log to show when it failed


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["check"]:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        import_module("muster.runtime.node_checks").main(given[1:])  # few boots need it
        return 0
    # Before anything else, and across exec and fork: an early signal must neither kill the process nor be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    recover = "--recover" in given
    words = [word for word in given if word != "--recover"]
    if len(words) != 2 or words[0] not in ("slurm", "kubernetes"):
        print(USAGE, file=sys.stderr)  # noqa: T201
        return 2
    kind: Kind = "slurm" if words[0] == "slurm" else "kubernetes"
    processes.set_process_name("muster-boot")
    try:
        gang = GangFile.read(Path(words[1]).absolute())
        if kind == "slurm" and recover and "SLURM_PROCID" not in os.environ:
            return recover_left(gang)
        return run(kind, gang, recover)
    except BootError as error:
        processes.log_line(f"this worker can't be started: {error}")
        return 1
    except boot_slurm.OtherOwner as error:
        processes.log_line(str(error))
        return 0


def run(kind: Kind, gang: GangFile, recover: bool = False) -> int:
    """Runs one worker and returns the exit status."""
    worker = _number(kind)
    try:
        assignment = boot_slurm.find(gang, os.environ) if kind == "slurm" else boot_kubernetes.find(gang, os.environ)
        worker = assignment.worker
        folder = prepare(gang, assignment)
    except (BootError, OSError) as error:
        processes.log_line(f"this worker can't be started: {error}")
        _write_exit(kind, gang, worker, wire.WorkerExit("failed", verdict.LAUNCH_FAILED, str(error), time.time()))
        return 1
    except boot_slurm.ToldToExit as left:
        _write_exit(kind, gang, worker, left.exit)
        return 1
    before = _read_exit(gang, worker) if kind == "slurm" else None
    if before is not None and not Folder(folder).started():
        discard(folder)  # created just now: the worker had ended and its folder was removed; it must not run again
        _recover([gang.folder / f"worker-{worker}"], gang.linger)
        return _status(before)
    ended = LauncherSupervisor(folder, gang.linger, lambda exit: _write_exit(kind, gang, worker, exit)).run(recover)
    if kind == "slurm":
        ended = ended or _read_exit(gang, worker)  # another boot was here meanwhile and has removed the folder
        if gang.scratch is not None and _read_exit(gang, worker) is not None:
            leave(folder, gang.folder / f"worker-{worker}")
    if ended is None:
        processes.log_line(f"no launcher could do its work in {folder}:\n{_log_of(folder)}")
    return _status(ended)


def recover_left(gang: GangFile) -> int:
    """Reports what workers left in the gang's folder because no server answered; 0 when everything is reported."""
    return 0 if _recover(sorted(gang.folder.glob("worker-*")), gang.linger) else 1


def _recover(folders: Sequence[Path], linger: float) -> bool:
    left = [folder for folder in folders if (folder / "launch.json").exists()]
    for folder in left:
        LauncherSupervisor(folder, linger, lambda exit: None).run(recover=True)
    return all(Folder(folder).done() for folder in left)


def _number(kind: Kind) -> int:
    """The worker's number, as far as known before it is checked."""
    names = ("SLURM_PROCID",) if kind == "slurm" else boot_kubernetes.WORKER
    value = next((os.environ[name] for name in names if os.environ.get(name)), "0")
    return int(value) if value.isdecimal() else 0


def _write_exit(kind: Kind, gang: GangFile, worker: int, ended: wire.WorkerExit) -> None:
    """Writes the end for the engine, which can read it even if no server could be reached from here."""
    try:
        if kind == "slurm":
            write_whole(gang.folder / f"exit-{worker}.json", json.dumps(ended.to_dict()).encode())
        else:
            boot_kubernetes.write_exit(ended, os.environ)
    except OSError as error:
        processes.log_line(f"the engine can't be told how worker {worker} ended: {error}")


def _read_exit(gang: GangFile, worker: int) -> wire.WorkerExit | None:
    """The end that `_write_exit` wrote to the gang's folder."""
    try:
        return wire.WorkerExit.from_dict(json.loads((gang.folder / f"exit-{worker}.json").read_text()))
    except FileNotFoundError:
        return None


def _status(ended: wire.WorkerExit | None) -> int:
    return 0 if ended is not None and ended.outcome == "succeeded" else 1


def _log_of(folder: Path) -> str:
    try:
        return (folder / "launcher.log").read_bytes()[-LOG_SHOWN:].decode(errors="replace")
    except OSError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
