"""A worker's place in a gang that Slurm started: its number from `srun`, rank 0's address from a shared file.

In the gang's folder, next to gang.json:

    owner            the one Slurm job, and its restart number, that this attempt belongs to
    orders.json      a `wire.Command` from the engine or the batch script
    rendezvous.json  where rank 0 listens, from worker 0
    exit-N.json      how worker N ended
    worker-N         what worker N could not report to the server before it had to leave its node
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import processes, verdict
from muster.runtime.boot_gang import LOOPBACK, BootError, GangFile, WorkerAssignment, free_port, number, own_address
from muster.runtime.folder import write_whole

LOOK: Final = 0.1  # seconds between two looks for worker 0's file, doubled up to LOOK_LAST
LOOK_LAST: Final = 2.0
RENDEZVOUS_SECONDS: Final = 600.0  # seconds; on a busy cluster the tasks of one step may start minutes apart
LEAVE: Final = (signal.SIGTERM, signal.SIGINT)


class OtherOwner(Exception):
    """The attempt belongs to another Slurm job, so this one has nothing to do."""


class ToldToExit(Exception):
    """The worker was told to exit before it had started anything."""

    def __init__(self, exit: wire.WorkerExit) -> None:
        super().__init__(exit.detail)
        self.exit = exit


def find(gang: GangFile, environment: Mapping[str, str]) -> WorkerAssignment:
    """Finds this worker's place, and waits for worker 0. Signals must be blocked. Raises BootError, Foreign or Left."""
    claim(gang.folder, environment)
    worker = number("SLURM_PROCID", environment.get("SLURM_PROCID"), gang.launch.num_nodes)
    node = environment.get("SLURMD_NODENAME") or socket.gethostname()
    orders = gang.folder / "orders.json"
    met = gang.folder / "rendezvous.json"
    if worker == 0 and not met.exists():
        address = own_address(gang, [node, socket.gethostname()])
        here = {"address": address, "port": gang.port or free_port(), "node": node, "boot_id": processes.boot_id()}
        write_whole(met, json.dumps(here).encode())
        processes.fault("after_rendezvous")
    rendezvous = _wait_for(met, orders)
    if rendezvous["address"] == LOOPBACK and rendezvous["boot_id"] != processes.boot_id():
        raise BootError(
            f"worker 0 found no address of {rendezvous['node']} but {LOOPBACK}, which {node} can't reach: "
            "give the engine's `address`, or let the node's name resolve to its address"
        )
    return WorkerAssignment(worker, node, str(rendezvous["address"]), int(rendezvous["port"]), orders)


def claim(folder: Path, environment: Mapping[str, str]) -> None:
    """Assigns the attempt to this job, if it has no owner. Raises Foreign if another job owns it."""
    job = environment.get("SLURM_JOB_ID", "")
    if not job:
        raise BootError("SLURM_JOB_ID is not set: this is started by `srun`, or with --recover")
    mine = f"{job}.{environment.get('SLURM_RESTART_COUNT') or 0}"
    draft = folder / f".owner.{mine}.{environment.get('SLURM_PROCID', '')}.{os.getpid()}"
    draft.write_text(mine)
    try:
        with contextlib.suppress(FileExistsError):
            (folder / "owner").hardlink_to(draft)  # atomic; fails if another process was first
    finally:
        draft.unlink(missing_ok=True)
    processes.fault("after_owner")
    owner = (folder / "owner").read_text()
    if owner != mine:
        raise OtherOwner(f"the attempt in {folder} belongs to Slurm job {owner}; this is {mine} and leaves")


def _wait_for(path: Path, orders: Path) -> dict[str, Any]:
    until, look = time.monotonic() + RENDEZVOUS_SECONDS, LOOK
    while True:
        # Listing the folder makes a network file system refresh;
        # otherwise it may keep reporting a missing file as missing.
        if path.name in os.listdir(path.parent):  # noqa: PTH208
            with contextlib.suppress(FileNotFoundError):
                found: dict[str, Any] = json.loads(path.read_text())
                return found
        if time.monotonic() >= until:
            raise BootError(
                f"worker 0 has not said where it listens within {RENDEZVOUS_SECONDS:g} s; see its node's log"
            )
        rang = signal.sigtimedwait((*LEAVE, signal.SIGUSR1, signal.SIGURG), look)
        if rang is not None:
            _handle_signal(rang.si_signo, orders)
        look = min(2 * look, LOOK_LAST)


def _handle_signal(signum: int, orders: Path) -> None:
    if signum in LEAVE:
        detail = "the launcher was told to leave its node before it had started a rank"
        raise ToldToExit(wire.WorkerExit("failed", verdict.NODE_LOST, detail, time.time()))
    with contextlib.suppress(OSError, ValueError, TypeError):
        command = wire.Command.from_dict(json.loads(orders.read_text()))
        if command.kind in ("stop", "kill"):
            reason = command.reason or verdict.USER_STOP
            raise ToldToExit(wire.WorkerExit("stopped", reason, "stopped before its ranks were started", time.time()))
