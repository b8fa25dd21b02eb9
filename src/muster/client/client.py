"""The client class: jobs, from submission to their output. `admin` has the administrative calls."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from muster.client.admin import Admin, Doc, part
from muster.client.http import Transport, error_body
from muster.client.job import Job
from muster.client.record import RecordCalls
from muster.client.runs import RunCalls
from muster.client.spec import Spec, batch_item, interpreter, submission, workdir_of
from muster.client.stream import RETRY_FOR, Lines, Link, LogLine, Message, follow
from muster.client.target import Target, default_home
from muster.core.errors import MusterError

BATCH: Final = 2000  # jobs in one request of `submit_many`
PAGE: Final = 500  # jobs or events in one response


class Client(Admin, RecordCalls, RunCalls):
    """A client of a Muster server, or of several servers of one cluster.

    The address comes from the arguments, else from MUSTER_URL and MUSTER_TOKEN, else from the folder `home`
    (MUSTER_HOME, or ~/.muster) of a server on this machine. Nothing is sent before the first call.

    Every call may raise a `muster.core.errors.MusterError`. `timeout` is in seconds, for one response.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        home: str | Path | None = None,
        timeout: float = 30,
        *,
        retry_for: float = RETRY_FOR,
        on_link: Link | None = None,
    ) -> None:
        """A stream waits `retry_for` seconds for a lost server; `on_link` is called on loss and on return."""
        folder = Path(home).expanduser().absolute() if home else default_home()
        self._transport = Transport(url, token, folder, timeout)
        self._retry_for = retry_for
        self._on_link = on_link

    # --- jobs -------------------------------------------------------------------------------------------------------

    def submit(
        self,
        spec: Spec,
        key: str | None = None,
        *,
        base: str | Path | None = None,
        snapshot: bool | Doc = True,
        **overrides: Any,
    ) -> Job:
        """Submits a job: a mapping, a job file's path or text, or a JobSpec; `overrides` replace its top-level fields.

        Submitting again with the same `key` returns the same job. A relative `workdir` starts from `base`; the default
        is the job file's folder, or the current one. The code in it is stored with the run, so that it can be
        reproduced, unless `snapshot` is False or MUSTER_SNAPSHOT is 0. A mapping as `snapshot` is one that the server
        already has.
        """
        body = submission(spec, overrides, Path(base).absolute() if base else None)
        if code := snapshot if isinstance(snapshot, dict) else snapshot and self._code_of(body, {}):
            body["code"] = code
        # Our own key makes it safe to send the request again when the response was lost.
        key = key or uuid.uuid4().hex
        return self._job(self._transport.call("POST", "/v1/jobs", body=body, key=key, more=interpreter()))

    def check(self, spec: Spec, *, base: str | Path | None = None, **overrides: Any) -> Doc:
        """Does everything that `submit` does except submitting; raises what it would raise.

        Returns where and when the job would start ("starts_now", "nodes", "forecast" with its P50 and P90), which jobs
        it would preempt ("preempts"), why it would wait ("reasons") and what would start sooner ("sooner").
        """
        body = submission(spec, overrides, Path(base).absolute() if base else None)
        answer: Doc = self._transport.call("POST", "/v1/jobs", body={**body, "dry_run": True}, more=interpreter())
        return answer

    def submit_many(
        self, specs: Iterable[Spec], keys: Iterable[str] | None = None, *, snapshot: bool = True
    ) -> list[Doc | MusterError]:
        """For each job {"id", "number"}, or the error for which it was refused, in the order given."""
        jobs = list(specs)
        names = list(keys) if keys is not None else [uuid.uuid4().hex for _ in jobs]
        items = [batch_item(spec, name) for spec, name in zip(jobs, names, strict=True)]
        folders: dict[Path, Doc | None] = {}  # each is captured once
        for item in items if snapshot else ():
            if code := self._code_of(item, folders):
                item["code"] = code
        results: list[Doc | MusterError] = []
        for start in range(0, len(items), BATCH):
            part = items[start : start + BATCH]
            # Every job has its key, so the whole request may be sent again when the response was lost.
            body, key = {"jobs": part}, part[0]["key"]
            answer = self._transport.call("POST", "/v1/jobs/batch", body=body, key=key, more=interpreter())
            results += [error_body(one["error"]) if "error" in one else one for one in answer["jobs"]]
        return results

    def jobs(
        self,
        *,
        project: str | None = None,
        phase: Iterable[str] = (),
        queue: str | None = None,
        user: str | None = None,
        name: str | None = None,
        parent: str | int | None = None,
        limit: int | None = 100,
    ) -> list[Job]:
        """The newest jobs first; `limit=None` for all. `parent`: those of this job, by its id, number or name."""
        params: Doc = {"project": project, "phase": list(phase) or None, "queue": queue, "user": user, "name": name}
        params["parent"] = parent
        found: list[Job] = []
        before = None
        while limit is None or len(found) < limit:
            page = PAGE if limit is None else min(PAGE, limit - len(found))
            answer = self._get("/v1/jobs", **params, before=before, limit=page)
            found += [self._job(view) for view in answer["jobs"]]
            before = answer["next"]
            if before is None:
                break
        return found

    def job(self, ref: str | int) -> Job:
        """By id (`gpt-small-17`), by number (`17`), or the newest of a name (`gpt-small`)."""
        return self._job(self._get(_job_path(ref)))

    def spec(self, ref: str | int) -> Doc:
        """{"spec": canonical, "yaml": text that can be submitted again}."""
        return self._get(_job_path(ref, "spec"))

    def stop(self, ref: str | int, grace: float | None = None, force: bool = False) -> Job:
        """Asks the job to save and exit within `grace` seconds (default: as in its job file); `force` kills it."""
        return self._job(self._transport.call("POST", _job_path(ref, "stop"), body={"grace": grace, "force": force}))

    def resume(self, ref: str | int) -> Job:
        """Queues a stopped or failed job again: the same run continues from its last checkpoint."""
        return self._job(self._transport.call("POST", _job_path(ref, "resume"), body={}))

    def why(self, ref: str | int, forecast: bool = True) -> Doc:
        """Why the job is in its phase: "reason", "all" reasons, "place" in the queue, "ahead", "unblock", "timeline".

        "forecast" says when it will start.
        """
        return self._get(_job_path(ref, "why"), forecast=forecast)

    def forecast(self, ref: str | int) -> Doc:
        """When a queued job will start: {"id", "phase", "started_at", "forecast"}; forecast None: it is not queued."""
        return self._get(_job_path(ref, "forecast"))

    def attempts(self, ref: str | int) -> list[Doc]:
        return list(self._get(_job_path(ref, "attempts"))["attempts"])

    def summary(self, ref: str | int) -> Doc:
        return self._get(_job_path(ref, "summary"))

    def metrics(
        self, ref: str | int, name: str | None = None, points: int | None = None, rank: int | None = None
    ) -> Doc:
        """{"names"}, or one metric's curve with at most `points` points per attempt."""
        if name is None:
            return self._get(_job_path(ref, "metrics"))
        return self._get(_job_path(ref, "metrics", name), points=points, rank=rank)

    # --- watching ---------------------------------------------------------------------------------------------------

    def wait(self, ref: str | int, timeout: float | None = None, on_change: Callable[[Job], None] | None = None) -> Job:
        """The job once it has ended. Raises TimeoutError after `timeout` seconds; continues over server restarts."""
        deadline = None if timeout is None else time.monotonic() + timeout
        last = self.job(ref)
        try:
            for job in self.changes(last.id, deadline=deadline):
                last = job
                if on_change is not None:
                    on_change(job)
        except TimeoutError:
            raise TimeoutError(f"{last.id} is still {last.phase} after {timeout:g} s.") from None
        return last

    def changes(self, ref: str | int, *, deadline: float | None = None) -> Iterator[Job]:
        """The job now and at every change of phase, reason or progress, until it has ended."""
        for message in self._follow(_job_path(ref, "stream"), {}, deadline):
            yield self._job(message.data)

    def watch(
        self, ref: str | int, rank: int | None = None, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[LogLine | Job]:
        """Every line of output, and the job at every change of phase or attempt; the ended job is the last."""
        lines = Lines()
        params = {"rank": rank, "attempt": attempt, "tail": tail}
        for message in self._follow(_job_path(ref, "logs", "stream"), params, None):
            if message.event == "log":
                yield from lines.take(message.data)
                continue
            job = self._job(message.data)
            if message.event == "end":
                yield from lines.close()
            elif job.final:
                continue  # the `end` message that follows says the same
            yield job

    def logs(
        self,
        ref: str | int,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """Lines of output, of every attempt in order unless one is given; with `follow`, until the job has ended."""
        if follow:
            yield from (item for item in self.watch(ref, rank, attempt, tail) if isinstance(item, LogLine))
            return
        lines, after = Lines(), None
        while True:
            page = self._get(_job_path(ref, "logs"), rank=rank, attempt=attempt, tail=tail, after=after)
            for chunk in page["chunks"]:
                yield from lines.take(chunk)
            after, tail = page["next"], None
            if page["end"] or not page["chunks"]:
                break
        yield from lines.close()

    def events(
        self,
        *,
        project: str | None = None,
        job: str | int | None = None,
        actor: str | None = None,
        kind: str | None = None,
        after: int | None = None,
        last: int | None = None,
        follow: bool = False,
    ) -> Iterator[Doc]:
        """The audit log in order: all, what is after a `seq`, or the `last` ones; `follow` continues with new ones."""
        params: Doc = {"project": project, "job": job, "actor": actor, "kind": kind}
        if last is not None:
            page = self._get("/v1/events", **params, last=True, limit=last)
            yield from page["events"]
            after = page["next"]
        while last is None:
            page = self._get("/v1/events", **params, after=after, limit=PAGE)
            yield from page["events"]
            after = page["next"]
            if len(page["events"]) < PAGE:
                break
        if follow:
            yield from (message.data for message in self._follow("/v1/events/stream", {**params, "after": after}, None))

    # --- the server -------------------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """Where requests currently go. Raises Unavailable when no server is known."""
        return self._transport.target()

    def ready(self) -> Doc:
        """The response of /readyz: {"ready", "leader", "holder", "urls"}."""
        return self._transport.ready()

    def clock(self) -> float:
        """The server's time, in whole seconds since the epoch."""
        return self._transport.clock()

    def health(self) -> Doc:
        """How far the server's followers of the log are and, for an administrator, what was set aside."""
        return self._get("/v1/health")

    def server(self) -> Doc:
        return self._get("/v1/server")

    def whoami(self) -> Doc:
        return self._get("/v1/whoami")

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self, path: str, params: Doc, deadline: float | None) -> Iterator[Message]:
        return follow(
            self._transport, path, params, retry_for=self._retry_for, deadline=deadline, on_link=self._on_link
        )

    def line(self, queue: str, limit: int | None = None) -> list[Job]:
        """The queue's waiting jobs, in the order in which they would start."""
        return [self._job(view) for view in self._get(f"/v1/queues/{part(queue)}/line", limit=limit)["jobs"]]

    def _code_of(self, body: Doc, known: dict[Path, Doc | None]) -> Doc | None:
        """The description of a submission's code; None when there is none, or none is wanted."""
        folder = workdir_of(body) if os.environ.get("MUSTER_SNAPSHOT", "1") != "0" else None
        if folder is not None and folder not in known:
            known[folder] = self.capture(folder)
        return known[folder] if folder is not None else None

    def _job(self, view: Doc) -> Job:
        return Job.from_view(view, self)


def _job_path(ref: str | int, *parts: str) -> str:
    return "/".join(["/v1/jobs", part(str(ref)), *map(part, parts)])
