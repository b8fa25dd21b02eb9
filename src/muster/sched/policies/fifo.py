"""First come, first served within a priority: a gang that does not fit holds back those behind, so none starves."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.job import Job
from muster.core.state import Line, State


class Fifo:
    name = "fifo"

    def order(self, queued: Line, state: State, now: float) -> Iterator[Job]:
        for job_id in queued:
            if state.later.get(job_id, 0.0) <= now:
                yield state.jobs[job_id]

    def passes(self, job: Job) -> bool:
        return False
