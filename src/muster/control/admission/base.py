"""What an admission check is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.spec import JobSpec
from muster.core.state import State

Growth = Mapping[str, tuple[Resources, int]]


@dataclass(frozen=True, slots=True)
class Context:
    """The world that a job wants to enter."""

    state: State
    user: str
    has_secret: Callable[[str, str], bool]  # (project, name)
    local: bool  # jobs run on this machine: folders and commands of those that do can be looked at now
    # Pools that grow when somebody waits → what a node of theirs is like, and how many there may be in all.
    growth: Growth = field(default_factory=dict)
    trusted: bool = False  # an administrator asks
    refusal: Callable[[], str] = str  # why a member's job can't be kept apart on this machine; "" when it can


Check = Callable[[JobSpec, Context], Reason | None]
