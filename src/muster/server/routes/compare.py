"""Compares runs."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from muster.core.errors import Invalid
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import find_run
from muster.server.routes.search import SearchBody, Text, find
from muster.track.compare import MOST
from muster.track.replicates import SEEDS

router = APIRouter(prefix="/v1/compare", tags=["runs"])

_JSON: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"application/json": {}}}}
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


@router.post("", response_class=Response, responses=_JSON, dependencies=HEAVY)
def compare(body: CompareBody, leader: Leading, track: Tracked, caller: Caller) -> Response:
    """Compares runs: differences of parameters, configuration, environment, code and data; metrics; significance."""
    ids = [find_run(leader, track, caller, ref).id for ref in body.runs]
    if body.query is not None:
        page = find(leader, track, caller, SearchBody(query=body.query, limit=MOST, columns=[]))
        if page["next"] is not None:
            raise Invalid(f"The query finds more than {MOST} runs.", "Narrow it.")
        ids += [run["id"] for run in page["runs"]]
    view = track.compare.compare(
        ids,
        metric=body.metric,
        mode=body.mode,
        group=body.group,
        by=body.by,
        everything=body.everything,
        lines=body.lines,
    )
    return Response(to_json(view), media_type="application/json")
