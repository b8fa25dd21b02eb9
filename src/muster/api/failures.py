"""Failures of attempts over a period, by cause, node and code, and the checkpoint interval that follows."""

from muster.api.typed import TypedDict


class FailureCount(TypedDict):
    """`name`: a reason, or a version of the code."""

    name: str
    failures: int


class NodeFailures(TypedDict):
    """A node that attempts ran on. Times are in seconds; `between` is None without a failure that counts."""

    node: str
    failures: int
    counted: int  # without errors of programs
    busy: float
    between: float | None


class GangInterval(TypedDict):
    """For gangs of this many nodes: the seconds between failures, and between saves by Young and Daly."""

    nodes: int
    between: float
    interval: float | None  # None while no save was measured


class FailuresView(TypedDict):
    since: float
    now: float
    attempts: int
    failures: int
    causes: list[FailureCount]
    codes: list[FailureCount]
    nodes: list[NodeFailures]
    busy: float  # node seconds of all attempts
    between: float | None  # mean node seconds between failures, without errors of programs
    save: float | None  # median seconds of a save
    intervals: list[GangInterval]
    whole: bool  # False: there were more attempts than are looked at, and only the newest are counted
