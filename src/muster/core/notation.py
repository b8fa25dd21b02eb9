"""How the fields of a model are written in a job file: a note on each field, and the keys that lead to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Form = Literal[
    "text", "name", "path", "commands", "integer", "number", "flag", "choice", "priority", "duration",
    "duration_or_auto", "size", "accelerators", "nodes", "needs", "array", "mapping", "list", "section", "json",
    "switch", "amount",
]  # fmt: skip
FieldPath = tuple[str, ...]  # the path of a field from the top: ("run",) or ("retry", "on")


@dataclass(frozen=True, slots=True)
class Notation:
    """How a field is written in a job file: its form, what is expected (a text), an example, and its aliases."""

    form: Form
    expected: str
    example: str
    aliases: tuple[str, ...] = ()
    item: str = ""  # description of one item of a list or mapping
    shorthand: str = ""  # of a section: the field that a bare value sets
    lifted: bool = False  # of a section: its fields are also accepted at the top level


def written(info: FieldInfo) -> Notation | None:
    """How the field is written; None for a field that a job file can't contain."""
    return next((note for note in info.metadata if isinstance(note, Notation)), None)


def section_model(info: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is or may be a section of the file."""
    kinds = get_args(info.annotation) or (info.annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


@cache
def accepted_names(model: type[BaseModel]) -> Mapping[str, FieldPath]:
    """Every key that this section accepts, including aliases and lifted fields → the path of the field it means."""
    names: dict[str, FieldPath] = {}
    for name, info in model.model_fields.items():
        if note := written(info):
            names.update(dict.fromkeys((name, *note.aliases), (name,)))
        section = section_model(info)
        if note and note.lifted and section:
            names.update({key: (name, *path) for key, path in accepted_names(section).items()})
    return names
