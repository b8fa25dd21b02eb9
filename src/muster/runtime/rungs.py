"""What a job that is a rung of preflight is told: which rung, and after how many steps to end."""

from __future__ import annotations

import os

from muster import wire


def preflight_rung() -> str:
    """`unit`, `resume`, `smoke`, `failure` or `canary` in a job of `muster preflight`; otherwise ""."""
    return os.environ.get(wire.PREFLIGHT, "")


def preflight_steps() -> int | None:
    """After how many steps a job of `muster preflight` should save and end; None: as it would."""
    text = os.environ.get(wire.PREFLIGHT_STEPS, "")
    return int(text) if text.isascii() and text.isdigit() else None
