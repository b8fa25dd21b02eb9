"""For tests of the record: a real store, group commit and `Tracking`, and jobs that are put through their events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.control.clock import Clock
from muster.control.follow import Follower
from muster.control.ingest import Ingest
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.core.spec import JobSpec
from muster.store.base import Entry, Store
from muster.store.commit import GroupCommit
from muster.store.registry import open_store
from muster.track.tracking import Tracking, open_tracking
from muster.wire import (
    KIND_ROW,
    Batch,
    Piece,
    Reply,
    Stream,
    WorkerExit,
    doc_record,
    row_struct,
    shape_record,
)


@dataclass
class Record:
    store: Store
    commit: GroupCommit
    track: Tracking
    home: Path
    ingest: Ingest
    moment: list[float]
    follower: Follower
    sent: dict[tuple[str, int, int, str], int] = field(default_factory=dict)  # bytes of each stream

    def later(self, seconds: float = 1.0) -> float:
        self.moment[0] += seconds
        return self.moment[0]

    def events(self, *events: Event) -> None:
        """Appends, and folds them into the record."""
        self.commit.submit(lambda state: Entry(events)).result()
        self.follower.reach()

    def submit(
        self, run: str = "python train.py", *, user: str = "ada", project: str = "default", **fields: Any
    ) -> str:
        """A job that was accepted; `code` goes beside the spec."""
        beside = {name: fields.pop(name) for name in ("code",) if name in fields}
        number = self.store.state().next_number
        spec = JobSpec.model_validate({"name": "train", "run": run, "project": project, **fields})
        data = {"number": number, "name": spec.name, "queue": "default", "user": user, "key": None, "expect": None}
        data |= {"spec": spec.model_dump(mode="json"), **beside}
        job = f"{spec.name}-{number}"
        self.events(Event(decode("job.submitted", data), self.later(), user, project, job))
        return job

    def start(self, job: str, attempt: int = 1, nodes: Sequence[str] = ("n0",)) -> None:
        seats = [{"node": node, "devices": [], "share": 1000} for node in nodes]
        self.events(self.of(job, "attempt.planned", attempt, seats=seats), self.of(job, "attempt.running", attempt))

    def restart(self, job: str, attempt: int, code: str = "node_lost") -> None:
        """The attempt ends, and the job waits for its next."""
        why = reason(code).to_dict()
        self.events(
            self.of(job, "attempt.ended", attempt, outcome="failed", reason=why),
            self.of(job, "job.requeued", attempt, reason=why, charge="node", not_before=0.0),
        )

    def end(self, job: str, attempt: int, phase: str = "succeeded", code: str = "completed") -> None:
        why = reason(code).to_dict()
        self.events(
            self.of(job, "attempt.ended", attempt, outcome=phase, reason=why),
            self.of(job, f"job.{phase}", attempt, reason=why),
        )

    def of(self, job: str, kind: str, attempt: int, **data: Any) -> Event:
        found = self.store.job(job)
        assert found is not None
        return Event(decode(kind, data), self.later(), "muster", found.project, job, attempt)

    def report(
        self,
        run: str,
        *docs: dict[str, Any],
        attempt: int = 1,
        rank: int = 0,
        stream: Stream = "spool",
        rows: Sequence[tuple[int, float]] = (),
        exit: WorkerExit | None = None,
    ) -> Reply:
        """What a launcher would ship: documents, and rows (step, loss), appended to a stream of the rank."""
        parts = [doc_record({"time": self.moment[0], **doc}) for doc in docs]
        if rows:
            pack = row_struct(1)
            parts.append(shape_record(0, ("loss",)))
            parts += [pack.pack(KIND_ROW, 0, pack.size, step, self.moment[0], value) for step, value in rows]
        data, key = b"".join(parts), (run, attempt, rank, stream)
        pieces = (Piece(rank, stream, self.sent.get(key, 0), data),) if data else ()
        self.sent[key] = self.sent.get(key, 0) + len(data)
        return self.ingest.accept(run, attempt, Batch(0, "ended" if exit else "running", exit, pieces))

    def saved(self, run: str, step: int, path: str, attempt: int = 1) -> None:
        """A rank has saved a checkpoint."""
        self.later()
        self.report(run, {"type": "checkpoint", "step": step, "path": path, "bytes": 7}, attempt=attempt)
        self.follower.reach()

    def notes(self, run: str) -> list[tuple[str, str]]:
        """(kind, text) of a run's logbook, in order."""
        return [(entry.kind, entry.text) for entry in self.track.logbook.entries(run=run, limit=1000)]


class _Clock(Clock):
    def __init__(self, moment: list[float]) -> None:
        self._moment = moment

    def now(self) -> float:
        return self._moment[0]


@contextmanager
def open_record(url: str, home: Path) -> Iterator[Record]:
    store = open_store(url)
    moment = [1000.0]
    commit = GroupCommit(store, on_commit=lambda events: None)
    commit.start()
    home.mkdir(parents=True, exist_ok=True)
    track = open_tracking(store, commit, lambda: moment[0], home)
    assert track is not None
    try:
        ingest = Ingest(store, commit, _Clock(moment), 1 << 20, track.intake)
        follower = Follower("record", track.fold.fold, store, commit)
        yield Record(store, commit, track, home, ingest, moment, follower)
    finally:
        commit.close()
        store.close()
