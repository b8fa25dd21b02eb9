"""Runs of scripts outside Muster's jobs: opening is idempotent, and a run has one writer at a time.

A key identifies repeated requests of one script. It is stored as a digest in `track_marks`, which no view shows: a
caller that has the key and may write the run gets the run's token again.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, select

from muster.api.words import FINAL
from muster.core.errors import Conflict, Invalid, NotAllowed, NotFound
from muster.core.record_events import RunOpened
from muster.store.base import Record
from muster.store.insert import put
from muster.store.record_tables import track_marks
from muster.track.facts import checked, flat
from muster.track.record_db import RecordDb
from muster.track.rows import Run, patch_run
from muster.track.runs import Runs
from muster.track.values import OPENED, params_record, tags_record

SOURCE: Final = "sdk"
ALIVE: Final = 30.0  # seconds after its last message that a writer counts as alive
_KEYS: Final = 1000  # attempts of one run


@dataclass(frozen=True, slots=True)
class Opening:
    """A script's request to open a run. `key` distinguishes its repeated requests from those of another script.

    `admin`: whether the user is an admin of the project, who may continue runs that others opened.
    """

    id: str
    key: str
    project: str
    user: str
    name: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    purpose: str = ""
    created_at: float | None = None
    command: str = ""
    host: str = ""
    pid: int = 0
    admin: bool = False


class External:
    """Opens and resumes such runs. Writers are known only in memory: each sends a heartbeat every few seconds."""

    def __init__(self, db: RecordDb, runs: Runs) -> None:
        self._db, self._runs = db, runs
        self._heard: dict[str, float] = {}  # run → monotonic time of its writer's last message
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def start(self, request: Opening) -> int:
        """Creates a run and returns its first attempt. Raises Conflict if another script's run has the id."""
        with self._db.holding(request.id):
            found = self._runs.get(request.id)
            if found is not None:
                attempt = self._opened(request)
                if attempt is None or found.project != request.project or not _may(request, writer(found, attempt)):
                    raise Conflict(
                        f"There is a run {request.id!r} already.", "Leave the id out, or give it as `resume`."
                    )
                return attempt
            self._runs.create(
                id=request.id, project=request.project, user=request.user, name=request.name, source=SOURCE,
                created_at=request.created_at, params=request.params, tags=request.tags, purpose=request.purpose,
                doc={"command": request.command, "external": _written(request, {}, 1)}, records=[_mark(request, 1)],
            )  # fmt: skip
            self._note_beat(request.id)
            return 1

    def resume(self, request: Opening) -> int:
        """Continues a run and returns its new attempt. Raises Conflict while its writer is alive."""
        with self._db.holding(request.id):
            found = self._runs.get(request.id)
            if found is None:
                raise NotFound(f"There is no run {request.id!r} to resume.", "See `muster runs`.")
            known = self._opened(request)
            owner = found.user if known is None else writer(found, known)
            if found.project != request.project or not _may(request, owner):
                raise NotAllowed(
                    f"The run {request.id} was opened by {owner}.",
                    "Ask them or an admin of the project, or start a new run.",
                )
            if known is not None:
                return known
            self._go_on(found, request, attempt := max(found.attempts, _attempts(found)) + 1)
            self._note_beat(request.id)
            return attempt

    def beat(self, run: str) -> None:
        """Takes a heartbeat of the run's writer."""
        self._note_beat(run)

    def _opened(self, request: Opening) -> int | None:
        """The attempt that this key opened."""
        with self._db.reading() as connection:
            name = track_marks.c.name == _mark_name(request)
            return connection.execute(select(track_marks.c.value).where(name)).scalar_one_or_none()

    def _go_on(self, run: Run, request: Opening, attempt: int) -> None:
        self._check(run)
        params, tags = checked("parameter", flat(request.params)), checked("tag", request.tags)
        before, now = (run.doc.get("external") or {}).get("users") or {}, self._db.now()
        users = {**before, str(attempt): request.user} if request.user != run.user else before
        doc = {"external": _written(request, users, attempt), "reason": None}
        self._db.write(
            lambda connection: patch_run(connection, run.id, doc, phase="running", ended_at=None),
            _mark(request, attempt),
            params_record(run.id, params, attempt=attempt, actor=request.user, now=now),
            tags_record(run.id, tags, actor=request.user, now=now),
            *([] if run.valid else [self._runs.check_required(run.id, run.project)]),
            events=[self._db.event(RunOpened(attempt), request.user, run.project, run.id)],
        )

    def _check(self, run: Run) -> None:
        if run.of_job:
            raise Invalid(f"{run.id} is a job's run.", f"See `muster resume {run.id}`.")
        if _attempts(run) >= _KEYS:
            raise Invalid(f"{run.id} has {_attempts(run)} attempts; there can be {_KEYS}.", "Start a new run.")
        if run.phase in FINAL:
            return
        with self._lock:
            silent = time.monotonic() - self._heard.get(run.id, self._since)
        if silent < ALIVE:
            by = run.doc.get("external") or {}
            who = f"process {by.get('pid')} on {by.get('host')}" if by else "another process"
            raise Conflict(
                f"{who} still writes to the run {run.id}.",
                f"Wait until it has ended, or for {ALIVE:.0f} s after it was killed; or start a new run.",
            )

    def _note_beat(self, run: str) -> None:
        now = time.monotonic()
        with self._lock:
            self._heard[run] = now
            if len(self._heard) > 10_000:
                self._heard = {name: at for name, at in self._heard.items() if now - at < ALIVE}


def writer(run: Run, attempt: int) -> str:
    """The user that opened an attempt, and so has its token."""
    users = (run.doc.get("external") or {}).get("users") or {}
    return str(users.get(str(attempt), run.user))


def _may(request: Opening, owner: str) -> bool:
    return request.admin or request.user == owner


def _attempts(run: Run) -> int:
    """The number of opened attempts, whether they have reported or not."""
    return int((run.doc.get("external") or {}).get("attempts") or 0)


def _written(request: Opening, users: dict[str, str], attempts: int) -> dict[str, Any]:
    """`users`: attempt → user, where it isn't the run's own user."""
    kept = {"users": users} if users else {}
    return {"host": request.host, "pid": request.pid, "attempts": attempts, **kept}


def _mark_name(request: Opening) -> str:
    return f"{OPENED}{request.id}/{hashlib.sha256(request.key.encode()).hexdigest()}"


def _mark(request: Opening, attempt: int) -> Record:
    row = {"name": _mark_name(request), "value": attempt}

    def record(connection: Connection) -> None:
        put(connection, track_marks, [row])

    return record
