"""Where this process stands: its rank, its gang and its job, from the environment, with defaults for running alone."""

from __future__ import annotations

import os
import sys

from muster import wire


def active() -> bool:
    """True for a process that Muster started."""
    return wire.RANK_DIR in os.environ


def rank() -> int:
    """This process among all of the attempt, from 0; 0 alone."""
    return _number(wire.RANK, 0)


def world_size() -> int:
    """Processes of the attempt; 1 alone."""
    return _number(wire.WORLD_SIZE, 1)


def local_rank() -> int:
    """This process among those of its node, from 0; 0 alone."""
    return _number(wire.LOCAL_RANK, 0)


def attempt() -> int:
    """Which launch of the run this is, from 1; 1 alone."""
    return _number(wire.ATTEMPT, 1)


def job() -> str | None:
    """The job's id; None alone."""
    return os.environ.get(wire.JOB)


def warn(text: str) -> None:
    """Tells whoever reads the rank's output; a closed stderr is no reason to stop training."""
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
