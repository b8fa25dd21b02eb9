"""Builds a worker's `Launch` (the launcher's input) from the controller's request
and from what only the engine knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.core.errors import EngineError
from muster.core.resources import WHOLE
from muster.core.seat import is_slot
from muster.engines.base import GangLaunch
from muster.wire import Launch


@dataclass(frozen=True, slots=True)
class Home:
    """What an engine knows about its server."""

    folder: Path  # the server's folder
    installation: str  # short id of this Muster: marks everything that it creates in a cluster as its own
    urls: Callable[[], Sequence[str]]  # addresses at which launchers reach the servers
    urls_file: Path | None = None  # the same, kept up to date, as JSON {"urls": [...]}: for launchers on this machine
    ca_file: str | None = None
    log_limit: int = 64 << 20  # bytes of output kept per rank, unless its job says otherwise
    key: bytes = field(default=b"", repr=False)  # this Muster's secret: for names and signatures that can't be guessed
    trust_members: bool = False  # for every engine; see `muster.engines.isolation`
    private: tuple[str, ...] = ()  # paths that only the server may read
    spot_notices: tuple[str, ...] = ()  # where launchers look whether a spot machine is taken away


def launch_of(
    gang: GangLaunch,
    worker: int,
    node: str,
    home: Home,
    checkpoint_dir: str,
    devices: tuple[int, ...] | None = None,
    urls_file: str | None = None,
) -> Launch:
    """Everything except the address of rank 0, which the engine or the workers find out."""
    if not gang.job or "/" in gang.job or gang.job.startswith("."):
        raise EngineError(f"{gang.job!r} can't be a job's id.", "It is the name of a folder, without a slash.")
    return Launch(
        job=gang.job,
        attempt=gang.attempt,
        worker=worker,
        node=node,
        num_nodes=len(gang.seats),
        nproc=gang.nproc,
        run=gang.run,
        workdir=gang.workdir,
        envs=dict(gang.envs),
        secrets=tuple(gang.secrets),
        urls=tuple(home.urls()),
        urls_file=urls_file,
        token=gang.token,
        master_addr="",
        master_port=0,
        checkpoint_dir=checkpoint_dir,
        checkpoint_keep=gang.checkpoint_keep,
        checkpoint_every=gang.checkpoint_every,
        devices=devices,
        max_duration=gang.max_duration,
        memory=gang.memory,
        stop_grace=gang.stop_grace,
        log_limit=home.log_limit if gang.log_limit is None else gang.log_limit,
        ca_file=home.ca_file,
        code=gang.code,
        check_nodes=tuple(gang.check_nodes),
        accelerators=gang.ask.accelerators if gang.ask.share == WHOLE else None,
        spot_notices=home.spot_notices if gang.spot else (),
        links=_measures_links(gang),
        start=gang.start,
    )


def _measures_links(gang: GangLaunch) -> bool:
    """Whether a node of the gang failed lately. Where a cluster chooses the nodes, whether one of its pool did: the
    server knows more when the workers meet."""
    sick = gang.check_nodes
    return len(gang.seats) > 1 and any(seat.node in sick or (sick and is_slot(seat.node)) for seat in gang.seats)
