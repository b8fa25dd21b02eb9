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
    "duration_or_auto", "size", "accelerators", "nodes", "mapping", "list", "section", "json",
]  # fmt: skip
FieldPath = tuple[str, ...]  # the names of a field from the top: ("run",) or ("retry", "on")


@dataclass(frozen=True, slots=True)
class Written:
    """How a field is written in a job file: its form, in words what is expected, an example, and its other names."""

    form: Form
    expected: str
    example: str
    aliases: tuple[str, ...] = ()
    item: str = ""  # what one item of a list or mapping should be
    shorthand: str = ""  # of a section: the field that a bare value stands for
    lifted: bool = False  # of a section: its fields may also stand at the top level


def written(info: FieldInfo) -> Written | None:
    """How the field is written; None for one that a job file can't hold."""
    return next((note for note in info.metadata if isinstance(note, Written)), None)


def section_model(info: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a section of the file, or that may be."""
    kinds = get_args(info.annotation) or (info.annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


@cache
def accepted_names(model: type[BaseModel]) -> Mapping[str, FieldPath]:
    """Every key that may stand in this section, aliases and lifted fields included → the field it means, as a path."""
    names: dict[str, FieldPath] = {}
    for name, info in model.model_fields.items():
        if note := written(info):
            names.update(dict.fromkeys((name, *note.aliases), (name,)))
        section = section_model(info)
        if note and note.lifted and section:
            names.update({key: (name, *path) for key, path in accepted_names(section).items()})
    return names
