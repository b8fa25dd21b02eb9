"""The diagnosis of a run: what was found, on what it rests, and what would have to be known to say more."""

from typing import Literal

from muster.api.typed import TypedDict
from muster.api.words import Phase

Outcome = Literal["found", "healthy", "unknown"]


class CauseView(TypedDict):
    """One cause. `share` is the part of the time that it explains; 1 where the run's result is at stake."""

    cause: str
    confidence: float
    share: float
    text: str
    evidence: list[str]
    change: list[str]
    commands: list[str]


class DiagnosisView(TypedDict):
    id: str
    phase: Phase
    attempt: int | None  # the newest
    outcome: Outcome
    verdict: str
    findings: list[CauseView]  # the cause that explains most first
    looked_at: list[str]
    missing: list[str]
    looks: int  # samples of stacks that it rests on
