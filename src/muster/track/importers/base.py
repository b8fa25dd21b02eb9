"""Interface of importers: they find runs in another tool's files, and read each as a stream of tool-independent items.

The same files must always give the same items: an interrupted import continues in the middle of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from muster.foreign.tfrecord import Damage
from muster.wire import Outcome

REVISION: Final = 1  # version of the items and their readers; a new number makes every run be imported again
_CHUNK: Final = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run. `key` identifies it permanently, even if its files are moved."""

    key: str
    tool: str  # the importer's name
    name: str
    path: Path
    files: tuple[Path, ...]  # the files to read, in this order
    created_at: float
    purpose: str = ""
    parent: str = ""  # the key of the run that it belongs to, which is found before it
    content: bytes = b""  # what there is to read beside files: of a trial that is kept in a database

    def fingerprint(self) -> str:
        """Hash of all that is read; it differs if the run has changed since."""
        digest = hashlib.sha256(f"{REVISION}\0{self.key}".encode())
        digest.update(self.content)
        for path in self.files:
            digest.update(f"\0{path.name}\0{path.stat().st_size}\0".encode("utf-8", "replace"))
            with path.open("rb") as file:
                while part := file.read(_CHUNK):
                    digest.update(part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Rows:
    """Values of some metrics at each step, in the order of `names`."""

    names: tuple[str, ...]
    steps: Sequence[int]
    times: Sequence[float]  # Unix seconds
    values: Sequence[Sequence[float]]  # one row per step


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the run: parameters unchanged, tags as text, the environment in the format of `wire`."""

    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    environment: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ImportedMedium:
    """A histogram, image, table, text or other medium at a step. Large or non-JSON data is in `content`."""

    name: str
    kind: str
    step: int
    time: float
    data: Any = None
    content: bytes | None = None
    mime: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file of the run, with its path in the run's folder."""

    path: str
    file: Path


@dataclass(frozen=True, slots=True)
class Ended:
    outcome: Outcome
    time: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that could not be imported, as a text."""

    what: str


Item = Rows | Facts | ImportedMedium | ImportedFile | Ended | LeftOut | Damage


class Importer(Protocol):
    about: str  # shown to users: what it reads

    def find(self, path: Path) -> list[FoundRun]:
        """All runs at or below this path, oldest first, a parent before its children; none if it isn't of this tool."""
        ...

    def read(self, found: FoundRun) -> Iterator[Item]: ...


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted names."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        made |= flat(value, name) if isinstance(value, Mapping) and value else {name: value}
    return made
