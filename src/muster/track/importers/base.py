"""What an importer finds in another tool's files: runs, and each of them as a stream of neutral items.

The items of a run must come out the same whenever its files are the same: an import that was cut off goes on in the
midst of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from muster.foreign.tfrecord import Damage

REVISION: Final = 1  # of the items below and of what readers make of files: another number reads everything anew
_CHUNK: Final = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Found:
    """One run. `key` names it for ever, wherever its files are moved to."""

    key: str
    tool: str  # wandb or tensorboard
    name: str
    path: Path
    files: tuple[Path, ...]  # what is read, in this order
    created_at: float
    purpose: str = ""

    def fingerprint(self) -> str:
        """Of all that is read; another one means that the run has changed since."""
        digest = hashlib.sha256(f"{REVISION}\0{self.key}".encode())
        for path in self.files:
            digest.update(f"\0{path.name}\0{path.stat().st_size}\0".encode("utf-8", "replace"))
            with path.open("rb") as file:
                while part := file.read(_CHUNK):
                    digest.update(part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Rows:
    """Values of some metrics, in the order of the names, at each step."""

    names: tuple[str, ...]
    steps: Sequence[int]
    times: Sequence[float]  # Unix seconds
    values: Sequence[Sequence[float]]  # a row for each step


@dataclass(frozen=True, slots=True)
class Facts:
    """What becomes known of the run: parameters as they are, tags as text, the environment as `wire` has it."""

    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    environment: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A histogram, image, table, text or the like at a step; what is large or no JSON is `content`."""

    name: str
    kind: str
    step: int
    time: float
    data: Any = None
    content: bytes | None = None
    mime: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of the run, under the path that it has there."""

    path: str
    file: Path


@dataclass(frozen=True, slots=True)
class Ended:
    outcome: Literal["succeeded", "failed", "stopped"]
    time: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that could not be taken over, in words."""

    what: str


Item = Rows | Facts | Shown | Kept | Ended | LeftOut | Damage


class Importer(Protocol):
    about: str  # for people: what it reads

    def find(self, path: Path) -> list[Found]:
        """Every run at this place or below it, the oldest first; none when it is not of this tool."""
        ...

    def read(self, found: Found) -> Iterator[Item]: ...


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dots between the names."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        made |= flat(value, name) if isinstance(value, Mapping) and value else {name: value}
    return made
