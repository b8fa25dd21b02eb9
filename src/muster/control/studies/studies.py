"""Runs the studies: looks at each whose trials have news, decides a round, and commits it. A thread beside the loop.

A round is decided outside of the commit, since a searcher may take long, and written only if the study is still as it
was decided from. All of a study is in the state, and its trials' points are in the record, so that a server that is
killed at any instant goes on with the same decisions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Final, TypeVar

from muster.control.clock import Clock
from muster.control.studies.round import Outside, Round, Runtime, Site
from muster.control.studies.snapshot import Snapshot, money_of, take_snapshot
from muster.control.studies.steps import Written, propose_steps
from muster.control.submit import peek
from muster.core.entities.study import Study
from muster.core.errors import Invalid, MusterError, Unavailable
from muster.core.event import Event
from muster.core.state import State
from muster.store.commit import Commit

log = logging.getLogger("muster.control")

EVERY: Final = 5.0  # seconds between two looks for what is due
RETRY: Final = 10.0  # seconds until a trial that was refused is tried again
REST: Final = 0.02  # seconds between two looks, so that the news of many trials are looked at together
TRIES: Final = 20  # of a request, against changes by others
ROUNDS: Final = 100  # of one study in one look: each may make room for the next
# Events of trials' jobs that may change what their study decides.
_NEWS: Final = frozenset({"job.succeeded", "job.failed", "job.stopped", "job.resumed", "attempt.running"})

T = TypeVar("T")


class Studies:
    """`look` may be called by a thread of its own (`start`), or by whoever simulates."""

    def __init__(
        self, commit: Commit, clock: Clock, site: Site, may_act: Callable[[], bool], wake: threading.Event
    ) -> None:
        """`wake`: is set when points of trials have come."""
        self._commit, self._clock, self.site, self._may_act, self._wake = commit, clock, site, may_act, wake
        self._runtimes: dict[str, Runtime] = {}
        self._due: dict[str, float] = {}  # study → when it is looked at without news
        self._dirty: dict[str, None] = {}  # studies with news
        self._news: dict[str, None] = {}  # runs with points that no round has seen yet
        self._resumed: dict[str, set[str]] = {}  # study → jobs of its trials that have been resumed
        self._lock, self._marks, self._stopped = threading.RLock(), threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="studies", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def on_commit(self, events: Sequence[Event], state: State) -> None:
        """Called by the thread that commits, so it must be quick."""
        found, resumed = dict[str, None](), list[tuple[str, str]]()
        for event in events:
            if event.job in state.studies:
                found[event.job] = None
            elif event.job in state.trial_jobs and event.kind in _NEWS:
                study = state.trial_jobs[event.job][0]
                found[study] = None
                if event.kind == "job.resumed":
                    resumed.append((study, event.job))
        if found:
            with self._marks:
                self._dirty |= found
                for study, job in resumed:
                    self._resumed.setdefault(study, set()).add(job)
            self._wake.set()

    @property
    def pending(self) -> bool:
        """Whether a look now may find something to do."""
        return bool(self._dirty)

    def next_due(self) -> float:
        """When time alone asks for a look."""
        return min(self._due.values(), default=inf)

    def look(self) -> None:
        """Looks at every study that has news or is due, until nothing follows any more."""
        with self._lock:
            for study, runs in self._with_news().items():
                self._advance(study)
                for run in runs:
                    self._news.pop(run, None)

    def hear(self, study: str, outside: Outside) -> Round:
        """A round of a study whose trials somebody outside runs, with what they say; it is durable on return.

        Raises Invalid for a study that is over, and Unavailable if it changes all the time.
        """
        with self._lock:
            for _ in range(TRIES):
                made = self._outside_round(study, outside)
                if made is not None:
                    return made
        raise Unavailable(f"Study {study} changes all the time.", "Try again.")

    def _outside_round(self, study: str, outside: Outside) -> Round | None:
        """None if the study has changed meanwhile."""
        snapshot, now = self._snapshot(study), self._clock.now()
        if snapshot is None:
            raise Invalid(f"Study {study} is over.", f"`muster tune resume {study}` or `extend` continues it.")
        made = Round(snapshot, self._runtimes[study], self.site, self._news, now, outside)
        steps, written = made.decide(), Written()
        if steps:
            self._commit.submit(propose_steps(snapshot, steps, self.site.contexts(), now, written)).result()
        return made if written.steps == len(steps) else None

    # ----------------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                if self._may_act():
                    self.look()
            except MusterError as error:
                log.warning("studies: nothing could be recorded, it is tried again: %s", error)
                self._stopped.wait(1.0)
            except Exception:
                log.exception("studies failed; they are tried again")
                self._stopped.wait(5.0)
            self._stopped.wait(REST)
            self._wake.wait(min(max(self.next_due() - self._clock.now(), 0.0), EVERY))

    def _with_news(self) -> dict[str, list[str]]:
        """The studies that are looked at, each with its runs that have new points."""
        with self._marks:
            dirty, self._dirty = self._dirty, {}
        self._news |= dict.fromkeys(self.site.curves.news())
        now, news = self._clock.now(), list(self._news)

        def look(state: State) -> tuple[list[str], dict[str, str]]:
            places = ((run, state.trial_jobs.get(run)) for run in news)
            return (
                [one.id for one in state.studies.values() if one.ended_at is None],
                {run: place[0] for run, place in places if place is not None},
            )

        open_, of_runs = self._peek(look)
        for gone in self._runtimes.keys() - set(open_):
            self._forget(gone)
        found: dict[str, list[str]] = {
            name: [] for name in open_ if name in dirty or name not in self._due or self._due[name] <= now
        }
        for run in news:
            if run not in of_runs or of_runs[run] not in open_:
                self._news.pop(run)
            else:
                found.setdefault(of_runs[run], []).append(run)
        return found

    def _advance(self, study: str) -> None:
        try:
            for _ in range(ROUNDS):
                if not self._round(study):
                    return
            self._due[study] = self._clock.now()
        except BaseException:
            self._due[study] = self._clock.now()  # it is looked at again
            raise

    def _round(self, study: str) -> bool:
        """Decides and commits one round; whether another one may follow."""
        snapshot, now = self._snapshot(study), self._clock.now()
        if snapshot is None:
            self._forget(study)
            return False
        made = Round(snapshot, self._runtimes[study], self.site, self._news, now)
        steps = made.decide()
        self._due[study] = min(now + self.site.every, made.next_look if made.next_look is not None else inf)
        if not steps:
            return False
        written = Written()
        self._commit.submit(propose_steps(snapshot, steps, self.site.contexts(), now, written)).result()
        if written.refused:
            self._due[study] = now + RETRY
        return not written.refused

    def _snapshot(self, study: str) -> Snapshot | None:
        """None if there is no such study, or it is over."""
        now, cost_of = self._clock.now(), self.site.trial_cost
        with self._marks:
            resumed = self._resumed.pop(study, set())

        def look(state: State) -> Snapshot | Study | None:
            known, runtime = state.studies.get(study), self._runtimes.get(study)
            if known is None or known.ended_at is not None:
                return None
            if runtime is None or runtime.doc is not known.doc:
                return known
            found = take_snapshot(state, known, runtime.mirror, resumed if runtime.jobs else None, now)
            if "cost" in known.doc or "worth" in known.doc:
                cost = cost_of(state, runtime.base, known.user) if runtime.base is not None else None
                found = replace(found, money=money_of(state, found, cost, now))
            return found

        found = self._peek(look)
        while isinstance(found, Study):  # its file is parsed outside of the commit
            self._runtimes[study] = Runtime.of(found.doc)
            found = self._peek(look)
        if found is not None and found.strays:
            with self._marks:
                self._resumed.setdefault(study, set()).update(found.strays)
        return found

    def _forget(self, study: str) -> None:
        self._runtimes.pop(study, None)
        self._due.pop(study, None)
        self._resumed.pop(study, None)

    def _peek(self, look: Callable[[State], T]) -> T:
        found: list[T] = []
        self._commit.run([peek(found, look)])
        return found[0]
