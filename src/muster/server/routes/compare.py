"""Compares runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from muster.api.compare import Comparison
from muster.core.errors import Invalid
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import find_run
from muster.server.routes.search import SearchBody, Text, find
from muster.server.typed_routes import needs, typed_router
from muster.track.compare import MOST
from muster.track.replicates import SEEDS

router = typed_router(prefix="/v1/compare", tags=["runs"])

Short = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


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
