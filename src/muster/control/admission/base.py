"""The input and the result of an admission check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from muster.control.admission.files import NO_FINDINGS, FileFindings
from muster.control.quota import UNLIMITED, Quota
from muster.core.errors import Problem
from muster.core.job import Job
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.spec import JobSpec
from muster.core.state import State

Growth = Mapping[str, tuple[Resources, int]]
Objections = Callable[[JobSpec, str], Sequence[Problem]]  # objections of the engine that has the pool


def no_job(job_id: str) -> Job | None:
    return None


def no_jobs(project: str, name: str) -> Sequence[Job]:
    return ()


def no_objections(spec: JobSpec, pool: str) -> Sequence[Problem]:
    return ()


class Site(TypedDict, total=False):
    """What a server passes to every check, independent of the job; see `Context`."""

    growth: Growth
    objections: Objections
    log_limit_max: int | None
    quota: Quota
    isolation_error: str


@dataclass(frozen=True, slots=True)
class Context:
    """What the checks look at, beside the job's spec."""

    state: State
    user: str
    has_secret: Callable[[str, str], bool]  # (project, name)
    local: bool  # jobs run on this machine: their folders and commands can be checked now
    # Pools that grow on demand → the resources of one of their nodes, and the maximum number of nodes.
    growth: Growth = field(default_factory=dict)
    objections: Objections = no_objections
    log_limit_max: int | None = None  # maximum bytes of output per rank that a job may ask to keep; None: no maximum
    quota: Quota = UNLIMITED  # of the user and the project of the job
    isolation_error: str = ""  # why a member's job can't be isolated on this machine; "" when it can
    file_findings: FileFindings = NO_FINDINGS  # what this machine's files say about the job
    trusted: bool = False  # an administrator submits the job
    job: Callable[[str], Job | None] = no_job  # by its id, also one that has ended
    named: Callable[[str, str], Sequence[Job]] = no_jobs  # (project, name): those that are not over, else the newest
    pending: Mapping[tuple[str, str], int] = field(default_factory=dict)  # ("user" or "project", name) → jobs before it


Check = Callable[[JobSpec, Context], Reason | None]
