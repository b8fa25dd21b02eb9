"""Starts the bridge and sends it the first request: the settings, the shipped package and the servers' addresses."""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from muster.engines.describe import Home
from muster.engines.isolation import IsolationSettings
from muster.engines.package import Package, worker_package
from muster.engines.ray.link import Link
from muster.engines.ray.nodes import Pool

CONNECT_SECONDS: Final = 120.0  # a node's first agent takes some seconds to start, on a busy machine more
SHIPPED: Final = ("api", "core", "engines")  # what the agent needs besides the launchers' and ranks' modules


@dataclass(frozen=True, slots=True)
class RaySettings:
    address: str = "auto"
    python: str = sys.executable  # for the bridge: has Ray in the cluster's version
    checkpoints: str = ""  # on every node: a folder, s3://..., gs://... or az://...; "": a folder of each node
    scratch: str = ""  # on every node; "": in the system's folder for temporary files
    nodes_every: float = 2.0  # seconds between two polls of the list of nodes
    pools: tuple[Pool, ...] = ()
    isolation: IsolationSettings = field(default_factory=IsolationSettings)


def connect(
    name: str, settings: RaySettings, home: Home, changed: Callable[[], None], steer: bool = True
) -> tuple[Link, dict[str, Any]]:
    """Starts a bridge and returns it with a description of the cluster. Without `steer` it only looks.
    Raises EngineError."""
    package = worker_package(SHIPPED)
    folder = home.folder / "ray"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = package.unpack_into(folder / "packages")
    log = folder / (f"{name}.log" if steer else f"{name}-doctor.log")
    link = Link([settings.python, "-P", "-m", "muster.engines.ray.bridge"], _environment(place), log, changed)
    link.start()
    try:
        about = link.call("connect", CONNECT_SECONDS, **_connect_request(settings, home, package, place), steer=steer)
    except BaseException:
        link.close()
        raise
    return link, about


def _connect_request(settings: RaySettings, home: Home, package: Package, place: Path) -> dict[str, Any]:
    return {
        "address": settings.address,
        "namespace": f"muster-{home.installation}",
        "package": str(place),
        "agent": {
            "installation": home.installation,
            "scratch": settings.scratch,
            "checkpoints": settings.checkpoints if "://" not in settings.checkpoints else "",
            "package": package.digest,
            "pass_env": list(settings.isolation.pass_env),
            "key": hmac.new(home.key, b"ray agents", hashlib.sha256).hexdigest(),
        },
        "urls": list(home.urls()),
        "certificate": Path(home.ca_file).read_text() if home.ca_file else "",
        "nodes_every": settings.nodes_every,
    }


def _environment(package: Path) -> dict[str, str]:
    """The bridge's environment: the shipped Muster comes first, and Ray's usage statistics are off."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(package), env.get("PYTHONPATH")]))
    return {**env, "RAY_USAGE_STATS_ENABLED": "0"}
