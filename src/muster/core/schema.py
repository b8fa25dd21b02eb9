"""The JSON Schema (draft 2020-12) of a job file, for editors; its texts come from the models."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any, Final

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from muster.core import units
from muster.core.notation import FieldPath, Notation, accepted_names, section_model, written
from muster.core.spec import JobSpec


def muster_schema() -> dict[str, Any]:
    """What the schema rejects is a mistake or unusual. What it accepts may still hold a number that is out of range."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster job",
        "description": "One job for Muster: what to run, on what, and what to do when it breaks.",
        **_section(JobSpec),
        "oneOf": [*({"required": [name]} for name in _names("run")), _WITHOUT_NODES],
    }


def _names(field: str) -> list[str]:
    return [name for name, path in accepted_names(JobSpec).items() if path == (field,)]


def default_text(info: FieldInfo, note: Notation) -> Any:
    """The default in its notation for people; None when there is none."""
    default = info.default
    if info.is_required() or default is None or isinstance(default, BaseModel):
        return None
    if note.form == "duration":
        return units.format_duration(default)
    if note.form == "priority":
        return units.format_priority(default)
    return list(default) if isinstance(default, tuple) else default


def _section(model: type[BaseModel]) -> dict[str, Any]:
    names = accepted_names(model)
    properties = {name: _property(model, name, path) for name, path in names.items()}
    # At most one of two names for the same field. The rule for `run`, exactly one name, is at the top level.
    clashes = [
        {"not": {"required": [one, two]}}
        for one, two in combinations(names, 2)
        if names[one] == names[two] and names[one] != ("run",)
    ]
    rules = {"allOf": clashes} if clashes else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **rules}


def _property(model: type[BaseModel], name: str, path: FieldPath) -> dict[str, Any]:
    owner, info, note = _field(model, path)
    shapes = _shapes(owner, path[-1], info, note)
    if name == "commands":
        shapes = [*shapes, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
    shape = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    if (name,) != path:
        return {**shape, "description": f"The same as `{'.'.join(path)}`."}
    default = default_text(info, note)
    return {
        **shape,
        "description": f"{info.description} Write {note.expected}.",
        **({} if default is None else {"default": default}),
        "examples": [yaml.safe_load(note.example)],
    }


def _field(model: type[BaseModel], path: FieldPath) -> tuple[type[BaseModel], FieldInfo, Notation]:
    info = model.model_fields[path[0]]
    section, note = section_model(info), written(info)
    if len(path) > 1 and section:
        return _field(section, path[1:])
    assert note is not None  # accepted_names returns only written fields
    return model, info, note


def _shapes(model: type[BaseModel], name: str, info: FieldInfo, note: Notation) -> list[dict[str, Any]]:
    """The schemas of all ways to write the field."""
    if section := section_model(info):
        short = [(section, note.shorthand, *_field(section, (note.shorthand,))[1:])] if note.shorthand else []
        return [_section(section), *(shape for field in short for shape in _shapes(*field))]
    plain = _canonical_properties(model)[name]
    canonical = [_without_words(shape) for shape in plain.get("anyOf", [plain])]
    if note.form == "size":
        canonical = [shape for shape in canonical if shape["type"] != "integer"]
    if note.form == "json":
        return [{"type": "object"}]
    if note.form == "list":
        canonical.append(canonical[0]["items"])
    if note.form == "needs":
        (pattern, outcome), *_ = canonical[0]["patternProperties"].items()
        job = {**canonical[0]["propertyNames"], "type": "string", "pattern": pattern}
        shape = {"type": "object", "propertyNames": job, "additionalProperties": outcome}
        return [{"type": "array", "items": job}, job, shape]
    if note.form == "mapping":
        (pattern, text), *_ = canonical[0]["patternProperties"].items()
        names = {**canonical[0]["propertyNames"], "pattern": pattern}
        text = {**text, "type": ["string", "number", "boolean"]}
        return [{"type": "object", "propertyNames": names, "additionalProperties": text}]
    return canonical + _OTHER_SHAPES.get(note.form, [])


@cache
def _canonical_properties(model: type[BaseModel]) -> dict[str, Any]:
    properties: dict[str, Any] = model.model_json_schema()["properties"]
    return properties


def _without_words(shape: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shape.items() if key not in ("title", "description", "default")}


# A job without nodes needs no command.
_WITHOUT_NODES: Final[dict[str, Any]] = {
    "properties": {"kind": {"const": "sweep"}},
    "required": ["kind"],
    "anyOf": [{"properties": {name: {"const": 0}}, "required": [name]} for name in _names("num_nodes")],
    "not": {"anyOf": [{"required": [name]} for name in _names("run")]},
}
_NUMBER: Final = r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?"
_UNITS_IN_ORDER: Final = "".join(rf"({_NUMBER}{unit})?" for unit in ("w", "d", "h", "m", "s"))
_HOURS: Final = r"([0-9]{1,5}-([01]?[0-9]|2[0-3])|[0-9]{1,6})"
DURATION_SHAPES: Final[list[dict[str, Any]]] = [
    {"type": "string", "pattern": rf"^(?=[0-9]){_UNITS_IN_ORDER}$", "maxLength": 64},
    {"type": "string", "pattern": rf"^{_HOURS}:[0-5]?[0-9]:[0-5]?[0-9]$"},
]
SIZE_SHAPES: Final = [{"type": "string", "pattern": r"^[0-9]{1,19}(\.[0-9]{1,9})?([KMGTP]i?B?|B)$"}]
_TIMES: Final = r"(.*[0-9]([A-Za-z]|[Gg][Bb])?|[Gg][Pp][Uu])[xX][0-9]{1,4}"  # `H100x8`, but not `RTX4090`
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 1024}
_PART: Final = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_COUNT_TEXT: Final = r"([0-9]{1,4}|0\.[0-9]{1,3})"
_NODES: Final = {"type": "integer", "minimum": 1, "maximum": 10_000}
_OTHER_SHAPES: Final[dict[str, list[dict[str, Any]]]] = {
    "duration": DURATION_SHAPES,
    "duration_or_auto": DURATION_SHAPES,
    "switch": [{"type": "boolean"}, {"const": "on"}],
    "size": SIZE_SHAPES,
    "accelerators": [
        _PART,
        {
            "type": "string",
            "pattern": rf"^(?!{_TIMES}$)([A-Za-z][A-Za-z0-9._-]{{0,63}}(:{_COUNT_TEXT})?|{_COUNT_TEXT})$",
        },
        {
            "type": "object",
            "propertyNames": {"pattern": r"^[A-Za-z][A-Za-z0-9._-]{0,63}$"},
            "additionalProperties": {"anyOf": [_COUNT, _PART]},
            "minProperties": 1,
            "maxProperties": 1,
        },
    ],
    "nodes": [
        {
            "type": "object",
            "properties": {"min": _NODES, "max": _NODES},
            "required": ["min", "max"],
            "additionalProperties": False,
        }
    ],
    "array": [
        {"type": "integer", "minimum": 0, "maximum": 999_999},
        {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1},
    ],
    "priority": [{"enum": list(units.PRIORITIES)}],
    "amount": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*([0-9][0-9_,]*(\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]{3})?\s*$"},
        {"type": "string", "pattern": r"^\s*[A-Za-z]{3}\s*[0-9.]+\s*$"},
    ],
}
