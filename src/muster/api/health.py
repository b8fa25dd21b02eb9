"""Liveness, readiness and status of the server."""

from typing import Literal

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


class AdmissionStatus(TypedDict):
    """A company's own admission check, and how it has done since this server began to lead."""

    name: str
    kind: Literal["plug-in", "hook"]
    where: str
    deadline: float  # seconds
    on_error: Literal["refuse", "allow"]
    projects: list[str]  # whose jobs it sees; none: everybody's
    asked: int
    warned: int
    refused: int
    failed: int
    error: str  # the last one
    seconds: float  # of the last answer


class AdvisoriesStatus(TypedDict):
    """The advisories of the settings."""

    path: str
    count: int
    error: str  # why they can't be read


class ServerHealth(TypedDict):
    version: int
    healthy: bool  # whether everything was written and delivered
    followers: list[FollowerLag]
    outbox: OutboxStatus | None  # for administrators, if there is one
    set_aside: list[SetAside]
    admission: list[AdmissionStatus]  # for administrators
    advisories: AdvisoriesStatus | None  # for administrators, if the settings name any


class ServerView(TypedDict):
    version: str
    started_at: float
    pid: int
    store: str
    engines: list[str]
    home: str
    leader: bool
