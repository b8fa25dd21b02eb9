"""The project must exist. Whether the user may submit to it was checked by the server before."""

from __future__ import annotations

from difflib import get_close_matches

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    if spec.project in context.state.projects:
        return None
    near = get_close_matches(spec.project, context.state.projects, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Create it with `muster project create {spec.project}`."
    return reason("unknown_project", f"project {spec.project!r} does not exist", hint, project=spec.project)
