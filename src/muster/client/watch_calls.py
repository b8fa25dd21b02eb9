"""Calls that follow a job or the cluster: changes, output and events, as they happen."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from muster.api.words import FINAL
from muster.client import stream
from muster.client.connection import Anyone, Connection, Doc, J, job_path
from muster.client.http import BUSY_FOR
from muster.client.stream import Lines, LogLine, Message
from muster.core.errors import TooMany

if TYPE_CHECKING:
    from muster.api.events import EventView

PAGE: Final = 500  # events in one response
LOOK_EVERY: Final = 15.0  # seconds between two looks at a job that there is no stream for


async def wait(
    to: Connection[J, Any, Any],
    /,
    ref: str | int,
    timeout: float | None = None,
    on_change: Callable[[J], None] | None = None,
) -> J:
    """The job once it has ended. Raises TimeoutError after `timeout` seconds; continues over server restarts.

    While the user has as many streams open as the server allows, it looks at the job from time to time.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    view = await to._get(job_path(ref))
    last = to._job(view)
    try:
        while True:
            try:
                async with aclosing(_follow(to, job_path(view["id"], "stream"), {}, deadline, 0)) as messages:
                    async for message in messages:
                        view = message.data
                        last = to._job(view)
                        if on_change is not None:
                            on_change(last)
                return last
            except TooMany:
                view = await to._get(job_path(view["id"]))
                last = to._job(view)
                if view["phase"] in FINAL:
                    return last
                await to._transport.sleep(stream.left(deadline, LOOK_EVERY))
    except TimeoutError:
        raise TimeoutError(f"{view['id']} is still {view['phase']} after {timeout:g} s.") from None


async def changes(
    to: Connection[J, Any, Any], /, ref: str | int, *, deadline: float | None = None
) -> AsyncGenerator[J, None]:
    """The job now and at every change of phase, reason or progress, until it has ended."""
    path = job_path(await _id_of(to, ref), "stream")
    async with aclosing(_follow(to, path, {}, deadline)) as messages:
        async for message in messages:
            yield to._job(message.data)


async def watch(
    to: Connection[J, Any, Any],
    /,
    ref: str | int,
    rank: int | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    since: float | None = None,
) -> AsyncGenerator[LogLine | J, None]:
    """Every line of output, and the job at every change of phase or attempt; the ended job is the last."""
    lines = Lines()
    params = {"rank": rank, "attempt": attempt, "tail": tail, "since": since}
    path = job_path(await _id_of(to, ref), "logs", "stream")
    async with aclosing(_follow(to, path, params, None)) as messages:
        async for message in messages:
            if message.event == "log":
                for line in lines.take(message.data):
                    yield line
                continue
            if message.event == "end":
                for line in lines.close():
                    yield line
            elif message.data["phase"] in FINAL:
                continue  # the `end` message that follows says the same
            yield to._job(message.data)


async def logs(
    to: Anyone,
    /,
    ref: str | int,
    follow: bool = False,
    rank: int | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    since: float | None = None,
) -> AsyncGenerator[LogLine, None]:
    """Lines of output, of every attempt in order unless one is given; with `follow`, until the job has ended.

    `since`: only what was written at this time or later, in seconds since 1970.
    """
    if follow:
        async with aclosing(watch(to, ref, rank, attempt, tail, since)) as items:
            async for item in items:
                if isinstance(item, LogLine):
                    yield item
        return
    lines, after = Lines(), None
    path = job_path(await _id_of(to, ref), "logs")
    while True:
        page = await to._get(path, rank=rank, attempt=attempt, tail=tail, since=since, after=after)
        for chunk in page["chunks"]:
            for line in lines.take(chunk):
                yield line
        after, tail = page["next"], None
        if page["end"] or not page["chunks"]:
            break
    for line in lines.close():
        yield line


async def events(
    to: Anyone,
    /,
    *,
    project: str | None = None,
    job: str | int | None = None,
    actor: str | None = None,
    kind: str | None = None,
    after: int | None = None,
    last: int | None = None,
    follow: bool = False,
) -> AsyncGenerator[EventView, None]:
    """The audit log in order: all, what is after a `seq`, or the `last` ones; `follow` continues with new ones."""
    only = None if job is None else await _id_of(to, job)
    params: Doc = {"project": project, "job": only, "actor": actor, "kind": kind}
    while True:
        asked: Doc = {"after": after, "limit": PAGE} if last is None else {"last": True, "limit": last}
        page = await to._get("/v1/events", **params, **asked)
        for event in page["events"]:
            yield event
        after = page["next"]
        if last is not None or len(page["events"]) < PAGE:
            break
    if follow:
        async with aclosing(_follow(to, "/v1/events/stream", {**params, "after": after}, None)) as messages:
            async for message in messages:
                yield message.data


async def _id_of(to: Anyone, ref: str | int) -> str | int:
    """The id of a job that is named: while it is followed, another job of the name may start, or this one may end."""
    text = str(ref)
    known = text.isdigit() or text.rpartition("-")[2].isdigit()  # a number, or a name and a number
    return ref if known else (await to._get(job_path(ref)))["id"]


def _follow(
    to: Anyone, path: str, params: Doc, deadline: float | None, busy_for: float = BUSY_FOR
) -> AsyncGenerator[Message, None]:
    return stream.follow(
        to._transport,
        path,
        params,
        retry_for=to._retry_for,
        deadline=deadline,
        on_link=to._on_link,
        busy_for=busy_for,
    )
