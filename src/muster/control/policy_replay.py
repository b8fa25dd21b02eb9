"""What proposed rules would have said about jobs of the past: their specs go through the checks of the policy twice.

A job counts when the proposed rules refuse it and those in force do not. Both are asked about the nodes, queues and
projects of now, so that what has changed since a job was submitted does not count. The live state is copied once, in
the little that the checks read; the jobs are judged outside the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from muster.api.rules import PolicyCursor, PolicyEffect, PolicyExample
from muster.api.words import UNFINISHED
from muster.control.admission import NODE_CHECKS, RULE_CHECKS, Context
from muster.control.admission.base import Growth
from muster.core.entities.rules_in_force import RulesInForce
from muster.core.job import Job
from muster.core.reasons import Reason
from muster.core.rules import Rules
from muster.core.state import State
from muster.scan.findings import Finding
from muster.scan.job import secrets_in_job
from muster.store.base import JobFilter, Store

PAGE: Final = 500  # jobs that one request judges
EXAMPLES: Final = 5  # jobs of each reason that are told in full


@dataclass(slots=True)
class Effect:
    jobs: int = 0
    live: int = 0
    users: Counter[str] = field(default_factory=Counter)
    projects: Counter[str] = field(default_factory=Counter)
    examples: list[PolicyExample] = field(default_factory=list)

    def add(self, job: Job, why: Reason) -> None:
        self.jobs += 1
        self.live += job.phase in UNFINISHED
        self.users[job.user] += 1
        self.projects[job.project] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append({
                "job": job.id, "user": job.user, "project": job.project, "queue": job.queue, "phase": job.phase,
                "submitted_at": job.submitted_at, "message": why.message, "hint": why.hint,
            })  # fmt: skip


@dataclass(slots=True)
class Replayed:
    judged: int = 0
    live: int = 0
    refused: int = 0
    refused_live: int = 0
    freed: int = 0
    effects: dict[str, Effect] = field(default_factory=dict)  # by the code of the reason

    def views(self) -> list[PolicyEffect]:
        return [
            {
                "code": code, "jobs": one.jobs, "live": one.live, "users": dict(one.users.most_common()),
                "projects": dict(one.projects.most_common()), "examples": one.examples,
            }
            for code, one in sorted(self.effects.items(), key=lambda pair: -pair[1].jobs)
        ]  # fmt: skip


def world_of(state: State) -> State:
    """A copy of what the checks of the policy read. Call it between two commits; it takes no time."""
    copied = State(time=state.time, in_force=state.in_force)
    copied.pools, copied.queues, copied.projects = dict(state.pools), dict(state.queues), dict(state.projects)
    copied.kinds = Counter(state.kinds)
    copied.others = {kind: dict(entities) for kind, entities in state.others.items()}
    return copied


def jobs_to_judge(store: Store, since: float, cursor: PolicyCursor | None) -> tuple[list[Job], PolicyCursor | None]:
    """A page of the jobs that were submitted since then, or are not over, newest first, and where the next begins.

    An array is one job: its tasks have its spec.
    """
    before, live = (cursor["before"], cursor["live"]) if cursor is not None else (None, False)
    phases = UNFINISHED if live else None
    page = store.jobs(JobFilter(phases=phases, tasks=False, before=before, limit=PAGE))
    if not page:
        return [], None
    younger = [job for job in page if job.submitted_at >= since] if not live else page
    if len(younger) < len(page):
        return younger, {"before": younger[-1].number if younger else page[0].number + 1, "live": True}
    return page, {"before": page[-1].number, "live": live} if len(page) == PAGE else None


def replay(jobs: Iterable[Job], proposed: Rules, world: State, growth: Growth) -> Replayed:
    found = Replayed()
    after = replace(world, in_force=RulesInForce(proposed))
    for job in jobs:
        found.judged += 1
        found.live += job.phase in UNFINISHED
        findings = tuple(secrets_in_job(job.spec.model_dump(mode="json", exclude_defaults=True)))
        now, then = against(job, world, growth, findings), against(job, after, growth, findings)
        if now:
            found.freed += not then
            continue
        if then:
            found.refused += 1
            found.refused_live += job.phase in UNFINISHED
        for why in then:
            found.effects.setdefault(why.code, Effect()).add(job, why)
    return found


def against(job: Job, state: State, growth: Growth, findings: Sequence[Finding] = ()) -> Sequence[Reason]:
    """What the policy of this state says against the job. `findings`: of its job file."""
    asked = Context(
        state, job.user, _has_secret, local=False, growth=growth, trusted=job.trusted, findings=findings
    )  # fmt: skip
    checks = [check for check in RULE_CHECKS if job.spec.num_nodes or check not in NODE_CHECKS]
    return [found for check in checks if (found := check(job.spec, asked)) is not None]


def _has_secret(project: str, name: str) -> bool:
    return True
