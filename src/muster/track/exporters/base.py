"""Interface of exporters: the runs they get, independent of a database, and the result they return."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

FACTS: Final = (
    "id", "project", "name", "user", "kind", "source", "phase", "purpose", "created_at", "started_at", "ended_at",
)  # fmt: skip
_LONGEST_NAME: Final = 200  # bytes of a file name that come from a run or metric


@dataclass(frozen=True, slots=True)
class Facts:
    """A run without its series."""

    id: str
    project: str
    name: str = ""
    user: str = ""
    kind: str = "train"
    source: str = "job"
    phase: str = "succeeded"
    purpose: str = ""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last value of each metric


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one metric of one rank, sorted by step. `rank` is None for the run's own series.

    A superseded series has the points that a later attempt reported again. Otherwise it is the current curve.
    """

    name: str
    rank: int | None
    superseded: bool
    steps: NDArray[np.int64]
    times: NDArray[np.float64]  # Unix seconds
    values: NDArray[np.float64]
    attempts: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Medium:
    """A histogram, image, table or text at a step. Small ones are in `data`, others in `content`."""

    name: str
    kind: str
    step: int
    time: float
    rank: int = 0
    attempt: int = 1
    mime: str = ""
    data: Any = None
    content: bytes | None = None


class ExportedRun(Protocol):
    """A run that is read while it is written, so that it need not fit into memory."""

    @property
    def facts(self) -> Facts: ...

    def series(self, superseded: bool = False) -> Iterator[Series]:
        """Every current curve; with `superseded` also the points that a later attempt reported again."""
        ...

    def media(self) -> Iterator[Medium]: ...


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for one run."""

    run: str
    path: Path
    points: int
    media: int


class Exporter(Protocol):
    """Writes runs into a folder. A repeated export replaces the earlier one."""

    about: str  # shown to users: what it writes

    def export(self, runs: Iterable[ExportedRun], folder: Path, superseded: bool = False) -> Iterator[Written]:
        """Exports one run after the other. The export is complete when the iterator is exhausted."""
        ...


def file_name(text: str) -> str:
    """A file name that is valid on every file system. Different texts have different names."""
    safe = quote(text, safe=" +,=@()-_.", errors="replace")
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[: _LONGEST_NAME - 17]}~{hash_of(text):016x}"


def hash_of(text: str) -> int:
    """A hash that is the same in every process, unlike Python's (FNV-1a)."""
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8", "replace"):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def columns_of(facts: Facts) -> dict[str, Any]:
    """One row of a table of runs, with the column names of MLflow."""
    row: dict[str, Any] = {name: getattr(facts, name) for name in FACTS}
    row |= {f"params.{key}": value for key, value in sorted(facts.params.items())}
    row |= {f"metrics.{key}": value for key, value in sorted(facts.metrics.items())}
    return row | {f"tags.{key}": value for key, value in sorted(facts.tags.items())}


def json_line(medium: Medium, path: str | None) -> str:
    """A medium as a line of a JSON lines file; `path` is the file with its content."""
    about = {"name": medium.name, "kind": medium.kind, "step": medium.step, "time": medium.time}
    about |= {"rank": medium.rank, "attempt": medium.attempt}
    if path is not None:
        return json.dumps(about | {"path": path, "mime": medium.mime})
    return json.dumps(about | {"data": medium.data})
