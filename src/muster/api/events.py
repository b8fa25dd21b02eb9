"""The event log."""

from muster.api.typed import Doc, TypedDict


class EventView(TypedDict):
    seq: int
    time: float
    kind: str
    actor: str
    project: str
    job: str
    attempt: int
    data: Doc  # docs/event-kinds.md says what each kind holds


class EventList(TypedDict):
    events: list[EventView]
    next: int  # pass it as `after` for the next page
