"""`apply`: the only function that changes the state; O(1) for each event.

The state holds what is live: projects, queues, nodes, tokens and unfinished jobs. A job leaves the state with the event
that ends it; its record stays in the store. What each kind of event changes is the `fold` of its payload. They are all
registered when this module is loaded: those of jobs, of the entities, of the record, and of the server.
"""

from __future__ import annotations

from muster.core import attempt_events, cost_events, entities, job_events, record_events, server_events  # noqa: F401
from muster.core.event import Event
from muster.core.state_data import Changes, State

__all__ = ["Changes", "State", "apply"]


def apply(state: State, event: Event, changes: Changes | None = None) -> Changes:
    """Applies one event to the state and returns what it changed; adds to `changes` if given."""
    if changes is None:
        changes = Changes()
    event.data.fold(state, event, changes)
    state.version = event.seq
    if event.time > state.time:
        state.time = event.time
    return changes
