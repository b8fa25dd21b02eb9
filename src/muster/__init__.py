"""Muster, a training platform in one install; this package imports nothing heavy until it is asked for."""

from __future__ import annotations

TYPE_CHECKING = False  # not imported: ranks load this module, and `typing` is most of what that would cost
if TYPE_CHECKING:
    from typing import Any

    from muster.client import AsyncClient, Client
    from muster.client.optuna import storage as optuna_storage
    from muster.runtime.tracker import start_run

__all__ = ["AsyncClient", "Client", "__version__", "optuna_storage", "start_run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Workers import `muster.runtime` on every rank: the clients, and httpx with them, load only when they are named.
    if name == "Client":
        from muster.client import Client  # noqa: PLC0415

        return Client
    if name == "AsyncClient":
        from muster.client import AsyncClient  # noqa: PLC0415

        return AsyncClient
    if name == "optuna_storage":
        from muster.client.optuna import storage  # noqa: PLC0415

        return storage
    if name == "start_run":
        from muster.runtime.tracker import start_run  # noqa: PLC0415

        return start_run
    raise AttributeError(f"module 'muster' has no attribute {name!r}")
