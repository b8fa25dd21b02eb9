"""A job as the clients return it: its last known state, and methods that call the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from muster.api.words import FINAL
from muster.client import copy_calls, exec_calls, job_calls, stack_calls, watch_calls
from muster.client.blocking import blocking, iterating
from muster.client.connection import Anyone
from muster.client.stream import LogLine
from muster.copying import Copied, Progress
from muster.core.reasons import Reason

if TYPE_CHECKING:
    from muster.api.jobs import (
        ArrayView,
        CheckpointMarkView,
        JobView,
        OutputView,
        ProgressView,
        ResourcesView,
        StartView,
        WhyView,
    )
    from muster.api.stacks import StacksView
    from muster.api.words import Kind, Phase


@dataclass(slots=True)
class JobData:
    """One job. Times are seconds since the epoch, `attempt` is 0 before the first launch, `raw` is the JSON itself."""

    id: str
    number: int
    name: str
    kind: Kind
    project: str
    queue: str
    user: str
    phase: Phase
    reason: Reason | None
    since: float
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    attempt: int
    nodes: list[str]
    num_nodes: int
    nproc: int
    resources: ResourcesView
    priority: int
    restarts: dict[str, int]
    checkpoint: CheckpointMarkView | None
    progress: ProgressView | None
    purpose: str | None
    tags: dict[str, str]
    run: str
    workdir: str | None
    raw: JobView = field(repr=False, compare=False)
    client: Anyone = field(repr=False, compare=False)

    @classmethod
    def from_view(cls, view: JobView, client: Anyone) -> Self:
        """Builds it from a JobView of the API; fields that a newer server adds stay in `raw`."""
        values: dict[str, Any] = {name: value for name, value in view.items() if name in _NAMES}
        values["reason"] = Reason.of(view["reason"]) if view["reason"] else None
        return cls(**values, raw=view, client=client)

    @property
    def parent(self) -> str | None:
        """The id of the job that it is part of. None also from a server that knows no parents."""
        return self.raw.get("parent")

    @property
    def index(self) -> int | None:
        """Of a task of an array, which is its parent."""
        return self.raw.get("index")

    @property
    def array(self) -> ArrayView | None:
        """Of an array: how many tasks it has, and how many of them are in each phase."""
        return self.raw.get("array")

    @property
    def needs(self) -> dict[str, str]:
        """The jobs that it starts after, by their ids, and how each has to end. Empty from a server without needs."""
        return self.raw.get("needs") or {}

    @property
    def start_from(self) -> StartView | None:
        """The checkpoint of another run that it starts from. None also from a server that knows no such jobs."""
        return self.raw.get("start_from")

    @property
    def final(self) -> bool:
        return self.phase in FINAL

    @property
    def output(self) -> OutputView | None:
        """How much of its output is kept; None if the answer that it came from did not say."""
        whole: Mapping[str, Any] = self.raw
        return whole.get("output")

    @property
    def placed(self) -> bool:
        """Whether `nodes` are those that it holds now, and not those of its last attempt."""
        return self.phase in ("starting", "running", "stopping")

    @property
    def ranks(self) -> int:
        """The number of ranks; of a running elastic gang, the current number."""
        return (len(self.nodes) if self.placed else self.num_nodes) * self.nproc


_NAMES = tuple(one.name for one in fields(JobData) if one.name not in ("raw", "client"))
J = TypeVar("J", bound=JobData)


def _become(job: J, other: JobData) -> J:
    for name in (*_NAMES, "raw"):
        setattr(job, name, getattr(other, name))
    return job


async def _refresh(job: J, /) -> J:
    """Updates this object from the server."""
    return _become(job, await job_calls.job(job.client, job.id))


async def _wait(job: J, /, timeout: float | None = None, on_change: Callable[[J], None] | None = None) -> J:
    """Waits until it has ended; see `Client.wait`."""
    ended: J = await watch_calls.wait(job.client, job.id, timeout, on_change)
    return _become(job, ended)


async def _stop(job: J, /, grace: float | None = None, force: bool = False) -> J:
    """Asks it to save and exit; see `Client.stop`."""
    return _become(job, await job_calls.stop(job.client, job.id, grace, force))


async def _save(job: J, /, timeout: float = job_calls.SAVE_PATIENCE) -> J:
    """Asks it to save now and go on; see `Client.save`."""
    return _become(job, await job_calls.save(job.client, job.id, timeout))


async def _set_priority(job: J, /, priority: str | int) -> J:
    """Gives it another priority; see `Client.set_priority`."""
    return _become(job, await job_calls.set_priority(job.client, job.id, priority))


async def _resume(
    job: J,
    /,
    timeout: float = job_calls.STOP_PATIENCE,
    *,
    checkpoint: int | None = None,
    from_scratch: bool = False,
) -> J:
    """Queues it again; see `Client.resume`."""
    found = job_calls.resume(job.client, job.id, timeout, checkpoint=checkpoint, from_scratch=from_scratch)
    return _become(job, await found)


def _logs(
    job: JobData,
    /,
    follow: bool = False,
    rank: int | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    since: float | None = None,
) -> AsyncGenerator[LogLine, None]:
    """Its output; see `Client.logs`."""
    return watch_calls.logs(job.client, job.id, follow, rank, attempt, tail, since)


async def _why(job: JobData, /) -> WhyView:
    """Why it is in its phase; see `Client.why`."""
    return await job_calls.why(job.client, job.id)


async def _exec(
    job: JobData,
    /,
    command: Sequence[str],
    *,
    worker: int | None = None,
    rank: int | None = None,
    input: bytes = b"",
    timeout: float | None = None,
    start_timeout: float = exec_calls.START_PATIENCE,
) -> exec_calls.ExecResult:
    """Runs a command beside its ranks; see `Client.exec`."""
    return await exec_calls.exec_(
        job.client,
        job.id,
        command,
        worker=worker,
        rank=rank,
        input=input,
        timeout=timeout,
        start_timeout=start_timeout,
    )


async def _stacks(job: JobData, /, *, timeout: float = stack_calls.TIMEOUT, last: bool = False) -> StacksView:
    """What every rank is doing now; see `Client.stacks`."""
    return await stack_calls.stacks(job.client, job.id, timeout=timeout, last=last)


async def _profile(
    job: JobData, /, *, seconds: float = stack_calls.PROFILED, timeout: float = stack_calls.TIMEOUT, last: bool = False
) -> StacksView:
    """Where its ranks spend their time; see `Client.profile`."""
    return await stack_calls.profile(job.client, job.id, seconds=seconds, timeout=timeout, last=last)


async def _copy_to(
    job: JobData,
    /,
    source: str | Path,
    path: str = ".",
    *,
    worker: int | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Copies a local file or folder into its folder; see `Client.copy_to`."""
    return await copy_calls.copy_to(job.client, job.id, source, path, worker=worker, progress=progress)


async def _copy_from(
    job: JobData,
    /,
    path: str,
    target: str | Path = ".",
    *,
    worker: int | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Copies a file or folder of its folder to this machine; see `Client.copy_from`."""
    return await copy_calls.copy_from(job.client, job.id, path, target, worker=worker, progress=progress)


class Job(JobData):
    """A job of a `Client`."""

    __slots__ = ()

    refresh = blocking(_refresh)
    wait = blocking(_wait)
    stop = blocking(_stop)
    save = blocking(_save)
    set_priority = blocking(_set_priority)
    resume = blocking(_resume)
    logs = iterating(_logs)
    why = blocking(_why)
    exec = blocking(_exec)
    stacks = blocking(_stacks)
    profile = blocking(_profile)
    copy_to = blocking(_copy_to)
    copy_from = blocking(_copy_from)


class AsyncJob(JobData):
    """A job of an `AsyncClient`; its methods are awaited."""

    __slots__ = ()

    refresh = _refresh
    wait = _wait
    stop = _stop
    save = _save
    set_priority = _set_priority
    resume = _resume
    logs = _logs
    why = _why
    exec = _exec
    stacks = _stacks
    profile = _profile
    copy_to = _copy_to
    copy_from = _copy_from
