"""What an admission check is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from muster.control.quota import UNLIMITED, Quota
from muster.core.errors import Problem
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.spec import JobSpec
from muster.core.state import State

Growth = Mapping[str, tuple[Resources, int]]
Objections = Callable[[JobSpec, str], Sequence[Problem]]  # of the engine that has the pool


def no_objections(spec: JobSpec, pool: str) -> Sequence[Problem]:
    return ()


class Site(TypedDict, total=False):
    """What a server tells of itself, whatever the job: see `Context`."""

    growth: Growth
    objections: Objections
    log_limit_max: int | None
    quota: Quota
    refusal: str


@dataclass(frozen=True, slots=True)
class Context:
    """The world that a job wants to enter."""

    state: State
    user: str
    has_secret: Callable[[str, str], bool]  # (project, name)
    local: bool  # jobs run on this machine: folders and commands of those that do can be looked at now
    # Pools that grow when somebody waits → what a node of theirs is like, and how many there may be in all.
    growth: Growth = field(default_factory=dict)
    objections: Objections = no_objections
    log_limit_max: int | None = None  # bytes of output of a rank that a job may ask to be kept; None: any number
    quota: Quota = UNLIMITED  # of whoever the job belongs to
    refusal: str = ""  # why a member's job can't be kept apart on this machine; "" when it can
    python: str = ""  # the path of the interpreter that submits, on the machine where that runs
    trusted: bool = False  # an administrator asks


Check = Callable[[JobSpec, Context], Reason | None]
