"""What is needed to reproduce a run: its job file, its code, and its recorded environment."""

from __future__ import annotations

from muster.api.runs import Reproduction
from muster.core.errors import Invalid
from muster.core.spec import dump_job
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import RunRef, find_run
from muster.server.typed_routes import needs, typed_router
from muster.track.reproduction import known

router = typed_router(prefix="/v1/runs/{ref}", tags=["content"])


@router.get("/reproduction", dependencies=HEAVY, openapi_extra=needs("viewer"))
def reproduction(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> Reproduction:
    """The spec, the snapshot's files, and the environment, seeds and data of the run."""
    run = find_run(leader, track, caller, ref)
    job = leader.store.job(run.id)
    if job is None:
        raise Invalid(
            f"{run.id} was no job of this server, so there is no job file to submit again.",
            f"See what it recorded: `muster runs show {run.id}`.",
        )
    manifest = track.snapshots.of_run(run.id)
    spec = job.spec_again().model_copy(update={"needs": {}})  # those that it needed are over
    return {
        **known(track.db, run),
        "spec": spec.model_dump(mode="json"),
        "yaml": dump_job(spec),
        "files": dict(manifest.files) if manifest is not None else None,
    }
