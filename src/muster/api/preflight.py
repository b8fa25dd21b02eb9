"""Preflight: the plan of a ladder, certificates, and what was found in the jobs of a rung."""

from typing import Literal

from muster.api.numbers import JsonFloat
from muster.api.typed import NotRequired, TypedDict
from muster.api.words import Rung

FindingStatus = Literal["ok", "failed", "not applicable", "unknown"]


class RungFinding(TypedDict):
    """What one check found."""

    name: str
    proves: str
    status: FindingStatus
    detail: str
    hint: str


class FullRunView(TypedDict):
    """What the full run takes by the canary: (low, expected, high)."""

    steps: int
    hours: list[JsonFloat]
    cost: list[JsonFloat] | None


class CertificateView(TypedDict):
    """A rung that a job has passed, or that was waived."""

    id: str
    project: str
    rung: Rung
    job: str  # the name of the job that it is for
    at: float
    by: str
    jobs: list[str]  # that ran as the rung; of a waiver none
    waived: bool
    why: str  # of a waiver
    parts: dict[str, str]  # a digest of each part of the job
    full_run: NotRequired[FullRunView]


class RungPlan(TypedDict):
    """One rung of the ladder for a job."""

    rung: Rung
    proves: str
    required: bool  # a rule refuses the job without it
    advised: bool  # a rule warns
    certificate: CertificateView | None  # that covers the job as it is
    last: str | None  # the newest certificate of a job of this name
    changed: list[str]  # parts of the job that have changed since `last`, of those that the rung depends on
    job: str  # the job file of what runs as the rung


class PreflightPlan(TypedDict):
    name: str
    project: str
    code: str  # digest of the code's snapshot
    rungs: list[RungPlan]


class RungVerdict(TypedDict):
    """The judgement of a rung's jobs."""

    rung: Rung
    passed: bool
    findings: list[RungFinding]
    certificate: CertificateView | None
    full_run: FullRunView | None


class CertificateList(TypedDict):
    certificates: list[CertificateView]


class RevokedView(TypedDict):
    id: str
