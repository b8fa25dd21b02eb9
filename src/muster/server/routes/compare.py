"""Compares runs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from muster.api.compare import ComparedCurve, ComparedCurves, Comparison
from muster.core.errors import Invalid
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import find_run
from muster.server.routes.search import SearchBody, Text, find
from muster.server.typed_routes import needs, typed_router
from muster.track.compare import MOST
from muster.track.metrics.shapes import Curve
from muster.track.replicates import SEEDS

router = typed_router(prefix="/v1/compare", tags=["runs"])

MOST_BUCKETS: Final = 40_000  # of all runs together
Short = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]
Edge = Annotated[float | None, Field(ge=-(2**63), le=2**63, allow_inf_nan=False)]


class CompareBody(BaseModel):
    """Runs by reference, or the runs that a query finds."""

    model_config = ConfigDict(extra="forbid")

    runs: list[Short] = Field(default=[], max_length=MOST)
    query: Text | None = None
    metric: Short | None = Field(default=None, description="such as val_loss or val_loss.min; else one that all have")
    mode: Literal["min", "max"] | None = Field(default=None, description="which is better; else guessed from the name")
    group: Short | None = Field(default=None, description="a field, such as params.lr; else all parameters but `by`")
    by: list[Short] = Field(
        default=list(SEEDS), min_length=1, max_length=50, description="parameters that repeat a run"
    )
    everything: bool = Field(default=False, description="what is the same, too")
    lines: bool = Field(default=False, description="the changed lines of the code")


class CurvesBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    runs: list[Short] = Field(min_length=1, max_length=MOST)
    metric: Short
    buckets: int = Field(default=200, ge=1, le=2000, description=f"a run; all together at most {MOST_BUCKETS:,}")
    start: Edge = Field(default=None, description="the first step")
    stop: Edge = Field(default=None, description="the step where the range ends; itself not in it")


@router.post("", dependencies=HEAVY, openapi_extra=needs("viewer"))
def compare(body: CompareBody, leader: Leading, track: Tracked, caller: Caller) -> Comparison:
    """Compares runs: differences of parameters, configuration, environment, code and data; metrics; significance."""
    ids = [find_run(leader, track, caller, ref).id for ref in body.runs]
    if body.query is not None:
        page = find(leader, track, caller, SearchBody(query=body.query, limit=MOST, columns=[]))
        if page["next"] is not None:
            raise Invalid(f"The query finds more than {MOST} runs.", "Narrow it.")
        ids += [run["id"] for run in page["runs"]]
    return track.compare.compare(
        ids,
        metric=body.metric,
        mode=body.mode,
        group=body.group,
        by=body.by,
        everything=body.everything,
        lines=body.lines,
    )


@router.post("/curves", dependencies=HEAVY, openapi_extra=needs("viewer"))
def curves(body: CurvesBody, leader: Leading, track: Tracked, caller: Caller) -> ComparedCurves:
    """One metric of several runs, to be drawn over one another."""
    ids = list(dict.fromkeys(find_run(leader, track, caller, ref).id for ref in body.runs))
    buckets = min(body.buckets, MOST_BUCKETS // len(ids))
    found = [
        (run, track.metrics.curve(run, body.metric, buckets=buckets, start=body.start, stop=body.stop)) for run in ids
    ]
    return {"name": body.metric, "curves": [_curve(run, curve) for run, curve in found if len(curve.buckets)]}


def _curve(run: str, curve: Curve) -> ComparedCurve:
    found = curve.buckets
    return {
        "run": run,
        "step": found.last_step.tolist(),
        "time": found.last_time.tolist(),
        "low": found.low.tolist(),
        "high": found.high.tolist(),
        "mean": found.mean.tolist(),
    }
