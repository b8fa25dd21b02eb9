"""Liveness, readiness and status of the server."""

from muster.api.typed import TypedDict


class Alive(TypedDict):
    status: str


class Readiness(TypedDict):
    ready: bool
    leader: bool
    holder: str
    urls: list[str]


class FollowerLag(TypedDict):
    name: str
    seq: int
    behind: int  # events
    trouble: str


class OutboxStatus(TypedDict):
    waiting: int
    oldest: float | None
    given_up: int
    error: str


class SetAside(TypedDict):
    """An entry of a stream that the database did not take."""

    id: int
    time: float
    source: str
    run: str
    attempt: int
    error: str
    bytes: int


class ServerHealth(TypedDict):
    version: int
    healthy: bool  # whether everything was written and delivered
    followers: list[FollowerLag]
    outbox: OutboxStatus | None  # for administrators, if there is one
    set_aside: list[SetAside]


class ServerView(TypedDict):
    version: str
    started_at: float
    pid: int
    store: str
    engines: list[str]
    home: str
    leader: bool
