"""Calls of preflight: the plan of a ladder, the verdict on a rung's jobs, certificates and waivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.connection import Anyone, Doc, part
from muster.client.job_calls import body_of, code_of
from muster.client.spec import Spec

if TYPE_CHECKING:
    from muster.api.preflight import CertificateList, CertificateView, PreflightPlan, RevokedView, RungVerdict
    from muster.api.words import Rung


async def preflight_plan(
    to: Anyone,
    /,
    spec: Spec,
    *,
    steps: int | None = None,
    nodes: int | None = None,
    seconds: float | None = None,
    base: str | Path | None = None,
    inherit: bool = True,
    **overrides: Any,
) -> PreflightPlan:
    """Each rung for this job: whether a rule asks for it, the certificate that covers it, what has changed since, and
    the job file of what would run. `steps`, `nodes`, `seconds`: of a rung, instead of its own."""
    body = await _body(to, spec, overrides, base, inherit)
    sizes = {"steps": steps, "nodes": nodes, "seconds": seconds}
    return await to._transport.call("POST", "/v1/preflight/plan", body={**body, **sizes})


async def certify(
    to: Anyone,
    /,
    spec: Spec,
    rung: Rung,
    jobs: Sequence[str],
    *,
    told: Mapping[str, Mapping[str, str]] | None = None,
    base: str | Path | None = None,
    inherit: bool = True,
    **overrides: Any,
) -> RungVerdict:
    """Has the server judge the jobs that ran as a rung of this job. If all is in order, the job gets a certificate."""
    body = await _body(to, spec, overrides, base, inherit)
    claim = {**body, "rung": rung, "jobs": list(jobs), "told": dict(told or {})}
    return await to._transport.call("POST", "/v1/preflight/certificates", body=claim)


async def certificates(to: Anyone, /, project: str | None = None, rung: Rung | None = None) -> list[CertificateView]:
    """The newest first."""
    found: CertificateList = await to._get("/v1/preflight/certificates", project=project, rung=rung)
    return found["certificates"]


async def waive_preflight(
    to: Anyone,
    /,
    spec: Spec,
    rungs: Sequence[Rung],
    why: str,
    *,
    base: str | Path | None = None,
    inherit: bool = True,
    **overrides: Any,
) -> list[CertificateView]:
    """Lets the job, as it is now, run without these rungs. For admins of its project; the reason stays in the log."""
    body = await _body(to, spec, overrides, base, inherit)
    asked = {**body, "rungs": list(rungs), "why": why}
    found: CertificateList = await to._transport.call("POST", "/v1/preflight/waivers", body=asked)
    return found["certificates"]


async def revoke_certificate(to: Anyone, /, certificate: str, why: str) -> RevokedView:
    path = f"/v1/preflight/certificates/{part(certificate)}/revoke"
    return await to._transport.call("POST", path, body={"why": why})


async def _body(to: Anyone, spec: Spec, overrides: Doc, base: str | Path | None, inherit: bool) -> Doc:
    """The job, and the digest of the snapshot of its code, which is uploaded."""
    body = await body_of(to, spec, overrides, base, inherit)
    code = await code_of(to, body, {})
    return {**body, "code": (code or {}).get("tree", "")}
