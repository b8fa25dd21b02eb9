"""Builds the launchers' input for a gang of the local engine,
from the engine's settings and the controller's request."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from muster.core.errors import EngineError
from muster.engines.base import GangLaunch, NodeInfo, Seat
from muster.engines.describe import Home, launch_of
from muster.engines.isolation import IsolationSettings, isolation_of
from muster.engines.local_nodes import CUDA_DEVICES
from muster.wire import Launch

LOOPBACK: Final = "127.0.0.1"
# Below the range that Linux uses for outgoing connections, so that no connection takes the port before a rank listens.
PORTS: Final = range(20000, 30000)


def _no_urls() -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class LocalConfig:
    """The local engine's settings. `urls_file` holds the servers' addresses as JSON {"urls":
    [...]}, for launchers that outlive a server's address."""

    root: Path
    nodes: Sequence[NodeInfo]
    urls: Callable[[], Sequence[str]] = _no_urls
    urls_file: Path | None = None
    log_limit: int = 64 << 20  # bytes per rank
    ca_file: str | None = None
    real_devices: bool = True  # False leaves CUDA_VISIBLE_DEVICES alone even where a node has real GPUs
    python: str = sys.executable
    env: Mapping[str, str] | None = None  # for the launchers; None: what they need of this process's environment
    isolation: IsolationSettings = field(default_factory=IsolationSettings)
    hidden: tuple[str, ...] = ()  # paths that only the server may read
    spot_notices: tuple[str, ...] = ()  # see `describe.Home`


def describe_gang(config: LocalConfig, gang: GangLaunch) -> list[Launch]:
    """Each worker's launcher input, without the port. Raises EngineError for a gang that can't exist here."""
    checkpoints = config.root.absolute() / "checkpoints" / gang.job
    home = Home(
        config.root, "", config.urls, None, str(Path(config.ca_file).absolute()) if config.ca_file else None,
        config.log_limit, spot_notices=config.spot_notices,
    )  # fmt: skip
    urls_file = str(config.urls_file.absolute()) if config.urls_file else None
    told = [
        launch_of(gang, number, seat.node, home, str(checkpoints), _devices(config, seat), urls_file)
        for number, seat in enumerate(gang.seats)
    ]
    hidden = (str(config.root.absolute()), *config.hidden)
    apart = isolation_of(gang, config.isolation, hidden, config.root.parent / "users.json")
    passed = config.isolation.pass_env
    # Its nodes are one machine, which has no links.
    return [
        replace(launch, master_addr=LOOPBACK, isolation=apart, pass_env=passed, warm=gang.warm, links=False)
        for launch in told
    ]


def free_port(taken: Collection[int]) -> int:
    """A port that nothing listens on now and that no other attempt has."""
    start = random.randrange(len(PORTS))
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        if port not in taken and _can_listen(port):
            return port
    raise OSError(f"no port between {PORTS.start} and {PORTS.stop - 1} is free")


def _devices(config: LocalConfig, seat: Seat) -> tuple[int, ...] | None:
    """The machine's indices of a seat's accelerators; None if they are not real."""
    nodes = {node.name: node for node in config.nodes}
    if seat.node not in nodes:
        raise EngineError(f"There is no node {seat.node!r} on this machine.", f"It has {', '.join(nodes) or 'none'}.")
    label = nodes[seat.node].labels.get(CUDA_DEVICES)
    if label is None or not config.real_devices:
        return None
    own = [int(index) for index in label.split(",") if index]
    if any(index >= len(own) for index in seat.devices):
        raise EngineError(f"{seat.node} has {len(own)} GPUs, there are no {seat.devices}.", "Was one taken out?")
    return tuple(own[index] for index in seat.devices)


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
