"""The checks of `muster doctor --engine` for Ray, one after the other, as far as they can be run."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Final

from muster.core.errors import EngineError
from muster.core.units import format_size
from muster.engines.base import Finding
from muster.engines.describe import Home
from muster.engines.ray.connect import RaySettings, connect
from muster.engines.ray.link import Link
from muster.engines.ray.nodes import node_infos

IMPORT_SECONDS: Final = 60.0
PROBE_SECONDS: Final = 60.0
PROBED: Final = 16  # maximum number of nodes
CLOCK_OFF: Final = 30.0  # seconds between a node's clock and this one's that lead to a warning
_TELL: Final = "import sys, ray; print(ray.__version__, sys.version.split()[0])"


def diagnose(name: str, settings: RaySettings, home: Home) -> Iterator[Finding]:
    package = _package(settings)
    yield package
    if package.status == "fail":
        return
    try:
        link, about = connect(name, settings, home, lambda: None, steer=False)
    except EngineError as error:
        hint = "Is `address` right, does its head run, and does this machine run `ray start` for that cluster?"
        yield Finding("fail", "connection", error.message, hint)
        return
    try:
        yield Finding("ok", "connection", f"Ray {about['version']} at {about['address']}")
        yield from _nodes(link, name, settings, home)
    except EngineError as error:
        yield Finding("fail", "connection", error.message, error.hint)
    finally:
        link.close()


def _package(settings: RaySettings) -> Finding:
    try:
        command = [settings.python, "-P", "-c", _TELL]
        done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("fail", "package", f"{settings.python}: {error}", "Correct `python` in the engine's settings.")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        hint = "Install Ray in the cluster's version there, or set `python` to an interpreter that has it."
        return Finding("fail", "package", f"{settings.python} can't import Ray: {last}", hint)
    version, python = done.stdout.split()[-2:]
    return Finding("ok", "package", f"Ray {version} under Python {python}")


def _nodes(link: Link, name: str, settings: RaySettings, home: Home) -> Iterator[Finding]:
    told = link.call("look")["nodes"]
    infos = {info.name: info for info in node_infos(told, settings.pools, name)}
    if not infos:
        yield Finding("fail", "nodes", "no node has a CPU or an accelerator to give", "Start nodes with `ray start`.")
        return
    total = ", ".join(f"{info.name} ({info.pool}: {info.resources})" for info in list(infos.values())[:PROBED])
    yield Finding("ok", "nodes", f"{len(infos)}: {total}")
    probed: list[str] = []
    mark = f".muster-doctor-{home.installation}-{os.getpid()}"
    for node in [node for node in told if node["name"] in infos][:PROBED]:
        try:
            given = {"node": node["id"], "mark": mark if probed else "", "write": "" if probed else mark}
            found = link.call("probe", PROBE_SECONDS, **given)
        except EngineError as error:
            hint = "See the agent's log under Ray's session folder on that node."
            yield Finding("fail", f"agent on {node['name']}", error.message, hint)
            continue
        probed.append(node["name"])
        yield from _node(node["name"], found, settings, first=len(probed) == 1)


def _node(name: str, found: dict[str, Any], settings: RaySettings, first: bool) -> Iterator[Finding]:
    about = f"Python {found['python']}, {format_size(found['free'])} free for scratch"
    yield Finding("ok", f"agent on {name}", about)
    off = abs(found["time"] - time.time())
    if off > CLOCK_OFF:
        yield Finding("warn", f"clock on {name}", f"it is {off:.0f} s off", "Set the clocks by NTP.")
    for url, why in found["servers"].items():
        where = f"server from {name}"
        if why:
            hint = 'Set `advertise = "http://HOST:PORT"` in config.toml to what nodes can reach.'
            yield Finding("fail", where, f"{url} can't be reached from there: {why}", hint)
        else:
            yield Finding("ok", where, url)
    yield from _checkpoints(name, found, settings, first)


def _checkpoints(name: str, found: dict[str, Any], settings: RaySettings, first: bool) -> Iterator[Finding]:
    where, folder = f"checkpoints on {name}", found["checkpoints"]
    if "://" in settings.checkpoints:
        yield Finding("ok", where, settings.checkpoints)
    elif found["wrote"]:
        yield Finding("fail", where, f"{folder}: {found['wrote']}", "Let the user that Ray runs as write there.")
    elif not first and not found["found"]:
        hint = "Set `checkpoints` to a folder that all nodes share, or to s3://bucket/prefix, gs://... or az://..."
        why = f"{folder} is not the same folder as on the first node: a job that moves finds no checkpoint"
        yield Finding("fail" if settings.checkpoints else "warn", where, why, hint)
    else:
        yield Finding("ok", where, folder)
