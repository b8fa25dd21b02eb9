"""The JSON Schema (draft 2020-12) of a policy file, for editors; its texts come from the notes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import yaml
from pydantic.fields import FieldInfo

from muster.core import units
from muster.core.policy_dump import written
from muster.core.policy_notes import NOTES, Model, Note
from muster.core.rules import WORK_CLASSES, Rules, Window
from muster.core.schema import DURATION_SHAPES, SIZE_SHAPES

Shape = dict[str, Any]


def policy_schema(orders: Collection[str]) -> Shape:
    """Whatever the schema rejects is a mistake or unusual. What it accepts may still name things that do not exist."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster policy",
        "description": "What the queues, pools and projects of a cluster are held to.",
        **_section(Rules, orders),
    }


def default_of(info: FieldInfo, note: Note) -> Any:
    """The default in its notation for people; None when there is none, or when it is a section."""
    if info.is_required() or (note.model is not None and not note.absent):
        return None
    return written(note, info.default)


def _section(model: Model, orders: Collection[str]) -> Shape:
    fields, canonical = NOTES[model], model.model_json_schema()["properties"]
    properties, required = {}, []
    for name, note in fields.items():
        info, key = model.model_fields[name], note.key or name
        shapes = _shapes(note, name, canonical[name], orders)
        default = default_of(info, note)
        properties[key] = {
            **(shapes[0] if len(shapes) == 1 else {"anyOf": shapes}),
            "description": f"{note.meaning} Write {note.expected}.",
            **({} if default is None else {"default": default}),
            "examples": [yaml.load(note.example, yaml.BaseLoader)],  # noqa: S506  (strings, lists and mappings alone)
        }
        required += [key] if info.is_required() else []
    needs = {"required": required} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **needs}


def _shapes(note: Note, name: str, canonical: Shape, orders: Collection[str]) -> list[Shape]:
    """The schemas of all ways to write the field."""
    kinds = [kind for kind in canonical.get("anyOf", [canonical]) if kind.get("type") != "null"]
    plain = {key: value for key, value in kinds[0].items() if key not in ("title", "description", "default")}
    items = _items(note, _inside(plain), orders)
    words = [{"enum": [note.absent]}] if note.absent else []
    if note.many == "list":
        text = [{"type": "string"}] if name == "days" else []
        return [{"type": "array", "items": _either(items)}, *items, *text, *words]
    if note.many == "mapping":
        bare: list[Shape] = [{"type": "integer", "minimum": 0}, {"enum": ["none"]}] if note.form == "amounts" else []
        return [_mapping(note, name, items, plain), *bare, *words]
    return [*items, *words]


def _items(note: Note, canonical: Shape, orders: Collection[str]) -> list[Shape]:
    if note.form == "order":
        return [{"enum": list(orders)}]
    if note.model is None:
        # Times of day, dates and sizes are numbers in the rules but never in a file.
        return [*([canonical] if note.form not in _AS_TEXT else []), *_OTHERS.get(note.form, [])]
    short: list[Shape] = [{"type": "string"}] if note.model is Window else []
    if note.shorthand:
        inner = note.model.model_json_schema()["properties"][note.shorthand]
        short = _shapes(NOTES[note.model][note.shorthand], note.shorthand, inner, orders)
    return [_section(note.model, orders), *short]


def _mapping(note: Note, name: str, items: list[Shape], canonical: Shape) -> Shape:
    empty: list[Shape] = (
        [{"type": "null"}] if note.model is not None else []
    )  # `research:` without a value is a queue that only has the defaults
    if name == "targets":
        return {
            "type": "object",
            "properties": {work: _either([*items, *empty]) for work in WORK_CLASSES},
            "additionalProperties": False,
        }
    pattern = next(iter(canonical.get("patternProperties", ())), None)
    names = {"propertyNames": {**canonical["propertyNames"], "pattern": pattern}} if pattern else {}
    return {"type": "object", **names, "additionalProperties": _either([*items, *empty])}


def _inside(shape: Shape) -> Shape:
    """The schema of one item, if the field holds several."""
    patterns = list(shape.get("patternProperties", {}).values())
    inside = shape.get("items") or (patterns[0] if patterns else shape.get("additionalProperties"))
    return inside if isinstance(inside, dict) else shape


def _either(shapes: list[Shape]) -> Shape:
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


_CLOCK: Final = r"^([01]?[0-9]|2[0-4]):[0-5][0-9](:[0-5][0-9])?$"
_MOMENT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}:[0-9]{2})$"
_AS_TEXT: Final = ("clock", "moment", "size")
_OTHERS: Final[dict[str, list[Shape]]] = {
    "duration": DURATION_SHAPES,
    "size": SIZE_SHAPES,
    "priority": [{"enum": list(units.PRIORITIES)}],
    "clock": [{"type": "string", "pattern": _CLOCK}],
    "moment": [{"type": "string", "pattern": _MOMENT}],
}
