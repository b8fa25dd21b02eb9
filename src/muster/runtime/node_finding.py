"""What a check of a node is given, and how it says what it found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class Failed(Exception):
    """The check saw a fault; the text says which."""


class Unknown(Exception):
    """The check can't be made here; the text says why."""


@dataclass(frozen=True, slots=True)
class Node:
    """The node as one worker sees it. `devices`: its accelerators by index; None: those of the environment."""

    folder: Path  # where the worker writes
    devices: tuple[int, ...] | None = None
    accelerators: int | None = None  # how many the worker was given; None: not known
    shared: bool = False  # other jobs may use the same accelerators
