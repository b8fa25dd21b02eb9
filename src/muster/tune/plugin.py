"""What every plug-in of a study says of itself: its name, a description, and its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from muster.tune.space import Value

OptionKind = Literal["integer", "number", "flag", "choice", "text"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a plug-in. `least` and `most` are allowed."""

    name: str
    kind: OptionKind
    default: Any
    words: str
    least: float | None = None
    most: float | None = None
    choices: Sequence[str] = ()


class Named(Protocol):
    NAME: ClassVar[str]
    DESCRIPTION: ClassVar[str]  # half a sentence
    OPTIONS: ClassVar[tuple[Option, ...]]


def with_defaults(plugin: type[Named], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a file, and the defaults of the others."""
    return {one.name: given.get(one.name, one.default) for one in plugin.OPTIONS}


class Suggestion(NamedTuple):
    """The point that is tried next. `note`: what somebody should know of how it was found, such as a fall-back."""

    params: Mapping[str, Value]
    by: str
    note: str = ""
