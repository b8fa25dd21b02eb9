"""Engines: their state, what they can do, and their own accounting."""

from typing import Literal

from muster.api.typed import Doc, TypedDict


class GangCounts(TypedDict):
    running: int
    waiting: int  # in the engine's own queue


class EngineView(TypedDict):
    name: str
    kind: str
    ok: bool
    away: bool
    since: float | None
    detail: str
    trouble: str
    hint: str
    pools: list[str]
    nodes: int
    healthy: int
    gangs: GangCounts
    abilities: list[str]


class EngineList(TypedDict):
    engines: list[EngineView]


class FindingView(TypedDict):
    """The result of one check, a line of `/v1/engines/NAME/doctor`."""

    status: Literal["ok", "warn", "fail"]
    name: str
    detail: str
    hint: str


class UsageView(TypedDict):
    """What an attempt used, according to the engine's own accounting."""

    job: str
    attempt: int
    state: str
    nodes: list[str]
    started_at: float | None
    ended_at: float | None
    accelerator_seconds: float
    cpu_seconds: float
    about: Doc


class UsageList(TypedDict):
    engine: str
    since: float
    usage: list[UsageView]


class UsageDifference(TypedDict):
    job: str
    attempt: int
    what: Literal["unknown_to_engine", "unknown_to_muster", "nodes", "started", "ended", "accelerator_time"]
    ours: str
    theirs: str


class Reconciliation(TypedDict):
    engine: str
    since: float
    attempts: int
    records: int
    differences: list[UsageDifference]
