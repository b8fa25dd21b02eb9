"""Up to which day idle capacity and stored bytes are charged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.core.entities.base import EntityType, from_fields

if TYPE_CHECKING:
    from muster.core.state_data import Changes, State


@dataclass(frozen=True, slots=True)
class ChargedDay:
    """The last day on which the idle capacity of `pool/NAME`, or the bytes of `project/NAME`, were charged."""

    name: str
    day: str  # a date; dates compare as texts


CHARGED_DAYS = EntityType("charged_day", from_fields(ChargedDay))


def charged_until(state: State, name: str) -> str:
    found = CHARGED_DAYS.all(state).get(name)
    return found.day if found is not None else ""


def note_day(state: State, name: str, day: str, changes: Changes) -> None:
    if day > charged_until(state, name):
        CHARGED_DAYS.put(state, name, ChargedDay(name, day), changes)
