"""The parameters that a study gives to one of its trials."""

from __future__ import annotations

import json
import os

from muster import wire


def trial_params() -> dict[str, bool | int | float | str]:
    """The parameters of this trial with their types; empty in a job that is no trial, and standalone."""
    return dict(json.loads(os.environ.get(wire.PARAMS) or "{}"))


def trial() -> int | None:
    """The number of this trial in its study; None in a job that is no trial, and standalone."""
    number = os.environ.get(wire.TRIAL)
    return int(number) if number else None
