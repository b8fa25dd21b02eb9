"""Events: immutable facts. The event log is the state, the history and the audit record in one.

What a kind of event says is its payload: those of jobs are in `job_events.py` and `attempt_events.py`, those of an
entity beside it in `entities/`, and those that are only logged in `record_events.py` and `server_events.py`.
`docs/event-kinds.md` lists all kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.api.events import EventView
from muster.core.payload import Payload

SYSTEM = "muster"  # the actor of events that no user caused


@dataclass(slots=True, init=False)
class Event:
    """`seq` is assigned by the store when the event is appended; it is 0 until then.

    Events are treated as immutable. The class is not frozen because creating a frozen instance takes five times as
    long, and a simulated year has tens of millions of events.
    """

    data: Payload
    time: float  # seconds, UTC; never decreases along the log
    actor: str
    project: str
    job: str
    attempt: int
    seq: int
    kind: str = field(init=False)  # of the payload; kept, because hot code reads it often

    def __init__(
        self,
        data: Payload,
        time: float,
        actor: str = SYSTEM,
        project: str = "",
        job: str = "",
        attempt: int = 0,
        seq: int = 0,
    ) -> None:
        self.data, self.time, self.actor, self.project, self.job = data, time, actor, project, job
        self.attempt, self.seq, self.kind = attempt, seq, data.KIND

    def stamped(self, seq: int) -> Event:
        return Event(self.data, self.time, self.actor, self.project, self.job, self.attempt, seq)

    def to_dict(self) -> EventView:
        return {
            "seq": self.seq,
            "time": self.time,
            "kind": self.kind,
            "actor": self.actor,
            "project": self.project,
            "job": self.job,
            "attempt": self.attempt,
            "data": self.data.to_doc(),
        }
