"""Runs of scripts outside Muster's jobs: opened once however often they ask, and written by one of them at a time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.job import FINAL
from muster.track.book import Book
from muster.track.rows import Run, patch_run
from muster.track.runs import Runs

SOURCE: Final = "sdk"
ALIVE: Final = 30.0  # seconds after its last word that a writer counts as alive
_KEYS: Final = 1000  # attempts of one run


@dataclass(frozen=True, slots=True)
class Opening:
    """What a script asks for. `key` tells its repeated requests from those of another script."""

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


class External:
    """Who writes is known to this server's memory alone: every writer says every few seconds that it lives."""

    def __init__(self, book: Book, runs: Runs) -> None:
        self._book, self._runs = book, runs
        self._heard: dict[str, float] = {}  # run: monotonic time of its writer's last word
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def start(self, asked: Opening) -> int:
        """A new run; its attempt, which is the first. Raises Conflict when another script's run has the id."""
        with self._book.holding(asked.id):
            found = self._runs.get(asked.id)
            if found is not None:
                attempt = _keys(found).get(asked.key)
                if attempt is None:
                    raise Conflict(f"There is a run {asked.id!r} already.", "Leave the id out, or give it as `resume`.")
                return attempt
            self._runs.create(
                id=asked.id, project=asked.project, user=asked.user, name=asked.name, source=SOURCE,
                created_at=asked.created_at, params=asked.params, tags=asked.tags, purpose=asked.purpose,
                doc={"command": asked.command, "external": _written(asked, {asked.key: 1})},
            )  # fmt: skip
            self._hear(asked.id)
            return 1

    def resume(self, asked: Opening) -> int:
        """A run that has ended goes on; the number of its new attempt. Raises Conflict while its writer lives."""
        with self._book.holding(asked.id):
            found = self._runs.get(asked.id)
            if found is None:
                raise NotFound(f"There is no run {asked.id!r} to resume.", "See `muster runs`.")
            keys = _keys(found)
            if asked.key in keys:
                return keys[asked.key]
            self._check(found, keys)
            attempt = max([found.attempts, *keys.values()]) + 1
            doc = {"external": _written(asked, {**keys, asked.key: attempt}), "reason": None}
            self._book.write(
                lambda connection: patch_run(connection, asked.id, doc, phase="running", ended_at=None),
            )
            if asked.params:
                self._runs.set_params(asked.id, asked.params, attempt=attempt, actor=asked.user)
            if asked.tags:
                self._runs.set_tags(asked.id, asked.tags, asked.user)
            self._hear(asked.id)
            return attempt

    def beat(self, run: str) -> None:
        """Its writer lives."""
        self._hear(run)

    def _check(self, run: Run, keys: dict[str, int]) -> None:
        if run.of_job:
            raise Invalid(f"{run.id} is a job's run.", f"See `muster resume {run.id}`.")
        if len(keys) >= _KEYS:
            raise Invalid(f"{run.id} has {len(keys)} attempts; there can be {_KEYS}.", "Start a new run.")
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

    def _hear(self, run: str) -> None:
        now = time.monotonic()
        with self._lock:
            self._heard[run] = now
            if len(self._heard) > 10_000:
                self._heard = {name: at for name, at in self._heard.items() if now - at < ALIVE}


def _keys(run: Run) -> dict[str, int]:
    """The attempt that each script was given."""
    return dict((run.doc.get("external") or {}).get("keys") or {})


def _written(asked: Opening, keys: dict[str, int]) -> dict[str, Any]:
    return {"host": asked.host, "pid": asked.pid, "keys": keys}
