"""The checks of a program in its own training script: in a job of `muster preflight` they run instead of the training.

preflight.run_if_asked(build, batch, loss)     # before the training; elsewhere it does nothing
"""

from __future__ import annotations

import sys
from typing import Any

from muster import runtime


def run_if_asked(build: Any, batch: Any, loss: Any, **options: Any) -> None:
    """In a job of the rung `unit`: runs `check` with these arguments on the first rank, and ends the program with its
    result. In any other process it does nothing."""
    if runtime.preflight_rung() != "unit":
        return
    if runtime.rank():
        sys.exit(0)
    # Only here: a training does not wait for the import of the checks.
    from muster.train.preflight.finish import finish  # noqa: PLC0415
    from muster.train.preflight.hook import check  # noqa: PLC0415

    sys.exit(finish(check(build, batch, loss, **options)))
