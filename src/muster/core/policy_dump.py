"""Writes the rules as the text of a policy file: only what differs from the defaults, in human units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from muster.core import units
from muster.core.dump import yaml_text
from muster.core.policy_notes import NOTES, Note
from muster.core.policy_units import format_clock, format_moment, format_window
from muster.core.rules import Rules, Target, Window


def dump_rules(rules: Rules) -> str:
    """The text of a policy file; `parse_rules` turns it back into the same rules."""
    return yaml_text(_section(rules))


def _section(model: BaseModel, over: BaseModel | None = None) -> dict[str, Any]:
    """The values of the section that differ from `over`, or from the defaults of its fields."""
    values: dict[str, Any] = {}
    for name, note in NOTES[type(model)].items():
        value, info = getattr(model, name), type(model).model_fields[name]
        usual = info.default if over is None else getattr(over, name)
        if isinstance(model, Target) and name == "high":
            usual = min(Target().high, model.wait)
        if info.is_required() or value != usual:
            below = model.defaults if isinstance(model, Rules) and name == "queues" else None
            values[note.key or name] = written(note, value, below)
    return values


def written(note: Note, value: Any, over: BaseModel | None = None) -> Any:
    """A value in its notation for people; a section holds what differs from `over`, or from its own defaults."""
    if value is None:
        return note.absent
    if isinstance(value, Mapping):
        if not value and note.absent:
            return "none"
        return {key: written(note, item, over) for key, item in value.items()}
    if isinstance(value, tuple):
        return [written(note, item) for item in value]
    if isinstance(value, Window):
        return format_window(value)
    if isinstance(value, BaseModel):
        section = _section(value, over)
        short = NOTES[type(value)][note.shorthand].key or note.shorthand if note.shorthand else ""
        return section[short] if set(section) == {short} else section
    return _FORMATS[note.form](value) if note.form in _FORMATS else value


_FORMATS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "duration": units.format_duration,
    "number": units.format_number,
    "size": units.format_size,
    "priority": units.format_priority,
    "moment": format_moment,
    "clock": format_clock,
}
