"""The parent of a job must be a job of the same project. Members of a project see all of its jobs."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    if spec.parent is None:
        return None
    parent = context.job(spec.parent)
    if parent is not None and parent.project == spec.project:
        return None
    # The same for a job of another project: whether it exists is not for everybody to know.
    message = f"project {spec.project!r} has no job {spec.parent!r}, which is given as the parent"
    hint = f"Give the id of a job of that project, as `muster ls --all --project {spec.project}` shows it."
    return reason("unknown_parent", message, hint, parent=spec.parent, project=spec.project)
