"""What each queued job asks a placement for in one round. Apart from `Filling`, whose parts need it too: objects that
refer to each other in a circle stay until the garbage collector runs, and there would be one for each round."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from muster.core.history import groups_of
from muster.core.job import Job
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.order import UNKNOWN
from muster.sched.place import GangRequest
from muster.sched.queued_jobs import Queued


@dataclass(slots=True)
class GangRequests:
    state: State
    board: Board
    now: float
    closing: bool = field(init=False)  # whether any pool has maintenance planned, so that expected run times matter

    def __post_init__(self) -> None:
        self.closing = any(rules.maintenance for rules in self.state.rules.pools.values())

    def of(self, queued: Queued) -> GangRequest:
        """The job's gang, with `near` set for its placement, and `ends` set where a pool has maintenance."""
        gang = queued.stream.shape.gang
        if gang.placement in ("group", "locality"):
            gang = replace(gang, near=self.board.gangs.near(queued.job))
        if self.closing and any(self.state.rules.pool(pool).maintenance for pool in gang.pools):
            return replace(gang, ends=self.over(queued.job))
        return gang

    def over(self, job: Job) -> float:
        """A late estimate of the job's end if it starts now: `max_duration`, or the 90th percentile of its kind."""
        history, spec = self.state.history, job.spec
        whole = spec.max_duration or (history.quantile(groups_of(job.user, spec), 0.9) if history.known else UNKNOWN)
        done = job.ran if job.has_saved else 0.0
        return self.now + max(whole - done, 1.0)
