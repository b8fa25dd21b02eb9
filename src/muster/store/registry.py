"""Chooses the store for a URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from muster.core.errors import ConfigError
from muster.store.base import Store
from muster.store.memory import MemoryStore
from muster.store.sql import SqlStore

STORES: Final[dict[str, Callable[[str], Store]]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": SqlStore,
    "postgresql": SqlStore,
    "postgres": lambda url: SqlStore(url.replace("postgres:", "postgresql:", 1)),
}


def open_store(url: str) -> Store:
    """The opened store of a URL: `memory:`, `sqlite:///path` or `postgresql://user@host/database`."""
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in STORES:
        raise ConfigError(
            f"The store's URL starts with {scheme!r}; expected one of {', '.join(sorted(STORES))}.",
            "Give `memory:`, `sqlite:///path` or `postgresql://user@host/database`.",
        )
    store = STORES[scheme](url)
    store.open()
    return store
