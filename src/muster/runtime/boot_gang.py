"""The input of `boot`: the gang as its engine wrote it, and this worker's place in it as the cluster gives it.

gang.json, in a folder that every worker of the gang sees:

    launch    a `wire.Launch`; what differs between workers (worker, node, master_addr, master_port) is filled in here
    scratch   a folder local to the node, $NAMES expanded, created if missing; "": use the gang's folder
    port      where rank 0 listens; 0: worker 0 chooses a free one
    address   of worker 0 for the others: a name or a number; "": worker 0 finds it
    linger    seconds that a launcher whose ranks have ended waits for a server that is away, and holds its machine
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from muster import wire

GANG: Final = "gang.json"
LOOPBACK: Final = "127.0.0.1"
LINGER: Final = 300.0  # seconds
# Below the range that Linux uses for outgoing connections, so that no connection takes the port before a rank listens.
PORTS: Final = range(20000, 30000)


class BootError(Exception):
    """Why this worker can't start, as a readable sentence."""


@dataclass(frozen=True, slots=True)
class GangFile:
    folder: Path
    launch: wire.Launch
    scratch: Path | None
    port: int
    address: str
    linger: float

    @classmethod
    def read(cls, folder: Path) -> GangFile:
        try:
            raw = json.loads((folder / GANG).read_text())
            launch = wire.Launch.from_json(json.dumps(raw["launch"]))
            scratch = os.path.expandvars(str(raw.get("scratch", "")))
            port, address = int(raw.get("port", 0)), str(raw.get("address", ""))
            linger = float(raw.get("linger", LINGER))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise BootError(f"{folder / GANG} can't be read: {error!r}") from error
        if "$" in scratch or (scratch and not scratch.startswith("/")):
            raise BootError(f"the scratch folder {scratch!r} is no absolute path on this node; is its variable set?")
        return cls(folder, launch, Path(scratch) if scratch else None, port, address, linger)


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """The place of this process in the gang."""

    worker: int
    node: str
    address: str  # of rank 0
    port: int
    orders: Path | None = None

    def launch(self, gang: GangFile) -> wire.Launch:
        return replace(
            gang.launch,
            worker=self.worker,
            node=self.node,
            master_addr=self.address,
            master_port=self.port,
            orders=str(self.orders) if self.orders is not None else gang.launch.orders,
        )


def number(environment: str, value: str | None, num_nodes: int) -> int:
    """A worker's number, from the environment variable of this name."""
    if value is None or not value.isdecimal():
        raise BootError(f"{environment} is {value!r}; it should be the worker's number, from 0 to {num_nodes - 1}")
    if int(value) >= num_nodes:
        raise BootError(f"{environment} is {value}, but the gang has {num_nodes} workers")
    return int(value)


def worker_name(gang: GangFile, worker: int) -> str:
    """The name of the worker's folder on its node: unique, even if another Muster has a job with the same id."""
    whose = hashlib.sha256(f"{gang.folder}\0{gang.launch.token}".encode()).hexdigest()[:12]
    return f"{gang.launch.job}.{gang.launch.attempt}.{worker}-{whose}"


def own_address(gang: GangFile, names: list[str]) -> str:
    """An address of this machine that others can reach: the configured one, else the first of `names` that belongs to
    this machine, else the one from which it reaches the server, else the loopback address."""
    if gang.address:
        return gang.address
    found = [address for name in names for address in _addresses(name)]
    found += [address for url in gang.launch.urls for address in _towards(url)]
    for address in found:
        if not address.startswith(("127.", "::1", "fe80:")) and _is_ours(address):
            return address
    return LOOPBACK


def free_port() -> int:
    """A port that nothing listens on now."""
    start = random.randrange(len(PORTS))
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise BootError(f"no port between {PORTS.start} and {PORTS.stop - 1} is free on this node")


def _addresses(name: str) -> list[str]:
    """The addresses of a host, IPv4 first, because more networks and libraries support it."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(entry[4][0]) for entry in sorted(found, key=lambda entry: entry[0] != socket.AF_INET)]


def _towards(url: str) -> list[str]:
    """This machine's address for connections to there; sends nothing."""
    there = urlsplit(url)
    try:
        family, kind, _, _, address = socket.getaddrinfo(there.hostname, there.port or 80, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return [str(probe.getsockname()[0])]
    except (OSError, ValueError):
        return []


def _is_ours(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
