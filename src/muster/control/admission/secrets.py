"""Every secret that the job names must be set in its project."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    missing = [name for name in spec.secrets if not context.has_secret(spec.project, name)]
    if not missing:
        return None
    hint = " ".join(f"Set it with `muster project secret set {name} --project {spec.project}`." for name in missing)
    return reason(
        "unknown_secret", f"project {spec.project!r} has no secret {', '.join(missing)}", hint, missing=missing
    )
