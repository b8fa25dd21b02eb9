"""Calls for jobs: submitting, listing, stopping and explaining them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muster.client.answers import error_body
from muster.client.artifact_calls import capture
from muster.client.connection import Anyone, Connection, Doc, J, job_path, part
from muster.client.spec import Spec, batch_item, interpreter, submission, whose, workdir_of
from muster.client.surroundings import shell_envs
from muster.client.watch_calls import changes
from muster.core.errors import Conflict, Invalid, MusterError

if TYPE_CHECKING:
    from muster.api.jobs import (
        AttemptView,
        BatchAccepted,
        DryRun,
        JobMetric,
        JobSpecView,
        JobSummary,
        MetricNames,
        WhyView,
    )
    from muster.api.why import JobForecast

BATCH: Final = 2000  # jobs in one request of `submit_many`
PAGE: Final = 500  # jobs in one response
SAVE_PATIENCE: Final = 300.0  # seconds for which `save` waits for the checkpoint
STOP_PATIENCE: Final = 600.0  # seconds for which `resume` waits for a job that is stopping


async def submit(
    to: Connection[J, Any, Any],
    /,
    spec: Spec,
    key: str | None = None,
    *,
    base: str | Path | None = None,
    snapshot: bool | Doc = True,
    inherit: bool = True,
    **overrides: Any,
) -> J:
    """Submits a job: a mapping, a job file's path or text, or a JobSpec; `overrides` replace its top-level fields.

    Submitting again with the same `key` returns the same job. A relative `workdir` starts from `base`; the default
    is the job file's folder, or the current one. If the server is on this machine, a job without a `workdir` runs in
    that folder, with this program's PATH and Python environment, unless `inherit` is False. The code in it is stored
    with the run, so that it can be reproduced, unless `snapshot` is False or MUSTER_SNAPSHOT is 0. A mapping as
    `snapshot` is one that the server already has.
    """
    body = await body_of(to, spec, overrides, base, inherit)
    if code := snapshot if isinstance(snapshot, dict) else snapshot and await code_of(to, body, {}):
        body["code"] = code
    # Our own key makes it safe to send the request again when the response was lost.
    key = key or uuid.uuid4().hex
    return to._job(await to._transport.call("POST", "/v1/jobs", body=body, key=key, more=interpreter()))


async def check(
    to: Anyone, /, spec: Spec, *, base: str | Path | None = None, inherit: bool = True, **overrides: Any
) -> DryRun:
    """Does everything that `submit` does except submitting; raises what it would raise.

    Returns where and when the job would start ("starts_now", "nodes", "forecast" with its P50 and P90), which jobs
    it would preempt ("preempts"), why it would wait ("reasons") and what would start sooner ("sooner").
    """
    body = await body_of(to, spec, overrides, base, inherit)
    return await to._transport.call("POST", "/v1/jobs", body={**body, "dry_run": True}, more=interpreter())


async def submit_many(
    to: Anyone,
    /,
    specs: Iterable[Spec],
    keys: Iterable[str] | None = None,
    *,
    snapshot: bool = True,
    inherit: bool = True,
    together: bool = False,
) -> list[BatchAccepted | MusterError]:
    """For each job {"id", "number"}, or the error for which it was refused, in the order given. See `submit`.

    With `together` all are accepted or none, in one request, and their `needs` may name each other.
    """
    jobs, inherit = list(specs), inherit and to.target.local
    names = list(keys) if keys is not None else [uuid.uuid4().hex for _ in jobs]
    items = [batch_item(spec, name, inherit) for spec, name in zip(jobs, names, strict=True)]
    folders: dict[Path, Doc | None] = {}  # each is captured once
    for item in items if snapshot else ():
        if code := await code_of(to, item, folders):
            item["code"] = code
    defaults = {"defaults": {"envs": envs}} if inherit and (envs := shell_envs()) else {}
    results: list[BatchAccepted | MusterError] = []
    size = max(len(items), 1) if together else BATCH
    for start in range(0, len(items), size):
        some = items[start : start + size]
        # Every job has its key, so the whole request may be sent again when the response was lost.
        body, key = {"jobs": some, **defaults, **({"together": True} if together else {})}, some[0]["key"]
        answer = await to._transport.call("POST", "/v1/jobs/batch", body=body, key=key, more=interpreter())
        results += [error_body(one["error"]) if "error" in one else one for one in answer["jobs"]]
    return results


async def jobs(
    to: Connection[J, Any, Any],
    /,
    *,
    project: str | None = None,
    phase: Iterable[str] = (),
    queue: str | None = None,
    user: str | None = None,
    name: str | None = None,
    parent: str | int | None = None,
    tasks: bool = True,
    limit: int | None = 100,
) -> list[J]:
    """The newest jobs first; `limit=None` for all. `parent`: those of this job, by its id, number or name.

    Without `tasks`, arrays are listed and their tasks are not.
    """
    params: Doc = {"project": project, "phase": list(phase) or None, "queue": queue, "user": user, "name": name}
    params["parent"] = parent
    params["tasks"] = None if tasks else False
    found: list[J] = []
    before = None
    while limit is None or len(found) < limit:
        page = PAGE if limit is None else min(PAGE, limit - len(found))
        answer = await to._get("/v1/jobs", **params, before=before, limit=page)
        found += [to._job(view) for view in answer["jobs"]]
        before = answer["next"]
        if before is None:
            break
    return found


async def job(to: Connection[J, Any, Any], /, ref: str | int) -> J:
    """By id (`gpt-small-17`), by number (`17`), or by name (`gpt-small`).

    A name means its one job that has not ended, else its newest; Invalid lists them if several have not ended.
    """
    return to._job(await to._get(job_path(ref)))


async def line(to: Connection[J, Any, Any], /, queue: str, limit: int | None = None) -> list[J]:
    """The queue's waiting jobs, in the order in which they would start."""
    return [to._job(view) for view in (await to._get(f"/v1/queues/{part(queue)}/line", limit=limit))["jobs"]]


async def spec(to: Anyone, /, ref: str | int) -> JobSpecView:
    """{"spec": canonical, "yaml": text that can be submitted again}."""
    return await to._get(job_path(ref, "spec"))


async def stop(to: Connection[J, Any, Any], /, ref: str | int, grace: float | None = None, force: bool = False) -> J:
    """Asks the job to save and exit within `grace` seconds (default: as in its job file); `force` kills it."""
    return to._job(await to._send("POST", job_path(ref, "stop"), {"grace": grace, "force": force}))


async def save(to: Connection[J, Any, Any], /, ref: str | int, timeout: float = SAVE_PATIENCE) -> J:
    """Asks a running job to save now and go on, and returns it with the checkpoint that follows.

    Waits for that at most `timeout` seconds, with 0 not at all. Raises Conflict if the job does not run, if its program
    has never called `runtime.should_save`, and if there is no checkpoint in time or before the job ends.
    """
    order = await to._send("POST", job_path(ref, "save"))
    until, pause = time.monotonic() + timeout, 0.1
    while True:
        view = await to._get(job_path(order["job"]))
        mark = view["checkpoint"]
        if not timeout or (mark is not None and mark["time"] >= order["time"] and mark["attempt"] > 0):
            return to._job(view)
        if view["phase"] not in ("running", "stopping") or view["attempt"] != order["attempt"]:
            raise Conflict(f"{view['id']} did not save before its attempt ended.", f"See `muster why {view['id']}`.")
        if time.monotonic() >= until:
            said = f"{view['id']} was asked to save and has not within {timeout:g} s."
            raise Conflict(said, f"It may yet: `muster status {view['id']}` names its last checkpoint.")
        await to._transport.sleep(min(pause, max(0.0, until - time.monotonic())))
        pause = min(1.0, 1.5 * pause)


async def resume(
    to: Connection[J, Any, Any],
    /,
    ref: str | int,
    timeout: float = STOP_PATIENCE,
    on_wait: Callable[[J], None] | None = None,
    *,
    checkpoint: int | None = None,
    from_scratch: bool = False,
) -> J:
    """Queues a stopped or failed job again: the same run continues from its last checkpoint.

    `checkpoint`: the step of another checkpoint to continue from. `from_scratch`: begins again, and the checkpoints so
    far are not used. A job that is still stopping is waited for, at most `timeout` seconds; `on_wait` is called first.
    """
    view = await to._get(job_path(ref))
    if view["phase"] == "stopping":
        if on_wait is not None:
            on_wait(to._job(view))
        await _stopped(to, view["id"], timeout)
    body = {"checkpoint": checkpoint, "from_scratch": from_scratch} if checkpoint is not None or from_scratch else {}
    return to._job(await to._send("POST", job_path(view["id"], "resume"), body))


async def set_priority(to: Connection[J, Any, Any], /, ref: str | int, priority: str | int) -> J:
    """Gives a job that is not over another priority: `low`, `normal`, `high`, `urgent`, or 0 to 100; higher goes first.

    It may always be lowered, and raised within the range of its queue.
    """
    return to._job(await to._send("POST", job_path(ref, "priority"), {"priority": priority}))


async def why(to: Anyone, /, ref: str | int, forecast: bool = True) -> WhyView:
    """Why the job is in its phase: "reason", "all" reasons, "place" in the queue, "ahead", "unblock", "timeline".

    "forecast" says when it will start.
    """
    return await to._get(job_path(ref, "why"), forecast=forecast)


async def forecast(to: Anyone, /, ref: str | int, compare: bool = True) -> JobForecast:
    """When a queued job will start: {"id", "phase", "started_at", "forecast", "estimate"}; forecast None: it is not
    queued. With `compare`, "offers" has the forecast for each pool, which takes the server longer."""
    return await to._get(job_path(ref, "forecast"), compare=compare)


async def attempts(to: Anyone, /, ref: str | int) -> list[AttemptView]:
    return (await to._get(job_path(ref, "attempts")))["attempts"]


async def summary(to: Anyone, /, ref: str | int) -> JobSummary:
    return await to._get(job_path(ref, "summary"))


async def metrics(
    to: Anyone, /, ref: str | int, name: str | None = None, points: int | None = None, rank: int | None = None
) -> MetricNames | JobMetric:
    """{"names"}, or one metric's curve with at most `points` points per attempt."""
    if name is None:
        return await to._get(job_path(ref, "metrics"))
    return await to._get(job_path(ref, "metrics", name), points=points, rank=rank)


async def body_of(to: Anyone, spec: Spec, overrides: Doc, base: str | Path | None, inherit: bool) -> Doc:
    """The body of a submission."""
    folder = Path(base).absolute() if base else None
    return await to._transport.work(submission, spec, overrides, folder, inherit and to.target.local)


async def _stopped(to: Anyone, job_id: str, timeout: float) -> None:
    """Returns when the job is no longer stopping. Raises Invalid after `timeout` seconds."""
    try:
        async with aclosing(changes(to, job_id, deadline=time.monotonic() + timeout)) as views:
            async for job in views:
                if job.phase != "stopping":
                    return
    except TimeoutError:
        hint = f"Resume it when it has stopped, or kill it with `muster stop --force {job_id}`."
        raise Invalid(f"Job {job_id} is still stopping after {timeout:g} s.", hint) from None


async def code_of(to: Anyone, body: Doc, known: dict[Path, Doc | None]) -> Doc | None:
    """The description of a submission's code; None when there is none, or none is wanted."""
    folder = workdir_of(body) if os.environ.get("MUSTER_SNAPSHOT", "1") != "0" else None
    if folder is not None and folder not in known:
        known[folder] = await capture(to, folder, *whose(body))
    return known[folder] if folder is not None else None
