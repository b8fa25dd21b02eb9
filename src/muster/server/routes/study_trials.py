"""Trials that somebody outside runs: ask for one, report its values, tell how it ended."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from muster.api.studies import AskedTrial, TrialWord
from muster.control.studies.round import Outside
from muster.control.studies.steps import Note
from muster.control.studies.studies import Studies
from muster.core.entities.study import Study, Trial, TrialPromoted, TrialStarted, trials_of
from muster.core.errors import Invalid, NotFound, Unavailable
from muster.server.auth import Identity
from muster.server.context import Caller, Leading, Ref
from muster.server.leader import Leader
from muster.server.routes.studies import find
from muster.server.typed_routes import needs, typed_router
from muster.tune.observe import Curves
from muster.tune.spec import StudySpec

router = typed_router(prefix="/v1/studies/{ref}", tags=["studies"])

# Values may be "NaN", "Infinity" and "-Infinity", which are no numbers of JSON.
Points = dict[
    Annotated[str, Field(min_length=1, max_length=250, pattern=r"^[^\x00]*$")],
    Annotated[list[tuple[Annotated[int, Field(ge=-(2**53), le=2**53)], float]], Field(max_length=100_000)],
]


class TrialAskBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    asker: str = Field(
        "", max_length=100, description="who asks: as long as a trial that it asked for is not over, it gets that again"
    )


class TrialReportBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int = Field(ge=0, le=10**7, description="of the trial")
    points: Points = Field(max_length=100, description="metric → [step, value], all of the trial so far")


class TrialTellBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int = Field(ge=0, le=10**7, description="of the trial")
    outcome: Literal["complete", "failed", "infeasible", "lost"] = "complete"
    values: list[float] | None = Field(
        None, max_length=20, description="of the objectives, in their order; null: the last of its points"
    )
    points: Points = Field({}, max_length=100)


@router.post("/ask", openapi_extra=needs("member"))
def ask(ref: Ref, body: TrialAskBody, leader: Leading, caller: Caller) -> AskedTrial:
    """The parameters of a new trial, or a trial that was paused and goes on."""
    study, studies = _outside(leader, caller, ref)
    try:
        made = studies.hear(study.id, Outside(caller.user, places=1, asker=body.asker))
    except Invalid:
        if leader.store.state().studies[study.id].ended_at is None:
            raise
        return {"number": None, "params": {}, "resume": False, "seed": None, "why": "the study is over", "over": True}
    begun = [one.data.number for one in made.steps if isinstance(one, Note) and isinstance(one.data, _BEGUN)]
    trial = made.heard[begun[0]] if begun else made.asked
    if trial is None:
        over = made.over
        why = made.waits or ("as many run as `parallel` allows" if not over else "its limits allow no other trial")
        return {"number": None, "params": {}, "resume": False, "seed": None, "why": why, "over": over}
    return {
        "number": trial.number,
        "params": dict(trial.params),
        "resume": trial.starts > 1,
        "seed": trial.seed,
        "why": trial.note,
        "over": False,
    }


@router.post("/report", openapi_extra=needs("member"))
def report(ref: Ref, body: TrialReportBody, leader: Leading, caller: Caller) -> TrialWord:
    """Tells what a trial has shown so far. The answer says whether it should go on."""
    study, studies = _outside(leader, caller, ref)
    trial = _trial(leader, study, body.number)
    if trial.phase == "running":
        made = studies.hear(study.id, Outside(caller.user, points={trial.number: _curves(body.points)}))
        trial = made.heard[trial.number]
    if trial.phase == "running":
        return {"do": "go", "note": ""}
    return {"do": "pause" if trial.phase in ("paused", "leaving") else "stop", "note": trial.note}


@router.post("/tell", openapi_extra=needs("member"))
def tell(ref: Ref, body: TrialTellBody, leader: Leading, caller: Caller) -> TrialWord:
    """Tells how a trial has ended. Telling it again changes nothing."""
    study, studies = _outside(leader, caller, ref)
    trial, objectives = _trial(leader, study, body.number), len(StudySpec.of(study.doc).objectives)
    if body.values is not None and len(body.values) != objectives:
        raise Invalid(f"{len(body.values)} values were told.", f"The study has {objectives} objectives: tell as many.")
    if trial.phase != "ended":
        values = tuple(body.values) if body.values is not None else None
        told = {trial.number: (body.outcome, values)}
        studies.hear(study.id, Outside(caller.user, points={trial.number: _curves(body.points)}, told=told))
    return {"do": "stop", "note": ""}


_BEGUN: Final = (TrialStarted, TrialPromoted)


def _outside(leader: Leader, caller: Identity, ref: str) -> tuple[Study, Studies]:
    study = find(leader, caller, ref, "member")
    if StudySpec.of(study.doc).job is not None:
        raise Invalid(
            f"The trials of study {study.id} are jobs, which Muster starts itself.",
            "Leave `job` out of the study file to run trials elsewhere.",
        )
    if leader.studies is None:
        raise Unavailable("This server keeps no record, and so no studies.", "Use SQLite or PostgreSQL.")
    return study, leader.studies


def _trial(leader: Leader, study: Study, number: int) -> Trial:
    found = trials_of(leader.store.state(), study.id).get(number)
    if found is None:
        raise NotFound(f"Study {study.id} has no trial {number}.", f"See `muster tune trials {study.id}`.")
    return found


def _curves(points: Points) -> Curves:
    """Of two values for one step, the last one counts."""
    return {name: sorted(dict(some).items()) for name, some in points.items()}
