"""The Python SDK: `muster.Client` and `muster.AsyncClient` submit jobs, follow them and manage queues and projects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.client.client import Client
from muster.client.job import AsyncJob, Job
from muster.client.run import AsyncRun, Run
from muster.client.stream import LogLine
from muster.client.study import AsyncStudy, Study
from muster.core.errors import MusterError

if TYPE_CHECKING:
    from muster.client.async_client import AsyncClient

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "AsyncRun",
    "AsyncStudy",
    "Client",
    "Job",
    "LogLine",
    "MusterError",
    "Run",
    "Study",
]


def __getattr__(name: str) -> Any:
    # The event loop loads only when it is named: it would cost every command of the CLI its time.
    if name == "AsyncClient":
        from muster.client.async_client import AsyncClient  # noqa: PLC0415

        return AsyncClient
    raise AttributeError(f"module 'muster.client' has no attribute {name!r}")
