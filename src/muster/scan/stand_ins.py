"""What stands on the stack for the values that a pickle would make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Global:
    """A class or function that the pickle names."""

    module: str
    name: str
    allowed: bool

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True)
class Made:
    """An object that a call returned; `state` is what it was built with."""

    by: Global | None
    args: Any = None
    state: dict[str, Any] = field(default_factory=dict)


class Opaque:
    """A value that does not matter."""
