"""Reads and checks the settings of an engine of kind `ray`: [engines.ray] in the server's config.toml."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, Final

from muster.core.errors import ConfigError
from muster.core.resources import Resources
from muster.core.suggest import did_you_mean
from muster.core.units import InvalidValue, parse_accelerators, parse_duration, parse_size
from muster.engines.describe import Home
from muster.engines.isolation import KEYS, read_isolation
from muster.engines.ray.adapter import RayAdapter
from muster.engines.ray.connect import RaySettings
from muster.engines.ray.nodes import Pool

_TEXTS: Final = ("address", "python", "checkpoints", "scratch")
_POOL: Final = ("selector", "node", "max_nodes")
_NODE: Final = ("cpus", "memory", "accelerators")


def read(name: str, settings: Mapping[str, Any], home: Home) -> RayAdapter:
    """Builds the adapter. Raises ConfigError; connects to nothing."""
    where = f"engines.{name}"
    known = {field.name for field in fields(RaySettings)} - {"isolation"} | KEYS
    _known(where, settings, sorted(known))
    given: dict[str, Any] = {key: _text(f"{where}.{key}", settings[key]) for key in _TEXTS if key in settings}
    checkpoints = given.get("checkpoints", "")
    if checkpoints and "://" not in checkpoints and not checkpoints.startswith("/"):
        raise ConfigError(f"{where}.checkpoints is {checkpoints!r}.", "Write a whole path, or s3://bucket/prefix.")
    if given.get("scratch") and not given["scratch"].startswith("/"):
        raise ConfigError(f"{where}.scratch is {given['scratch']!r}.", "Write a whole path.")
    if "nodes_every" in settings:
        given["nodes_every"] = _seconds(f"{where}.nodes_every", settings["nodes_every"])
    pools = settings.get("pools", {})
    if not isinstance(pools, Mapping):
        raise ConfigError(f"{where}.pools is {pools!r}.", f"Write tables such as [{where}.pools.h100].")
    found = tuple(_pool(f"{where}.pools.{key}", key, value) for key, value in pools.items())
    isolation = read_isolation(where, settings, home.trust_members)
    return RayAdapter(name, RaySettings(**given, pools=found, isolation=isolation), home)


def _pool(where: str, name: str, raw: object) -> Pool:
    table = _table(where, raw, _POOL)
    selector = table.get("selector", {})
    if not isinstance(selector, Mapping) or not all(isinstance(value, str) for value in selector.values()):
        raise ConfigError(f"{where}.selector is {selector!r}.", 'Write labels and texts: selector = {rack = "r1"}.')
    node = _node(f"{where}.node", table["node"]) if "node" in table else None
    most = table.get("max_nodes", 0)
    if not isinstance(most, int) or isinstance(most, bool) or most < 0:
        raise ConfigError(f"{where}.max_nodes is {most!r}, a count is expected.", "Write a whole number such as 8.")
    if (node is None) != (most == 0):
        raise ConfigError(f"{where} has one of `node` and `max_nodes`.", "A pool that grows needs both.")
    return Pool(name, dict(selector), node, most)


def _node(where: str, raw: object) -> Resources:
    table = _table(where, raw, _NODE)
    cpus = table.get("cpus", 1)
    if not isinstance(cpus, int | float) or isinstance(cpus, bool) or cpus <= 0:
        raise ConfigError(f"{where}.cpus is {cpus!r}, a number is expected.", "Write a number such as 16.")
    try:
        memory = parse_size(str(table.get("memory", "0")))
        kind, count, _ = parse_accelerators(str(table["accelerators"])) if "accelerators" in table else ("", 0, 0)
    except InvalidValue as error:
        hint = str(error) or 'Write it like {cpus = 16, memory = "64GB", accelerators = "H100:8"}.'
        raise ConfigError(f"{where} makes no sense: {dict(table)!r}.", hint) from error
    return Resources(int(1000 * cpus), memory, count, kind)


def _table(where: str, raw: object, known: Collection[str]) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where} is {raw!r}; a table is expected.", f"It may have: {', '.join(known)}.")
    _known(where, raw, known)
    return raw


def _known(where: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}.{key} is not a setting.", did_you_mean(str(key), sorted(known)))


def _text(where: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw:
        raise ConfigError(f"{where} is {raw!r}; text is expected.", "Put it in quotes.")
    return raw


def _seconds(where: str, raw: object) -> float:
    try:
        seconds = parse_duration(str(raw))
    except InvalidValue as error:
        raise ConfigError(f"{where} is {raw!r}; a duration is expected.", 'Write it like "2s".') from error
    if not 0.1 <= seconds <= 3600:
        raise ConfigError(f"{where} is {raw!r}.", "Choose something between 0.1 s and an hour.")
    return seconds
