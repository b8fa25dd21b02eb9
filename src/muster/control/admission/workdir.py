"""The working directory must exist. Only for jobs that run on this machine."""

from __future__ import annotations

from pathlib import Path

from muster.control.admission.base import Context
from muster.control.admission.pools import here
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    if spec.workdir is None or not here(spec, context):
        return None
    if not Path(spec.workdir).is_absolute():
        return reason("no_workdir", f"workdir {spec.workdir!r} is not an absolute path", "Give the whole path.")
    if not context.file_findings.workdir:
        return reason("no_workdir", f"workdir {spec.workdir!r} is not a directory", workdir=spec.workdir)
    return None
