"""What the watches over running gangs share: which attempts there are, documents of ranks, and events on an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.payload import Payload
from muster.core.state import State

Key = tuple[str, int]  # job, attempt
Docs = Sequence[tuple[int, dict[str, Any]]]  # documents, each with its rank


def active_attempts(state: State, watched: dict[Key, Any]) -> dict[Key, Job]:
    """The jobs with an attempt that is not over. What is watched of others is dropped."""
    jobs = map(state.jobs.__getitem__, state.active)
    active = {(job.id, job.attempt.number): job for job in jobs if job.attempt is not None}
    for key in watched.keys() - active.keys():
        del watched[key]
    return active


def attempt_event(data: Payload, job: Job, now: float) -> Event:
    return Event(data, now, SYSTEM, job.project, job.id, job.attempt.number if job.attempt else 0)
