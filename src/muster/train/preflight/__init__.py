"""Preflight: what a training program must do right, checked before it gets a cluster.

    from muster.train import preflight

    report = preflight.check(build, batch, loss)              # unit: see `hook`
    report = preflight.check_resume(Training)                 # resume: see `resume`
    report = preflight.check_canary(Canary(...), Planned(...))  # canary: see `canary`
    sys.exit(preflight.finish(report))                        # prints it, writes it for the platform

The same for tasks of muster.train: `python -m muster.train.preflight config.yaml`.
Importing this package does not import torch; the first use of a name that needs it does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.checks.canary import Canary, Planned, check_canary, full_run
    from muster.checks.findings import Finding, Report, Result, document
    from muster.train.preflight.finish import finish
    from muster.train.preflight.gate import run_if_asked
    from muster.train.preflight.hook import check
    from muster.train.preflight.resume import check_resume
    from muster.train.preflight.task import check_task
    from muster.train.preflight.task_resume import check_task_resume

__all__ = [
    "Canary", "Finding", "Planned", "Report", "Result", "check", "check_canary", "check_resume", "check_task",
    "check_task_resume", "document", "finish", "full_run", "run_if_asked",
]  # fmt: skip

_HOMES = {
    "Canary": "muster.checks.canary",
    "Finding": "muster.checks.findings",
    "Planned": "muster.checks.canary",
    "Report": "muster.checks.findings",
    "Result": "muster.checks.findings",
    "check": "hook",
    "check_canary": "muster.checks.canary",
    "check_resume": "resume",
    "check_task": "task",
    "check_task_resume": "task_resume",
    "document": "muster.checks.findings",
    "finish": "finish",
    "full_run": "muster.checks.canary",
    "run_if_asked": "gate",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    return getattr(import_module(home if "." in home else f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
