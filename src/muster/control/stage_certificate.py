"""The certificate of preflight that a stage of promotion asks for."""

from __future__ import annotations

from muster.api.words import Rung
from muster.control.admission.certificate import certificate_for
from muster.core.spec import JobSpec
from muster.core.state import State


def certificate(state: State, spec: JobSpec, code: str, rung: Rung) -> tuple[bool, str]:
    """Whether the job has this certificate, and what was found. `code`: the digest of its snapshot, or ""."""
    found = certificate_for(rung, spec, code, state)
    if found is None:
        return False, f"no certificate of {rung} covers it"
    return True, f"{found.id}, waived by {found.by}: {found.why}" if found.waived else f"{found.id}, of {found.job}"
