"""The project must exist. Whether the user may submit to it was checked by the server before."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec
from muster.core.suggest import did_you_mean


def check(spec: JobSpec, context: Context) -> Reason | None:
    if spec.project in context.state.projects:
        return None
    create = f"Create it with `muster project create {spec.project}`."
    hint = did_you_mean(spec.project, context.state.projects, create, quote="'")
    return reason("unknown_project", f"project {spec.project!r} does not exist", hint, project=spec.project)
