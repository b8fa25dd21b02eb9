"""Events: immutable facts. The event log is the state, the history and the audit record in one.

Kinds, and what their `data` holds:

    job.submitted         number, name, queue, user, spec, key, expect, trusted (of an administrator's); a job without
                          nodes runs from here on
    job.claimed           seats: reserved for the queued job until they are free; no seats: released
    job.waits             reason: what a queued job waits for now; logged when it changes
    job.forecast          p50, p90: when the queued job was expected to start, for scoring forecasts
    job.resumed           doc, spec, user: the finished job as it was, so that the log alone can restore it
    job.stopping          reason, then ("stopped" | "queued"), grace
    job.requeued          reason, charge, not_before
    job.succeeded | job.failed | job.stopped      reason
    attempt.planned       seats
    attempt.running       (no data: every worker has started its ranks)
    attempt.ended         outcome, reason
    attempt.waits         reason: what a gang waits for in the engine's own queue, if it has one; logged when it changes
    worker.placed         worker, node: the machine that the engine chose
    worker.running        worker
    worker.ended          worker, exit
    checkpoint.committed  step, path, bytes, rank
    node.joined           name, pool, resources, labels, role ("slot" | "machine" if it is not a plain node)
    node.left             name
    node.health           name, health, reason, by ("engine", or else the actor)
    pool.set | queue.set | project.set            the whole record
    rules.set             rules, text
    project.member        name, user, role (null removes)
    token.created         id, name, user, digest, role, superuser, expires_at
    token.revoked         id
    secret.set | secret.removed                   name, never a value
    server.leads          holder, epoch
    run.purged            rows: how many were deleted, by table; the job's own row is kept

The kinds in `AUDIT` log what users did to the record; `job` is the run's id. They change nothing in the state, and
hold names and ids only: no value, text or secret.

    run.created           name, source
    run.opened            attempt: an outside script continues the run
    run.changed           fields
    run.hidden | run.restored
    run.params | run.tags           keys (the first of them), count
    artifact.put | artifact.removed               path, count
    note.added            (no data; the note is of a project if `job` is empty)
    experiment.created | experiment.changed | experiment.hidden | experiment.restored        experiment, name, fields
    model.created | model.changed | model.deleted                 name, fields
    version.created | version.changed | version.deleted           name, version, fields
    version.staged        name, version, stage
    alias.set | alias.removed                     name, alias, version
    query.saved | query.removed                   name
    content.collected     (no data: an administrator applied retention)
    mlflow.called         method, path: a write request that MLflow's own server handled
    record.refused        kind, error: a change of the record that the database refused; nothing of it was written
    messages.given_up     receiver, count: outgoing messages that were not accepted for days
    auth.failed           address, count, token (its id, if it is known), since
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from muster.api.events import EventView

SYSTEM = "muster"  # the actor of events that no user caused
AUDIT: Final = frozenset({
    "run.created", "run.opened", "run.changed", "run.hidden", "run.restored", "run.params", "run.tags",
    "artifact.put", "artifact.removed", "note.added",
    "experiment.created", "experiment.changed", "experiment.hidden", "experiment.restored",
    "model.created", "model.changed", "model.deleted",
    "version.created", "version.changed", "version.deleted", "version.staged", "alias.set", "alias.removed",
    "query.saved", "query.removed", "content.collected", "mlflow.called", "auth.failed",
    "record.refused", "messages.given_up",
})  # fmt: skip


@dataclass(slots=True)
class Event:
    """`seq` is assigned by the store when the event is appended; it is 0 until then.

    Events are treated as immutable. The class is not frozen because creating a frozen instance takes five times as
    long, and a simulated year has tens of millions of events.
    """

    kind: str
    time: float  # seconds, UTC; never decreases along the log
    actor: str = SYSTEM
    project: str = ""
    job: str = ""
    attempt: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    seq: int = 0

    def stamped(self, seq: int) -> Event:
        return Event(self.kind, self.time, self.actor, self.project, self.job, self.attempt, self.data, seq)

    def to_dict(self) -> EventView:
        return {
            "seq": self.seq,
            "time": self.time,
            "kind": self.kind,
            "actor": self.actor,
            "project": self.project,
            "job": self.job,
            "attempt": self.attempt,
            "data": self.data,
        }
