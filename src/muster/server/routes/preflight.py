"""Preflight: what of its ladder a job has passed, certificates, waivers and revocations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from muster.api.preflight import (
    CertificateList,
    CertificateView,
    PreflightPlan,
    RevokedView,
    RungFinding,
    RungPlan,
    RungVerdict,
)
from muster.api.words import RUNGS, Rung
from muster.checks.findings import Report
from muster.checks.rungs import passed
from muster.control.admission import Context
from muster.control.admission.certificate import certificate_for, missing
from muster.control.preflight import Claim, check_claim, issue, judged, revoke, waive
from muster.control.submit import context
from muster.core.entities.certificate import CERTIFICATES, Certificate, certificates_of
from muster.core.errors import Invalid, NotFound
from muster.core.parse import parse_job
from muster.core.preflight import PROVES, changed, parts_of, rung_job
from muster.core.spec import JobSpec, dump_job
from muster.core.state import State
from muster.server.context import HEAVY, Caller, Leading, Tracked, find_job
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1/preflight", tags=["preflight"])

Why = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*\S[^\x00]*$")]
_LISTED = 500


class JobBody(BaseModel):
    """A job file, as text or as data, and the digest of its code."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any] | None = Field(None, description="the job file as data")
    yaml: str | None = Field(None, description="the job file as text", max_length=1 << 20)
    source: str = Field("the job", description="what errors call it", max_length=500)
    base: str | None = Field(None, description="the absolute folder that a relative workdir is in", max_length=4096)
    defaults: dict[str, Any] | None = Field(None, description="fields for what the job leaves out")
    code: str = Field("", pattern=r"^([0-9a-f]{64})?$", description="digest of the snapshot of its code")

    def job(self) -> JobSpec:
        if (self.spec is None) == (self.yaml is None):
            raise Invalid("A request holds either `spec` or `yaml`.", "Send one of the two.")
        given: Any = self.spec if self.spec is not None else self.yaml
        base = Path(self.base) if self.base else None
        return parse_job(given, source=self.source, base=base, defaults=self.defaults)


class PlanBody(JobBody):
    steps: int | None = Field(None, ge=1, le=1_000_000, description="of each rung; the rung's own when null")
    nodes: int | None = Field(None, ge=1, le=10_000, description="of each rung but the canary; one when null")
    seconds: float | None = Field(None, gt=0, le=3600, description="the longest that a rung may run")


class ClaimBody(JobBody):
    rung: Rung
    jobs: list[str] = Field(min_length=1, max_length=20, description="the jobs that ran as the rung")
    told: dict[str, dict[str, str]] = Field(
        default_factory=dict, max_length=20, description="of drills: scenario → verdict and why"
    )


class WaiverBody(JobBody):
    rungs: list[Rung] = Field(min_length=1, max_length=len(RUNGS))
    why: Why


class RevokeBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    why: Why


@router.post("/plan", openapi_extra=needs("member"))
def plan(body: PlanBody, leader: Leading, caller: Caller) -> PreflightPlan:
    """Each rung for this job: whether a rule asks for it, the certificate that covers it, and what has changed."""
    spec = body.job()
    caller.need(leader.store.state(), spec.project, "member")
    now, site = leader.clock.now(), leader.site(caller, trusted=caller.superuser)
    sizes = {"steps": body.steps, "nodes": body.nodes, "seconds": body.seconds}

    def look(state: State) -> PreflightPlan:
        asked = context(leader.store, state, caller.user, leader.local, now=now, **site)
        asked = replace(asked, code=body.code)
        rungs = [_planned(spec, rung, asked, sizes) for rung in RUNGS]
        return {"name": spec.name, "project": spec.project, "code": body.code, "rungs": rungs}

    return leader.look(look)


@router.get("/certificates", openapi_extra=needs("anyone"))
def certificates(
    leader: Leading,
    caller: Caller,
    project: Annotated[str | None, Query(max_length=63)] = None,
    rung: Rung | None = None,
) -> CertificateList:
    """Of your projects, the newest first."""

    def look(state: State) -> CertificateList:
        found = [
            one
            for one in CERTIFICATES.all(state).values()
            if caller.role(state, one.project) and project in (None, one.project) and rung in (None, one.rung)
        ]
        newest = sorted(found, key=lambda one: (one.at, one.id), reverse=True)[:_LISTED]
        return {"certificates": [_view(one) for one in newest]}

    return leader.look(look)


@router.post("/certificates", openapi_extra=needs("member"), dependencies=HEAVY)
def certify(body: ClaimBody, leader: Leading, track: Tracked, caller: Caller) -> RungVerdict:
    """Judges the jobs of a rung by their record. If all is in order, the job gets a certificate of the rung."""
    spec = body.job()
    caller.need(leader.store.state(), spec.project, "member")
    claim = Claim(spec, body.rung, [find_job(leader, caller, ref, "member") for ref in body.jobs], body.told)
    code, now = check_claim(claim, body.code), leader.clock.now()
    report = judged(leader.store, track, claim, now)
    if passed(report):
        leader.propose(issue(leader.store, claim, code, report, caller.user, now))
    found = certificate_for(body.rung, spec, code, leader.store.state()) if passed(report) else None
    return _verdict(body.rung, report, found)


@router.post("/waivers", openapi_extra=needs("admin"))
def waive_rungs(body: WaiverBody, leader: Leading, caller: Caller) -> CertificateList:
    """Lets a job, as it is now, run without rungs that a rule asks for. The reason stays in the log."""
    spec = body.job()
    caller.need(leader.store.state(), spec.project, "admin")
    if not body.code:
        hint = "Run the command in the job's `workdir`; MUSTER_SNAPSHOT=0 must not be set."
        raise Invalid("A waiver is for one state of the code, and no snapshot of it was taken.", hint)
    leader.propose(waive(spec, list(dict.fromkeys(body.rungs)), body.code, body.why, caller.user, leader.clock.now()))
    state = leader.store.state()
    found = [certificate_for(rung, spec, body.code, state) for rung in dict.fromkeys(body.rungs)]
    return {"certificates": [_view(one) for one in found if one is not None]}


@router.post("/certificates/{certificate}/revoke", openapi_extra=needs("admin"))
def revoke_certificate(certificate: str, body: RevokeBody, leader: Leading, caller: Caller) -> RevokedView:
    """The certificate does not count any more."""
    state = leader.store.state()
    known = CERTIFICATES.all(state).get(certificate)
    if known is None or caller.role(state, known.project) is None:
        raise NotFound(f"There is no certificate {certificate!r} that you can see.", "See `muster preflight ls`.")
    caller.need(state, known.project, "admin")
    leader.propose(revoke(certificate, body.why, caller.user, leader.clock.now()))
    return {"id": certificate}


def _planned(spec: JobSpec, rung: Rung, asked: Context, sizes: dict[str, Any]) -> RungPlan:
    state, parts = asked.state, parts_of(spec, asked.code)
    last = next((one for one in certificates_of(state, spec.project, rung) if one.job == spec.name), None)
    covering = certificate_for(rung, spec, asked.code, state)
    return {
        "rung": rung, "proves": PROVES[rung], "required": rung in missing(spec, asked, "refuse", held=False),
        "advised": rung in missing(spec, asked, "warn", held=False),
        "certificate": _view(covering) if covering is not None else None,
        "last": last.id if last is not None else None,
        "changed": list(changed(rung, last.parts, parts)) if last is not None else [],
        "job": dump_job(rung_job(spec, rung, **sizes)),
    }  # fmt: skip


def _verdict(rung: Rung, report: Report, found: Certificate | None) -> RungVerdict:
    findings: list[RungFinding] = [
        {"name": one.name, "proves": one.proves, "status": one.status, "detail": one.finding.detail,
         "hint": one.finding.hint}
        for one in report.results
    ]  # fmt: skip
    view = _view(found) if found is not None else None
    return {
        "rung": rung, "passed": passed(report), "findings": findings, "certificate": view,
        "full_run": report.about.get("full_run"),
    }  # fmt: skip


def _view(one: Certificate) -> CertificateView:
    view: CertificateView = {
        "id": one.id, "project": one.project, "rung": one.rung, "job": one.job, "at": one.at, "by": one.by,
        "jobs": list(one.jobs), "waived": one.waived, "why": one.why, "parts": dict(one.parts),
    }  # fmt: skip
    return {**view, "full_run": full} if (full := one.facts.get("full_run")) else view
