"""Builds a complete job from a command or a job file and the options; checked here, before anything is sent."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from muster.cli.call import Usage
from muster.client.surroundings import surroundings
from muster.control.needs import array_of, in_order
from muster.core.document import read_document
from muster.core.errors import Invalid, NotFound, SpecError
from muster.core.fields import FIELDS
from muster.core.parse import Overrides, parse_job
from muster.core.report import Plain, Report, Stop
from muster.core.spec import JobSpec

_CLOSE: Final = "Close the bracket or the quotes, as in -o secrets=[HF_TOKEN]."


@dataclass(frozen=True, slots=True)
class Prepared:
    source: str  # its name for the user
    spec: JobSpec  # with absolute paths


def from_file(name: str, overrides: Mapping[str, Any], local: bool) -> Prepared:
    """A job file, `-` for standard input. Its `workdir` is relative to its folder, and defaults to that folder."""
    text, source, folder = _read(name)
    changes = Overrides(overrides, base=Path.cwd())
    defaults = surroundings(folder, local)
    try:
        return Prepared(source, parse_job(text, source=source, base=folder, defaults=defaults, overrides=changes))
    except SpecError as error:
        unknown = {one.where.split(" ")[0] for one in error.problems}
        if {"space", "objective"} <= unknown:
            raise Invalid(
                f"{source} is a study file, and no job file.", f"Start it with `muster tune {name}`."
            ) from None
        raise


def check_circle(jobs: Sequence[Prepared]) -> None:
    """Raises Invalid if jobs that are submitted in one call need each other in a circle."""
    _, circle = in_order([one.spec for one in jobs])
    if circle:
        named = ", ".join(f"{jobs[i].spec.name} ({jobs[i].source})" for i in circle)
        raise Invalid(f"Jobs need each other in a circle: {named}.", "Leave out one of their `needs`.")


def needed_here(one: Prepared, jobs: Sequence[Prepared]) -> list[str]:
    """Those of the job's needs that the same call submits."""
    names = {other.spec.name for other in jobs if other is not one and other.spec.project == one.spec.project}
    return [name for name in one.spec.needs if array_of(name) in names]


def from_command(command: str, overrides: Mapping[str, Any], local: bool) -> Prepared:
    """A shell command, run in the current folder."""
    defaults = surroundings(Path.cwd(), local)
    written = {"run": command, **overrides}
    return Prepared("muster run", parse_job(written, source="The job", base=Path.cwd(), defaults=defaults))


def parse_overrides(pairs: Sequence[str]) -> dict[str, Any]:
    """`name=value`, with dots for nested fields: `resources.cpus=4`, `envs.LR=1e-3`, `retry.on=[node]`."""
    made: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        *path, last = name.split(".")
        if not equals or not last or not all(path):
            raise Usage(f"-o: got {pair!r}.", "Write a field of the job file and its value, as in -o envs.LR=1e-3.")
        place = made
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise Usage(f"-o: {name!r} is inside of a field that has a value already.", "Leave one of the two out.")
        place[last] = _free_value(text, pair) if _is_free((*path, last)) else _value(text, pair)
    return made


def _read(name: str) -> tuple[str, str, Path]:
    if name == "-":
        return sys.stdin.read(), "standard input", Path.cwd()
    path = Path(name)
    try:
        return path.read_text(), name, path.absolute().parent
    except FileNotFoundError:
        raise NotFound(f"There is no job file {name}.", "Check the path, or begin with `muster init`.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{name} can't be read: {error}.", "Name a job file, as in `job.yaml`.") from None


def _is_free(path: tuple[str, ...]) -> bool:
    """Whether it is a field that is passed on unchanged, inside of one, or contains one."""
    free = [known for known, field in FIELDS.items() if field.note.form == "json"]
    return any(path[: len(known)] == known[: len(path)] for known in free)


def _free_value(text: str, pair: str) -> Any:
    """As in a job file: `true` and `1` are not text there unless they are quoted."""
    if text[:1] not in "[{\"'":
        return Plain(text)
    try:
        return read_document(f"value: {text}", Report())["value"]
    except Stop:
        raise Usage(f"-o: got {pair!r}.", _CLOSE) from None


def _value(text: str, pair: str) -> Any:
    """Every scalar stays text: the field decides what it means."""
    try:
        return yaml.load(text, yaml.BaseLoader) if text[:1] in "[{" else text  # noqa: S506  (it makes text alone)
    except yaml.YAMLError:
        raise Usage(f"-o: got {pair!r}.", _CLOSE) from None
