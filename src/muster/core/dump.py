"""Writes a canonical model as the text of a job file: only what differs from the defaults, in human units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml
from pydantic import BaseModel

from muster.core import units
from muster.core.free import scalar
from muster.core.notation import Notation, written
from muster.core.report import Plain


def to_yaml(model: BaseModel) -> str:
    return yaml_text(written_values(model))


def written_values(model: BaseModel) -> dict[str, Any]:
    """The values of the job file, as data."""
    canonical, values = dict(model), dict[str, Any]()
    for name, info in type(model).model_fields.items():
        note, value = written(info), canonical[name]
        elastic = name == "num_nodes" and canonical["min_nodes"] is not None
        if note and (info.is_required() or value != info.default or elastic):
            values[name] = _written_value(note, value, canonical)
    return values


def yaml_text(values: Mapping[str, Any]) -> str:
    return yaml.dump(values, Dumper=JobDumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120)


def _written_value(note: Notation, value: Any, beside: Mapping[str, Any]) -> Any:
    """`beside` holds the values of the same section."""
    if isinstance(value, BaseModel):
        return written_values(value)
    if note.form == "accelerators":
        return units.format_accelerators(beside["accelerator"], value, beside["share"])
    if note.form == "nodes":
        return value if beside["min_nodes"] is None else {"min": beside["min_nodes"], "max": value}
    if note.form == "json":
        return _quoted(value)
    if note.form == "needs" and set(value.values()) == {"succeeded"}:
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    if value == "auto":
        return value
    return _FORMATS[note.form](value) if note.form in _FORMATS else value


def _quoted(value: Any) -> Any:
    """Keeps the quotes of text that would be read back as another type without them."""
    if isinstance(value, Mapping):
        return {key: _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    return _Quoted(value) if isinstance(value, str) and scalar(value) != value else value


class _Quoted(str):
    __slots__ = ()


class JobDumper(yaml.SafeDumper):
    """Writes text of several lines as blocks and everything else as PyYAML does."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # YAML takes these three for line breaks and does not preserve them outside of double quotes.
    if any(mark in text for mark in "\x85\u2028\u2029"):
        style: str | None = '"'
    else:
        style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_quoted(dumper: yaml.SafeDumper, text: _Quoted) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')


def _represent_plain(dumper: yaml.SafeDumper, text: Plain) -> yaml.ScalarNode:
    """Text that was written without quotes is again, where YAML allows it."""
    if "\n" in text:
        return _represent_text(dumper, text)
    tag = dumper.resolve(yaml.ScalarNode, str(text), (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(tag, str(text))


JobDumper.add_representer(str, _represent_text)
JobDumper.add_representer(Plain, _represent_plain)
JobDumper.add_representer(_Quoted, _represent_quoted)
_FORMATS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "duration": units.format_duration,
    "duration_or_auto": units.format_duration,
    "size": units.format_size,
    "number": units.format_number,
    "priority": units.format_priority,
}
