"""The diagnosis of a run: why it is slow, idle, stuck or not learning, by what is recorded of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from muster.api.diagnosis import CauseView, DiagnosisView
from muster.api.words import Phase
from muster.control.diagnosis import Gatherer
from muster.monitor.diagnose import diagnose, looked_at, missing, outcome, verdict
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import RunRef, find_run
from muster.server.typed_routes import needs, typed_router
from muster.track.goodput_rows import GoodputFilter

router = typed_router(prefix="/v1/runs/{ref}", tags=["runs"])


@router.get("/diagnosis", dependencies=HEAVY, openapi_extra=needs("viewer"))
def diagnosis(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> DiagnosisView:
    """Causes that the times, curves, figures and stacks of the run's newest attempt show, with their numbers.

    Stacks are those that are kept: `muster diagnose` takes some over a minute before it asks.
    """
    run = find_run(leader, track, caller, ref)
    job = leader.store.job(run.id)
    leader.goodput.reach()  # so that an attempt that has just ended is counted
    held = leader.ledger.read(GoodputFilter(run=run.id), [run.id] if job is not None and job.active else [])
    evidence = Gatherer(leader.store, track, run.id, job, held).evidence()
    findings = diagnose(evidence)
    return {
        "id": run.id,
        "phase": cast(Phase, run.phase if job is None else job.phase),
        "attempt": run.attempts or None,
        "outcome": outcome(evidence, findings),
        "verdict": verdict(evidence, findings),
        "findings": [cast(CauseView, {**asdict(one)}) for one in findings],
        "looked_at": looked_at(evidence),
        "missing": missing(evidence),
        "looks": evidence.samples.looks,
    }
