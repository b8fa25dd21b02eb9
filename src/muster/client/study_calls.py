"""Calls for studies: how they stand, their trials, stopping, changing, and trials that somebody outside runs."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from muster.api.numbers import json_number
from muster.client.connection import Anyone, Connection, S, study_path
from muster.client.stream import FIRST_DELAY, LAST_DELAY
from muster.client.watch_calls import wait
from muster.core.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from muster.api.studies import (
        AskedTrial,
        StudyChange,
        StudyLine,
        StudyReport,
        StudyStatus,
        StudyText,
        TrialRow,
        TrialState,
        TrialWord,
    )

PAGE: Final = 1000  # trials in one response
EVERY: Final = 2.0  # seconds between two looks at a study that is watched
STOP_PATIENCE: Final = 600.0  # seconds for which `resume_study` waits for one that is being stopped
T = TypeVar("T")
Outcome = Literal["complete", "failed", "infeasible", "lost"]
Points = Mapping[str, Sequence[tuple[int, float]]]  # metric → (step, value)
_PHASES: Final = {"queued": "running", "running": "running", "leaving": "leaving", "paused": "paused"}


async def studies(
    to: Anyone, /, *, project: str | None = None, everything: bool = False, limit: int | None = None
) -> list[StudyLine]:
    """The newest studies first: those that are not over, or with `everything` all."""
    params = {"project": project, "all": everything or None, "limit": limit}
    return (await to._get("/v1/studies", **params))["studies"]


async def study(to: Connection[Any, Any, S], /, ref: str | int) -> S:
    """By id (`lr-12`), by number, or by name (see `job`); a trial means its study."""
    head = (await study_status(to, ref))["study"]
    return to._study({"id": head["id"], "name": head["name"], "notes": []})


async def study_status(to: Anyone, /, ref: str | int) -> StudyStatus:
    """How it stands: "study" with its limits, "best", "states" of its trials, "progress", "importance", "rungs"."""
    return await to._get(study_path(ref))


async def study_report(to: Anyone, /, ref: str | int) -> StudyReport:
    """All that a report shows: what `study_status` has, and "parameters", "rows", "front", "curves", "confirmed"."""
    return await to._get(study_path(ref, "report"))


async def study_file(to: Anyone, /, ref: str | int) -> StudyText:
    """The file in force: "text" as it was written, "study" in canonical form, and the "job" of its trials."""
    return await to._get(study_path(ref, "file"))


async def trials(
    to: Anyone, /, ref: str | int, *, state: TrialState | None = None, after: int = -1, limit: int | None = None
) -> list[TrialRow]:
    """Its trials by number: all, those in one state, those after a number, or the first `limit`."""
    only = {} if state is None else {"phase": _PHASES[state]} if state in _PHASES else {"outcome": state}
    found: list[TrialRow] = []
    following: int | None = after
    while following is not None and (limit is None or len(found) < limit):
        page = await to._get(study_path(ref, "trials"), **only, after=following, limit=PAGE)
        found += [one for one in page["trials"] if state in (None, one["state"])]
        following = page["next"]
    return found if limit is None else found[:limit]


async def stop_study(to: Anyone, /, ref: str | int) -> StudyStatus:
    """It asks for no more trials; those that run save and leave, and go on when it is resumed."""
    return await to._send("POST", study_path(ref, "stop"))


async def resume_study(to: Anyone, /, ref: str | int, timeout: float = STOP_PATIENCE) -> StudyStatus:
    """A study that was stopped, or is over, goes on. One that is being stopped is waited for first."""
    head = (await study_status(to, ref))["study"]
    if head["state"] == "stopping":
        await wait(to, head["id"], timeout)
    return await to._send("POST", study_path(head["id"], "resume"))


async def extend_study(
    to: Anyone,
    /,
    ref: str | int,
    *,
    trials: int | None = None,
    cost: str | None = None,
    until: str | None = None,
    parallel: int | None = None,
) -> StudyChange:
    """Other limits: `trials=400`, `cost="500 USD"`, `until="3 days"` after its start. One that was over goes on."""
    given = {"trials": trials, "cost": cost, "until": until, "parallel": parallel}
    limits = {name: value for name, value in given.items() if value is not None}
    if not limits:
        raise Invalid("No limit was given.", "Give `trials`, `cost`, `until` or `parallel`.")
    return await to._send("POST", study_path(ref, "change"), {"limits": limits, "source": "The limits"})


async def enqueue(to: Anyone, /, ref: str | int, *points: Mapping[str, Any], **params: Any) -> StudyStatus:
    """Parameters that are tried before any that are searched for: `enqueue("lr-12", lr=3e-4, batch=64)`."""
    some = [dict(one) for one in points] + ([params] if params else [])
    return await to._send("POST", study_path(ref, "enqueue"), {"points": some})


# --- following one --------------------------------------------------------------------------------------------------


async def wait_study(to: Anyone, /, ref: str | int, timeout: float | None = None) -> StudyStatus:
    """How it stands once it has ended. Raises TimeoutError after `timeout` seconds; continues over server restarts."""
    head = (await study_status(to, ref))["study"]
    await wait(to, head["id"], timeout)
    return await study_status(to, head["id"])


async def watch_study(to: Anyone, /, ref: str | int, every: float = EVERY) -> AsyncGenerator[StudyStatus, None]:
    """How it stands, now and every few seconds, until it has ended. Continues over server restarts."""
    while True:
        found = await patiently(to, partial(study_status, to, ref))
        ref = found["study"]["id"]
        yield found
        if found["study"]["state"] == "ended":
            return
        await to._transport.sleep(every)


# --- trials that somebody outside runs ------------------------------------------------------------------------------


async def ask(to: Anyone, /, ref: str | int, asker: str = "") -> AskedTrial:
    """A trial to run: "number" and "params"; "number" None if there is none now, and "why".

    As long as a trial that `asker` asked for is not over, it gets that one again; without a name always another one.
    """
    # With a name the request may be repeated: it gets what its lost answer had.
    return await to._send("POST", study_path(ref, "ask"), {"asker": asker}, key="asked" if asker else None)


async def report_trial(to: Anyone, /, ref: str | int, number: int, points: Points) -> TrialWord:
    """Tells all that a trial has shown so far; "do" is what it should do now: "go", "pause" or "stop"."""
    body = {"number": number, "points": _points(points)}
    return await to._send("POST", study_path(ref, "report"), body, key="reported")


async def tell(
    to: Anyone,
    /,
    ref: str | int,
    number: int,
    values: float | Sequence[float] | None = None,
    *,
    outcome: Outcome = "complete",
    points: Points | None = None,
) -> TrialWord:
    """Tells how a trial has ended, with the values of the objectives, or else the last of its points.

    A trial that is "lost" says nothing about its parameters, and is tried again.
    """
    several = list(values) if isinstance(values, Sequence) else [values] if values is not None else None
    body = {
        "number": number,
        "outcome": outcome,
        "values": [json_number(float(one)) for one in several] if several is not None else None,
        "points": _points(points or {}),
    }
    return await to._send("POST", study_path(ref, "tell"), body, key="told")


def _points(points: Points) -> dict[str, list[list[Any]]]:
    return {name: [[int(step), json_number(float(value))] for step, value in some] for name, some in points.items()}


async def patiently(to: Anyone, call: Callable[[], Awaitable[T]]) -> T:
    """The result of a call that may be repeated, once the server is there. Raises Unavailable after `retry_for`."""
    lost_at: float | None = None
    delay = FIRST_DELAY
    while True:
        try:
            found = await call()
        except Unavailable:
            now = time.monotonic()
            if lost_at is None:
                lost_at = now
                if to._on_link is not None:
                    to._on_link(False)
            if now - lost_at >= to._retry_for:
                raise
            await to._transport.sleep(delay)
            delay = min(delay * 2, LAST_DELAY)
            continue
        if lost_at is not None and to._on_link is not None:
            to._on_link(True)
        return found
