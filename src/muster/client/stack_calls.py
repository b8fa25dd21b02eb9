"""Calls for the stacks of a job's ranks: what every rank is doing, now or for a while, and the diagnosis of it."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from muster.client.connection import Anyone, job_path, run_path
from muster.core.errors import Conflict

if TYPE_CHECKING:
    from muster.api.diagnosis import DiagnosisView
    from muster.api.stacks import StacksEntry, StacksView

TIMEOUT: Final = 30.0  # seconds; a worker hears of it within two, and answers within eight
SPACING: Final = 2.2  # seconds between two looks, at least: the server gives the same stacks for two
LOOKS: Final = 20
PROFILED: Final = 10.0  # seconds
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
    return await to._get(await _taken(to, ref, timeout))


async def profile(
    to: Anyone, /, ref: str | int, *, seconds: float = PROFILED, timeout: float = TIMEOUT, last: bool = False
) -> StacksView:
    """Where the ranks of a running job spend their time: `stacks` whose "ranks" have a "profile" over so many seconds.

    At most 60. The main threads of a rank's processes are looked at up to fifty times a second, waiting or not. With
    `last`, what the newest call has kept. `muster.monitor.profiles` merges them.
    """
    if last:
        return await to._get(job_path(ref, "stacks", "last"))
    return await to._get(await _taken(to, ref, timeout + seconds, seconds))


async def sample(
    to: Anyone, /, ref: str | int, *, seconds: float = 60.0, looks: int = LOOKS
) -> AsyncGenerator[int, None]:
    """Takes the stacks of all ranks `looks` times over so many seconds, and yields how often it has.

    They are kept with the run, for `diagnosis`. Fewer looks if they would be closer together than two seconds. Ends
    early when the job ends. The times between looks vary, so that they don't fall on the same part of every step.
    """
    count = max(1, min(looks, int(seconds / SPACING)))
    until = time.monotonic()
    for number in range(count):
        until += max(SPACING, random.uniform(0.75, 1.25) * seconds / count)
        try:
            await _taken(to, ref, until - time.monotonic())
        except Conflict:  # it does not run any more
            return
        yield number + 1
        if number + 1 < count:
            await to._transport.sleep(max(0.0, until - time.monotonic()))


async def diagnosis(to: Anyone, /, ref: str | int) -> DiagnosisView:
    """Why a run is slow, idle, stuck or not learning, by what is recorded: "outcome", "verdict", "findings", each with
    its "evidence" and what to "change", "looked_at" and "missing". `sample` first, for a program that reports nothing.
    """
    return await to._get(run_path(ref, "diagnosis"))


async def kept_stacks(to: Anyone, /, ref: str | int) -> list[StacksEntry]:
    """The stacks that are kept of a job, the newest first: {"id", "attempt", "time", "ranks", "world"}."""
    return (await to._get(job_path(ref, "stacks")))["stacks"]


async def _taken(to: Anyone, ref: str | int, timeout: float, seconds: float = 0.0) -> str:
    """Has stacks taken, waits for all ranks or for `timeout` seconds, and returns their path."""
    made = await to._send("POST", job_path(ref, "stacks"), seconds=seconds or None)
    path = job_path(made["job"], "stacks", str(made["id"]))
    until, pause = time.monotonic() + timeout, _FIRST
    while time.monotonic() < until and (await to._get(path, brief=True))["missing"]:
        await to._transport.sleep(pause)
        pause = min(_LAST, 1.5 * pause)
    return path
