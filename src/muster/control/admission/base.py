"""What an admission check is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.core.reasons import Reason
from muster.core.spec import JobSpec
from muster.core.state import State


@dataclass(frozen=True, slots=True)
class Context:
    """The world that a job wants to enter."""

    state: State
    user: str
    has_secret: Callable[[str, str], bool]  # (project, name)
    local: bool  # jobs run on this machine: folders and commands can be looked at now


Check = Callable[[JobSpec, Context], Reason | None]
