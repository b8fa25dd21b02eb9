"""Calls for the stacks of a job's ranks: what every rank is doing now, or was doing when somebody asked before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from muster.client.connection import Anyone, job_path

if TYPE_CHECKING:
    from muster.api.stacks import StacksEntry, StacksView

TIMEOUT: Final = 30.0  # seconds; a worker hears of it within two, and answers within eight
_FIRST, _LAST = 0.1, 1.0  # seconds between two looks


async def stacks(
    to: Anyone, /, ref: str | int, *, timeout: float = TIMEOUT, last: bool = False, id: int | None = None
) -> StacksView:
    """The Python stacks of all ranks of a running job, grouped by where they are: "groups", "ranks" and "missing".

    Waits for every rank, at most `timeout` seconds; those that did not answer are in "missing". With `last`, or an `id`
    of `kept_stacks`, what was kept of an earlier call, which also works after the job's end. Stacks have functions,
    files and lines, and no values. The event log records who asked.
    """
    if last or id is not None:
        return await to._get(job_path(ref, "stacks", "last" if id is None else str(id)))
    made = await to._send("POST", job_path(ref, "stacks"))
    path = job_path(made["job"], "stacks", str(made["id"]))
    until, pause = time.monotonic() + timeout, _FIRST
    while time.monotonic() < until and (await to._get(path, brief=True))["missing"]:
        await to._transport.sleep(pause)
        pause = min(_LAST, 1.5 * pause)
    return await to._get(path)


async def kept_stacks(to: Anyone, /, ref: str | int) -> list[StacksEntry]:
    """The stacks that are kept of a job, the newest first: {"id", "attempt", "time", "ranks", "world"}."""
    return (await to._get(job_path(ref, "stacks")))["stacks"]
