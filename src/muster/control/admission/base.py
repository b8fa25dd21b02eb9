"""The input and the result of an admission check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from muster.control.admission.external import NO_VERDICT, NOBODY, Asking, Verdict
from muster.control.admission.files import NO_FINDINGS, FileFindings
from muster.control.admission.inspected import NOTHING, Inspected
from muster.control.quota import UNLIMITED, Quota
from muster.core.errors import Problem
from muster.core.job import Job
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.scan.findings import Finding

Growth = Mapping[str, tuple[Resources, int]]
New = Mapping[str, Sequence[str]]  # jobs that the same call submits: name → ids
Objections = Callable[[JobSpec, str], Sequence[Problem]]  # objections of the engine that has the pool


def no_job(job_id: str) -> Job | None:
    return None


def no_jobs(project: str, name: str) -> Sequence[Job]:
    return ()


def no_one(name: str) -> bool:
    return False


def no_objections(spec: JobSpec, pool: str) -> Sequence[Problem]:
    return ()


class Site(TypedDict, total=False):
    """What a server passes to every check, independent of the job; see `Context`."""

    growth: Growth
    objections: Objections
    log_limit_max: int | None
    quota: Quota
    isolation_error: str
    may_read: Callable[[str], bool]
    purged: Callable[[str], bool]
    asking: Asking


@dataclass(slots=True)  # not frozen: with so many fields that costs as much as the checks of a simulated job
class Context:
    """What the checks look at, beside the job's spec. Nobody changes one: `replace` makes another."""

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
    # ("user" or "project", name) → jobs before it; ("budget", name) → what these commit of it, in millionths.
    pending: Mapping[tuple[str, str], int] = field(default_factory=dict)
    new: New = field(default_factory=dict)
    may_read: Callable[[str], bool] = no_one  # whether the caller may read another project's runs
    purged: Callable[[str], bool] = no_one  # whether the run was deleted for good, with its checkpoints
    asking: Asking = NOBODY  # the company's own checks, asked before the commit
    verdict: Verdict = NO_VERDICT  # what they said about the job
    inspected: Inspected = NOTHING  # its image and its lock files, looked at before the commit
    now: float = 0.0
    findings: Sequence[Finding] = ()  # of the submission's code and job file, which were scanned before
    spent: int = 0  # what a job that is resumed has cost before
    code: str = ""  # digest of the snapshot of its code; "": there is none
    template: JobSpec | None = None  # of a trial: the job file of its study, which certificates are for

    @property
    def time(self) -> float:
        """The time of what is decided: never before the last event, whatever the clock says."""
        return max(self.now, self.state.time)


Check = Callable[[JobSpec, Context], Reason | None]
