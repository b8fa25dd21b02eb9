"""Decoder of W&B's offline log: its records as plain Python values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from muster.foreign.protobuf import Malformed, Value, double, fields, raw, signed, text, whole

HISTORY, SUMMARY, CONFIG, FILES, STATS, RUN, EXIT, ENVIRONMENT = 2, 3, 5, 6, 7, 17, 18, 26
_OTHERS: Final = {8: "artifacts", 10: "alerts", 23: "notices of preemption", 25: "artifacts that were used"}


@dataclass(slots=True)
class RunRecord:
    id: str = ""
    entity: str = ""
    project: str = ""
    name: str = ""
    notes: str = ""
    group: str = ""
    job_type: str = ""
    sweep: str = ""
    host: str = ""
    commit: str = ""
    remote: str = ""
    started_at: float = 0.0
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class History:
    """The values of one `wandb.log` call."""

    step: int
    values: dict[str, Any]


@dataclass(slots=True)
class Update:
    """Changes of the summary or the configuration. Nested names are joined with dots."""

    values: dict[str, Any]
    removed: list[str]


@dataclass(slots=True)
class Stats:
    """System metrics."""

    time: float
    values: dict[str, Any]


def kind_of(record: bytes) -> tuple[int, bytes]:
    """The kind of a record and its content; 0 for a record that isn't about the run."""
    for number, value in fields(record):
        if number in (HISTORY, SUMMARY, CONFIG, FILES, STATS, RUN, EXIT, ENVIRONMENT) or number in _OTHERS:
            return number, raw(value)
    return 0, b""


def other(kind: int) -> str | None:
    """The name of a kind of record that is not imported."""
    return _OTHERS.get(kind)


def run_of(message: bytes) -> RunRecord:
    made = RunRecord()
    names = {
        1: "id",
        2: "entity",
        3: "project",
        6: "group",
        7: "job_type",
        8: "name",
        9: "notes",
        12: "sweep",
        13: "host",
    }
    for number, value in fields(message):
        if number in names:
            setattr(made, names[number], text(value))
        elif number == 4:
            made.config = update_of(raw(value)).values
        elif number == 10:
            made.tags.append(text(value))
        elif number == 17:
            made.started_at = _timestamp(raw(value))
        elif number == 21:
            parts = dict(fields(raw(value)))
            made.remote, made.commit = text(parts.get(1, b"")), text(parts.get(2, b""))
    made.config.pop("_wandb", None)
    return made


def history_of(message: bytes) -> History:
    step: int | None = None
    values: dict[str, Any] = {}
    for number, value in fields(message):
        if number == 1:
            _put(values, *_item(raw(value)))
        elif number == 2:
            step = signed(dict(fields(raw(value))).get(1, 0))
    kept = values.pop("_step", None)
    return History(step if step is not None else int(kept or 0), values)


def update_of(message: bytes) -> Update:
    """An update of the summary or the configuration."""
    made = Update({}, [])
    for number, value in fields(message):
        if number == 1:
            _put(made.values, *_item(raw(value)))
        elif number == 2:
            made.removed.append(".".join(_item(raw(value))[0]))
    return made


def stats_of(message: bytes) -> Stats:
    made = Stats(0.0, {})
    for number, value in fields(message):
        if number == 2:
            made.time = _timestamp(raw(value))
        elif number == 3:
            _put(made.values, *_item(raw(value)))
    return made


def files_of(message: bytes) -> list[str]:
    found = []
    for number, value in fields(message):
        if number == 1:
            found += [text(path) for at, path in fields(raw(value)) if at == 1]
    return found


def exit_code(message: bytes) -> int:
    return signed(dict(fields(message)).get(1, 0))


def environment_of(message: bytes) -> dict[str, Any]:
    """The environment in the format in which Muster's ranks report it."""
    names = {1: "os", 2: "python", 12: "host", 14: "executable", 18: "gpu", 25: "cuda"}
    parts = {names[number]: text(value) for number, value in fields(message) if number in names}
    python = {"version": parts.get("python", ""), "executable": parts.get("executable", "")}
    host = {"name": parts.get("host", ""), "kernel": parts.get("os", "")}
    made: dict[str, Any] = {"python": _given(python), "host": _given(host)}
    if parts.get("gpu"):
        made["devices"] = [{"name": parts["gpu"]}]
    return _given(made)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def commit_of(message: bytes) -> str:
    """The commit in an environment record."""
    for number, value in fields(message):
        if number == 9:
            return text(dict(fields(raw(value))).get(2, b""))
    return ""


def _item(message: bytes) -> tuple[list[str], Any]:
    """A name, which may be nested, and its value."""
    path: list[str] = []
    value: Any = None
    for number, content in fields(message):
        if number == 1:
            path = [text(content)]
        elif number == 2:
            path.append(text(content))
        elif number in _SCALARS:
            value = _SCALARS[number](content)
    if not path:
        raise Malformed("a value without a name")
    return path, value


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    at = values
    for name in path[:-1]:
        inner = at.get(name)
        if not isinstance(inner, dict):
            inner = at[name] = {}
        at = inner
    at[path[-1]] = value


def _json(content: Value) -> Any:
    try:
        return json.loads(text(content))
    except (ValueError, RecursionError):
        raise Malformed("a value that is no JSON") from None


def _timestamp(message: bytes) -> float:
    parts = dict(fields(message))
    return signed(parts.get(1, 0)) + signed(parts.get(2, 0)) / 1e9


def _zigzag(content: Value) -> int:
    number = whole(content)
    return (number >> 1) ^ -(number & 1)


# Newer writers have typed fields in addition to the JSON that all writers have.
_SCALARS: Final[dict[int, Callable[[Value], Any]]] = {
    3: lambda content: None,
    4: lambda content: bool(whole(content)),
    5: _zigzag,
    6: double,
    7: text,
    8: _json,
    16: _json,
}


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values with dotted names. A value that W&B marks with a type is not split."""
    for key, value in values.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict) and "_type" not in value:
            yield from leaves(value, name)
        else:
            yield name, value
