"""Polls the engine for changes of nodes and workers, as rarely as it allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from muster.control.observe import node_events, wait_events, worker_events
from muster.control.watch import Key, Watch
from muster.core.event import Event
from muster.core.state import State
from muster.engines.base import Engine, Incremental, NodeInfo, Queueing, Several, WorkerReport

NODES_EVERY = 15.0  # seconds between polls of the nodes of an engine that doesn't report changes


class EnginePoller:
    """Call `ask` before a commit, the `…_events` methods within it, and `settle` or `poll_again` after it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.incremental = engine if isinstance(engine, Incremental) else None
        self._several = engine if isinstance(engine, Several) else None
        self._queueing = engine if isinstance(engine, Queueing) else None
        self.watch = Watch(engine.patience)
        self.changed = True  # the engine has reported that there is something new
        self.news: list[WorkerReport] = []  # reports that no commit has seen yet
        self.nodes: Sequence[NodeInfo] | None = None  # to compare with the state's nodes, if they were polled
        self.last_nodes: Sequence[NodeInfo] = ()  # as last polled
        self._complete = False  # `news` is a full poll
        self._nodes_at: float | None = None
        self._polled_at: float | None = None

    def ask(self, now: float, busy: bool) -> None:
        """Polls what is due. `busy`: a gang holds resources, so an engine without change reports must be polled."""
        changed, self.changed = self.changed, False
        if self._nodes_due(now):
            self.nodes, self._nodes_at = self.engine.nodes(), now
            self.last_nodes = self.nodes
        if self.incremental is not None:
            news = self.incremental.changes()
            if news is not None and not _due(self._polled_at, self.incremental.audit_every, now):
                self.news.extend(news)
                return
        elif not (changed or busy):
            return
        self.news, self._complete, self._polled_at = list(self.engine.poll()), True, now

    def node_events(self, state: State, now: float) -> list[Event]:
        if self.nodes is None:
            return []
        several = self._several
        if several is None:
            return node_events(state, self.nodes, self.engine.name, now)
        return node_events(state, self.nodes, self.engine.name, now, several.has_reported, several.pools())

    def worker_events(self, state: State, dirty: set[str], now: float) -> tuple[list[Event], list[Key]]:
        """Events for the jobs that events or reports have touched, and the attempts without a sign of life."""
        if not (self.news or dirty or self._complete) and not self.watch.is_due(now):
            return [], []
        if self._complete:
            self.watch.replace(self.news, state, now)
            jobs: Iterable[str] = state.active
            silent = self.watch.silent(now)
        else:
            self.watch.update(self.news, now)
            due = self.watch.due(now) if self.watch.is_due(now) else set()
            silent = self.watch.silent(now, due) if due else []
            reported = dict.fromkeys([report.job for report in self.news])
            others = {*dirty, *(job for job, _ in due)} - reported.keys() if dirty or due else ()
            jobs = [*reported, *sorted(others)]
        events = worker_events(state, jobs, self.watch, self.engine.patience, now, partial(self._known, state))
        if self._queueing is not None:
            events += wait_events(state, self._queueing.waits(), now)
        return events, silent

    def _known(self, state: State, pool: str) -> bool:
        found = state.pools.get(pool)
        return self._several is None or found is None or self._several.has_reported(found.engine)

    def reports(self, job: str, attempt: int) -> list[WorkerReport]:
        """The last reports of an attempt's workers."""
        return [s.report for s in self.watch.of(job, attempt).values() if s.report is not None]

    def starts_only(self) -> bool:
        """Asks an incremental engine once more; True if the only news is that gangs run."""
        if self.incremental is None:
            return False
        self.changed = False
        news = self.incremental.changes()
        self.news.extend(news or ())
        self.changed = self.changed or news is None or any(report.status != "running" for report in self.news)
        return bool(self.news) and not self.changed

    def settle(self) -> None:
        """The news is committed and can be dropped."""
        self.news, self.nodes, self._complete = [], None, False

    def poll_again(self) -> None:
        """The commit may have failed: everything is polled again."""
        self.nodes, self._nodes_at, self._polled_at, self.changed = None, None, None, True

    def _nodes_due(self, now: float) -> bool:
        if self.incremental is None:
            said = self._several is not None and self._several.nodes_changed()
            return said or _due(self._nodes_at, NODES_EVERY, now)
        return self.incremental.nodes_changed() or _due(self._nodes_at, self.incremental.audit_every, now)


def _due(last: float | None, every: float, now: float) -> bool:
    return last is None or now - last >= every
