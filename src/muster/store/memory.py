"""The store in memory, for tests and the simulator: same behaviour, no database; everything ends with the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any

from muster.core.event import Event
from muster.core.job import Attempt, Job
from muster.core.state import Changes, State
from muster.store import codec
from muster.store.base import EventFilter, JobFilter, Lease, LogChunk, LogSize, SetAside, StreamState, StreamWrite
from muster.store.fold import Batch, FoldStore
from muster.store.log_limit import end_line, is_over, parts, prune
from muster.store.log_list import ListedChunks, window, within
from muster.store.marks import Mark, Marked
from muster.store.past import Level, LevelFilter, Rollup, levels_of
from muster.wire import Stream


class MemoryStore(FoldStore):
    """Jobs and attempts are the objects of the live state itself, so that a write costs nothing; reads make copies."""

    def __init__(self) -> None:
        super().__init__()
        self._log: list[tuple[Event, str]] = []  # the text is authoritative: what a payload holds may be shared
        self._jobs: dict[str, Job] = {}  # ordered by number
        self._numbers: dict[int, str] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._attempts: dict[str, dict[int, Attempt]] = {}
        self._streams: dict[tuple[str, int], dict[tuple[int, Stream], StreamState]] = {}
        self._logs: dict[tuple[str, int], dict[int, list[LogChunk]]] = {}  # (job, attempt) → rank → chunks in order
        self._last_chunk = 0
        self._runs: dict[str, dict[str, str]] = {}
        self._secrets: dict[tuple[str, str], bytes] = {}
        self._follower_marks: dict[str, int] = {}
        self._aside: list[SetAside] = []
        self._rollups: dict[tuple[int, int, str], Rollup] = {}
        self._lease = Lease("", 0, 0, ())  # no holder: it is free

    def open(self) -> None:
        self.reload()

    def close(self) -> None:
        """Nothing to close."""

    @property
    def database(self) -> None:
        """None: there is no database, only what this object holds."""

    def job(self, job_id: str) -> Job | None:
        with self._lock:
            job = self._jobs.get(job_id)
            return _copy(job) if job else None

    def job_by_number(self, number: int) -> Job | None:
        with self._lock:
            return self.job(self._numbers.get(number, ""))

    def jobs_by_key(self, user: str, keys: Sequence[str]) -> dict[str, str]:
        with self._lock:
            return {key: self._keys[(user, key)] for key in keys if (user, key) in self._keys}

    def jobs(self, want: JobFilter) -> list[Job]:
        with self._lock:
            wanted = (job for job in self._newest(want.ids) if _wants_job(want, job))
            return [_copy(job) for job in islice(wanted, want.limit)]

    def task_phases(self, arrays: Sequence[str]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        with self._lock:
            for job in self._jobs.values():
                if job.array is not None and job.array in arrays:
                    phases = found.setdefault(job.array, {})
                    phases[job.phase] = phases.get(job.phase, 0) + 1
        return found

    def _newest(self, ids: Sequence[str] | None) -> Iterable[Job]:
        if ids is None:
            return reversed(self._jobs.values())
        return sorted((self._jobs[id_] for id_ in set(ids) & self._jobs.keys()), key=lambda job: -job.number)

    def attempts(self, job_id: str) -> list[Attempt]:
        with self._lock:
            attempts = self._attempts.get(job_id, {})
            return [codec.attempt_from(codec.dumps(attempts[number])) for number in sorted(attempts)]

    def events(self, want: EventFilter) -> list[Event]:
        with self._lock:
            newest = len(self._log)  # the seq of an event is its position in the log, from 1
            if want.before is not None:
                newest = min(newest, want.before - 1)
            order = range(newest, want.after, -1) if want.last else range(want.after + 1, newest + 1)
            rows = (self._log[seq - 1] for seq in order)
            found = [_event(row) for row in islice((row for row in rows if _wants_event(want, row[0])), want.limit)]
            return found[::-1] if want.last else found

    def run(self, job_id: str) -> dict[str, Any]:
        with self._lock:
            return {key: codec.loads(text) for key, text in self._runs.get(job_id, {}).items()}

    def runs(self, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        return {job_id: doc for job_id in job_ids if (doc := self.run(job_id))}

    def streams(self, job_id: str, attempt: int) -> Mapping[tuple[int, Stream], StreamState]:
        with self._lock:
            found = self._streams.get((job_id, attempt), {})
            return {key: StreamState(stream.acked, dict(stream.shapes)) for key, stream in found.items()}

    def logs(
        self,
        job_id: str,
        attempt: int,
        rank: int | None,
        after: int,
        limit: int,
        *,
        before: int | None = None,
        since: float | None = None,
        most: int | None = None,
        last: bool = False,
    ) -> list[LogChunk]:
        with self._lock:
            ranks = self._logs.get((job_id, attempt), {})
            lists = ranks.values() if rank is None else [ranks.get(rank, [])]
            found = merge(*(window(one, after, before, last) for one in lists), key=attrgetter("id"), reverse=last)
            if since is not None:
                found = (chunk for chunk in found if chunk.time is not None and chunk.time >= since)
            return within(islice(found, limit), most, lambda chunk: len(chunk.data))

    def log_sizes(self, job_id: str) -> list[LogSize]:
        with self._lock:
            return [
                LogSize(attempt, rank, state.acked, sum(len(c.data) for c in self._logs[(job, attempt)].get(rank, [])))
                for (job, attempt), streams in sorted(self._streams.items())
                for (rank, stream), state in sorted(streams.items())
                if job == job_id and stream == "log"
            ]

    def secret(self, project: str, name: str) -> bytes | None:
        return self._secrets.get((project, name))

    def secret_names(self, project: str) -> list[str]:
        with self._lock:
            return sorted(name for owner, name in self._secrets if owner == project)

    def version(self) -> int:
        with self._lock:
            return len(self._log)

    def marks(self) -> dict[str, int]:
        with self._lock:
            return dict(self._follower_marks)

    def set_aside(self, limit: int = 100) -> list[SetAside]:
        with self._lock:
            return self._aside[: -limit - 1 : -1]

    def rollups(self, resolution: int, pool: str | None, since: int, until: int) -> list[Rollup]:
        with self._lock:
            wanted = [
                key
                for key in self._rollups
                if key[0] == resolution and since <= key[1] < until and pool in (None, key[2])
            ]
            return [self._rollups[key] for key in sorted(wanted)]

    def rolled_up_until(self, resolution: int) -> int:
        with self._lock:
            found = (rollup for rollup in self._rollups.values() if rollup.resolution == resolution)
            return max((rollup.until for rollup in found), default=0)

    def levels(self, want: LevelFilter) -> list[Level]:
        with self._lock:
            return levels_of(want, self._jobs.values())

    def lease(self) -> Lease | None:
        return self._lease if self._lease.holder else None

    def take_lease(self, holder: str, urls: Sequence[str], after: Lease | None) -> Lease | None:
        with self._lock:
            seen = self.lease()
            if (seen and (seen.epoch, seen.beat)) != (after and (after.epoch, after.beat)):
                return None
            self._lease = Lease(holder, self._lease.epoch + 1, self._lease.beat + 1, tuple(urls))
            return self._lease

    def renew_lease(self, lease: Lease) -> Lease | None:
        with self._lock:
            if not self._holds(lease):
                return None
            self._lease = replace(self._lease, beat=self._lease.beat + 1)
            return self._lease

    def drop_lease(self, lease: Lease) -> None:
        with self._lock:
            if self._holds(lease):
                self._lease = Lease("", lease.epoch, self._lease.beat + 1, ())

    def _holds(self, lease: Lease) -> bool:
        return (self._lease.holder, self._lease.epoch) == (lease.holder, lease.epoch)

    def _behind(self) -> bool:
        return False  # no other server can access this memory

    def _load(self) -> State:
        """Builds the state from the log, and with it the jobs and attempts."""
        state, batch = State(), Batch()
        for row in self._log:
            batch.fold(state, _event(row))
        self._jobs, self._numbers, self._keys, self._attempts = {}, {}, {}, {}
        self._keep(batch.changes)
        return state

    def _load_marks(self, job_id: str, attempt: int) -> Marked:
        logs = self._logs.get((job_id, attempt), {})
        return {
            (rank, stream): Mark(state.acked, sum(len(c.data) for c in logs.get(rank, [])) if stream == "log" else 0)
            for (rank, stream), state in self._streams.get((job_id, attempt), {}).items()
        }

    def _write(self, batch: Batch) -> None:
        assert not batch.recorded, "whoever keeps a record asks for the database first"
        self._log += zip(batch.events, batch.texts, strict=True)
        self._keep(batch.changes)
        for write in batch.streams:
            self._write_stream(write)
        for write in batch.tips():
            mark = self._marks.get(write)
            if is_over(write, mark):
                prune(ListedChunks(self._logs[(write.job, write.attempt)][write.rank]), write, mark)
        for (job_id, key), text in batch.values.items():
            self._runs.setdefault(job_id, {})[key] = text
        for name, cipher in batch.secrets.items():
            if cipher is None:
                self._secrets.pop(name, None)
            else:
                self._secrets[name] = cipher
        self._follower_marks.update(batch.marks)
        self._aside += [replace(one, id=len(self._aside) + n) for n, one in enumerate(batch.aside, start=1)]
        self._rollups.update(batch.rollups)
        for old in [key for key in self._rollups if key[1] < batch.forget.get(key[0], key[1])]:
            del self._rollups[old]

    def _keep(self, changes: Changes) -> None:
        for job in changes.jobs.values():
            self._jobs[job.id] = job
            self._numbers[job.number] = job.id
            if job.key:
                self._keys[(job.user, job.key)] = job.id
        for (job_id, number), attempt in changes.attempts.items():
            self._attempts.setdefault(job_id, {})[number] = attempt

    def _write_stream(self, write: StreamWrite) -> None:
        streams = self._streams.setdefault((write.job, write.attempt), {})
        streams[(write.rank, write.stream)] = StreamState(write.end, dict(write.shapes))
        if write.log:
            chunks = self._logs.setdefault((write.job, write.attempt), {}).setdefault(write.rank, [])
            if write.gap:
                end_line(ListedChunks(chunks), write, self._marks.get(write))
            for start, data in parts(write):
                self._last_chunk += 1
                chunks.append(LogChunk(write.rank, start, bytes(data), self._last_chunk, time=write.time))


def _copy(job: Job) -> Job:
    return Job.from_doc(codec.loads(codec.job_text(job)), job.spec.model_copy(deep=True))


def _event(row: tuple[Event, str]) -> Event:
    event, text = row
    return replace(event, data=codec.payload_from(event.kind, text))


def _wants_job(want: JobFilter, job: Job) -> bool:
    return (
        (want.projects is None or job.project in want.projects)
        and (want.phases is None or job.phase in want.phases)
        and (want.queue is None or job.queue == want.queue)
        and (want.user is None or job.user == want.user)
        and (want.name is None or job.name == want.name)
        and (want.tasks or job.index is None)
        and (want.parent is None or job.spec.parent == want.parent)
        and (want.before is None or job.number < want.before)
    )


def _wants_event(want: EventFilter, event: Event) -> bool:
    kind = want.kind or ""
    return (
        (want.projects is None or (event.project != "" and event.project in want.projects))
        and (want.job is None or event.job == want.job)
        and (want.actor is None or event.actor == want.actor)
        and (event.kind.startswith(kind) if kind.endswith(".") or not kind else event.kind == kind)
    )
