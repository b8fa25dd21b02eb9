"""Decides until when an attempt accepts reports, and from which ranks.

Launchers deliver at least once, and possibly late: the server may have been away when the gang ended. So the rest of an
attempt is accepted until every worker has reported that it has shipped everything, or for a bounded time after the end.
What is already stored is acknowledged forever, so that a repeated request succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.core.errors import Invalid, NotFound
from muster.core.job import Attempt, Job
from muster.core.spec import ranks_per_node
from muster.core.units import format_duration
from muster.store.base import Store
from muster.wire import Batch

LATE: Final = 7 * 86_400.0  # seconds after the end of an attempt in which the rest of it is accepted
OUTSIDE_RANKS: Final = 8  # maximum ranks of a run that is not a job's; its one writer is rank 0


@dataclass(slots=True)
class ReportingGang:
    """The number of workers and ranks that may report. `ended_at`: the end of a job's attempt, once known."""

    workers: int
    ranks: int
    ended_at: float | None = None


def gang_of(store: Store, job: Job | None, number: int) -> ReportingGang:
    """The gang of a job's attempt as it was planned; a run that is not a job's has one writer."""
    if job is None:
        return ReportingGang(1, OUTSIDE_RANKS)
    attempt = _attempt(store, job, number)
    workers = len(attempt.workers) if attempt is not None else job.spec.num_nodes
    return ReportingGang(workers, workers * ranks_per_node(job.spec))


def check_ranks(gang: ReportingGang, batch: Batch) -> None:
    """Raises Invalid for a rank that the gang doesn't have: each rank has its own streams and its own output limit."""
    for rank in [*(piece.rank for piece in batch.pieces), *(pulse.rank for pulse in batch.pulses)]:
        if rank >= gang.ranks:
            raise Invalid(f"There is no rank {rank}: the attempt has {gang.ranks}.")


def shipped_patch(gang: ReportingGang, run: Mapping[str, Any], number: int, batch: Batch, now: float) -> dict[str, Any]:
    """What the run's document keeps of ended workers: when the first end was reported, and which shipped everything."""
    if batch.state != "ended":
        return {}
    known = run.get(_key(number)) or {}
    whole = {batch.worker} if batch.whole and 0 <= batch.worker < gang.workers else set()
    workers = sorted({*known.get("workers", ()), *whole})
    shipped = {"at": known.get("at", now), "workers": workers}
    return {_key(number): shipped} if shipped != known else {}


def check_open(
    store: Store, job_id: str, number: int, gang: ReportingGang, run: Mapping[str, Any], now: float, late: float
) -> None:
    """Raises NotFound when nothing new of the attempt is accepted any more."""
    shipped = run.get(_key(number)) or {}
    if len(shipped.get("workers", ())) >= gang.workers:
        raise NotFound(f"Attempt {job_id}/{number} is over, and all of it was shipped: nothing more is taken.")
    ended_at = _ended_at(store, job_id, number, gang) or shipped.get("at")
    if ended_at is not None and now - ended_at > late:
        raise NotFound(
            f"Attempt {job_id}/{number} ended more than {format_duration(late)} ago: nothing more is taken.",
            "An administrator can raise `late_reports` in config.toml.",
        )


def _ended_at(store: Store, job_id: str, number: int, gang: ReportingGang) -> float | None:
    if gang.ended_at is None and not _live(store.state().jobs.get(job_id), number):
        job = store.job(job_id)
        attempt = _attempt(store, job, number) if job is not None else None
        if job is not None and attempt is not None:
            gang.ended_at = attempt.ended_at if attempt.ended_at is not None else job.finished_at
    return gang.ended_at


def _live(job: Job | None, number: int) -> bool:
    return job is not None and job.active and job.attempt is not None and job.attempt.number == number


def _attempt(store: Store, job: Job, number: int) -> Attempt | None:
    if job.attempt is not None and job.attempt.number == number:
        return job.attempt
    return next((one for one in store.attempts(job.id) if one.number == number), None)


def _key(number: int) -> str:
    return f"shipped.{number}"
