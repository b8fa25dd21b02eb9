"""What a round of a study is decided from besides its view, and what can be decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.core.entities.study import Origin, TrialOutcome, Values
from muster.tune.space import Value


@dataclass(frozen=True, slots=True)
class Facts:
    """Times in seconds, amounts in millionths. What is None is not known, or does not limit the study."""

    now: float
    began: float = 0.0
    until: float | None = None  # the time at which it ends
    spent: int = 0  # what its trials have cost, those that run included
    limit: int | None = None  # what they may cost: by its file, or by what its budgets leave
    stopped: bool = False  # somebody stopped it
    enqueued: int = 0  # points that are tried next
    exhausted: bool = False  # the searcher has no other point
    places: int | None = None  # so many trials may start or go on now; None: as many as `parallel` leaves
    ran: Mapping[int, float] = field(default_factory=dict)  # how long each trial that runs has run, in all
    trial_seconds: float | None = None  # of a whole trial, as estimated before any was complete
    trial_cost: float | None = None
    gain: float | None = None  # by how much one more trial is expected to improve the first objective


@dataclass(frozen=True, slots=True)
class Leave:
    """A running trial saves and leaves. The outcome "" pauses it."""

    number: int
    outcome: TrialOutcome
    note: str = ""


@dataclass(frozen=True, slots=True)
class Promote:
    """A paused trial goes on. `rung`: how many levels it is above the first, for its pool."""

    number: int
    rung: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """A new trial. `params` None: the first of those that are enqueued, or what the searcher suggests. If it suggests
    nothing, the trial does not start, and the round is decided anew with `exhausted`."""

    number: int
    origin: Origin
    bracket: int = 0
    rung: int = 0
    params: Mapping[str, Value] | None = None
    by: str = ""
    of: int | None = None
    replaces: int | None = None
    seed: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """A paused trial will not go on. It ends as stopped, with the values of the last level that it passed."""

    number: int
    values: Values | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """The study is over. `why`: why it asked for no more trials."""

    why: str
    summary: dict[str, Any]


Decision = Leave | Promote | Start | End | Finish


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions in their order: each holds if those before it are carried out. `waits`: why no trial starts although
    there is a place and the study is not over."""

    decisions: tuple[Decision, ...]
    waits: str = ""
