"""The resources that an sbatch script asks for, and parsers of Slurm's numbers, times and sizes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from muster.foreign.shell import names

# Muster's launcher sets these on every rank.
RANK_NAMES: Final = names("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK MASTER_ADDR MASTER_PORT")


@dataclass(frozen=True, slots=True)
class Message:
    """A message about one part of the script: its line, its text, and what it was converted to."""

    line: int  # from 1; 0 for the script as a whole
    what: str
    became: str


@dataclass(slots=True)
class Shape:
    """The request that the options make, before the number of ranks is known."""

    fields: dict[str, Any] = field(default_factory=dict)  # fields of the job file
    slurm: dict[str, Any] = field(default_factory=dict)  # the job file's section `slurm`
    tasks: int = 1  # per node
    nodes: int = 1
    accelerators: int = 0  # per node
    named: set[str] = field(default_factory=set)  # names of the given options
    carried: list[Message] = field(default_factory=list)
    lost: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)


class Unconvertible(ValueError):
    """A value that is invalid in Slurm too, or that can't be converted. The text says what to do."""


def seconds(text: str) -> float | None:
    """Seconds of a Slurm time: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S. None for no limit."""
    if text.upper() in ("UNLIMITED", "INFINITE", "0", "-1"):
        return None
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not found:
        raise Unconvertible(f"is no time: write `max_duration`, as in `max_duration: 6h` ({text!r} was given).")
    days, *rest = (None if part is None else int(part) for part in found.groups())
    given = [part for part in rest if part is not None]
    units = [3600, 60, 1] if days is not None or len(given) == 3 else [60, 1]
    return float((days or 0) * 86_400 + sum(part * unit for part, unit in zip(given, units, strict=False)))


def megabytes(text: str) -> int | None:
    """A Slurm size in MiB, which is also its default unit. None for all memory of the node."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text.upper())
    if not found:
        raise Unconvertible(f"is no size: write `resources.memory`, as in `64GB` ({text!r} was given).")
    number = int(found[1])
    scale = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[found[2]]
    return math.ceil(number * scale) if number else None


def whole(text: str, what: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text) or int(text) < 1:
        raise Unconvertible(f"is no number of {what} ({text!r} was given).")
    return int(text)
