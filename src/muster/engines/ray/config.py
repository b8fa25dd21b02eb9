"""Reads and checks the settings of an engine of kind `ray`: [engines.ray] in the server's config.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from muster.core.config import Table
from muster.core.resources import Resources
from muster.core.units import parse_accelerators
from muster.engines.describe import Home
from muster.engines.isolation import read_isolation
from muster.engines.ray.adapter import RayAdapter
from muster.engines.ray.connect import RaySettings
from muster.engines.ray.nodes import Pool

_TEXTS: Final = ("address", "python", "checkpoints", "scratch")


def read(name: str, settings: Mapping[str, Any], home: Home) -> RayAdapter:
    """Builds the adapter. Raises ConfigError with every mistake; connects to nothing."""
    table, usual = Table(f"engines.{name}", settings), RaySettings()
    texts = {key: table.text(key, getattr(usual, key)) for key in _TEXTS}
    if texts["checkpoints"] and "://" not in texts["checkpoints"] and not texts["checkpoints"].startswith("/"):
        table.wrong("checkpoints", "a place", "Write a whole path, or s3://bucket/prefix, gs://... or az://...")
    if texts["scratch"] and not texts["scratch"].startswith("/"):
        table.wrong("scratch", "a folder", "Write a whole path.")
    made = RaySettings(
        **texts,
        nodes_every=table.duration("nodes_every", usual.nodes_every, 0.1, 3600),
        pools=tuple(_pool(key, one) for key, one in table.tables("pools").items()),
        isolation=read_isolation(table, home.trust_members),
    )
    table.finish()
    return RayAdapter(name, made, home)


def _pool(name: str, table: Table) -> Pool:
    selector = table.words("selector")
    node = _node(table.table("node")) if "node" in table.given else None
    most = table.whole("max_nodes", 0, 0, 100_000)
    table.know("node")
    if (node is None) != (most == 0):
        table.mistakes.add(f"{table.where} has one of `node` and `max_nodes`.", "A pool that grows needs both.")
    table.refuse_others()
    return Pool(name, selector, node, most)


def _node(table: Table) -> Resources:
    cpus = table.number("cpus", 1, 0.001, 1e6)
    memory = table.size("memory", 0)
    kind, count, _ = table.parsed("accelerators", ("", 0, 0), parse_accelerators, "a kind and a count", "Write H100:8.")
    table.refuse_others()
    return Resources(int(1000 * cpus), memory, count, kind)
