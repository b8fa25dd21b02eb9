"""The place of this process: its rank, gang and job, from the environment, with defaults for running standalone."""

from __future__ import annotations

import os
import sys

from muster import wire


def active() -> bool:
    """True for a process that Muster started."""
    return wire.RANK_DIR in os.environ


def rank() -> int:
    """The number of this process in the attempt, from 0; 0 standalone."""
    return _number(wire.RANK, 0)


def world_size() -> int:
    """The number of processes in the attempt; 1 standalone."""
    return _number(wire.WORLD_SIZE, 1)


def local_rank() -> int:
    """The number of this process on its node, from 0; 0 standalone."""
    return _number(wire.LOCAL_RANK, 0)


def attempt() -> int:
    """The number of this launch of the run, from 1; 1 standalone."""
    return _number(wire.ATTEMPT, 1)


def job() -> str | None:
    """The job's id; None standalone."""
    return os.environ.get(wire.JOB)


def warn(text: str) -> None:
    """Writes a warning to the rank's output; a closed stderr must not stop training."""
    try:
        sys.stderr.write(f"muster: {text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # None under pythonw, a broken pipe, a closed file
        pass


def _number(name: str, default: int) -> int:
    text = os.environ.get(name)
    try:
        return default if text is None else int(text)
    except ValueError:
        message = (
            f"environment variable {name} is {text!r}; expected a whole number. Unset it, or let the launcher set it."
        )
        raise ValueError(message) from None
