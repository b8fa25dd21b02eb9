"""The page of a run: everything that a person looks at first, in one answer."""

from __future__ import annotations

from typing import Final

from muster.api.runs import RunPage
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import RunRef, find_run
from muster.server.routes.goodput import goodput_of
from muster.server.routes.job_details import summary_of
from muster.server.routes.logbook import note_view
from muster.server.run_views import attempt_views, change_views, checkpoint_views, run_view
from muster.server.typed_routes import needs, typed_router
from muster.track.artifacts import Artifact

router = typed_router(prefix="/v1/runs/{ref}", tags=["runs"])

_NOTES: Final = 1000  # the newest; the others are in /v1/runs/RUN/notes


@router.get("/page", dependencies=HEAVY, openapi_extra=needs("viewer"))
def run_page(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> RunPage:
    """The run with its attempts, checkpoints, changes, files and newest notes; for a job, the cost of its restarts."""
    run = find_run(leader, track, caller, ref)
    job = leader.store.job(run.id)
    files = [one for one in track.artifacts.list(run.id, "") if isinstance(one, Artifact)]
    notes = track.logbook.entries(run=run.id, limit=_NOTES, last=True)
    return {
        "run": run_view(leader, track, run),
        "attempts": attempt_views(track, run.id),
        "checkpoints": checkpoint_views(track, run.id),
        "changes": change_views(track, run.id),
        "artifacts": [one.to_dict() for one in files],
        "notes": [note_view(entry) for entry in notes],
        "summary": summary_of(leader, track, job) if job is not None else None,
        "goodput": goodput_of(leader, run.id) if job is not None else None,
    }
