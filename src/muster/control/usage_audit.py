"""Compares Muster's record of attempts with an engine's own accounting. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from muster.engines.base import Usage

SECONDS: Final = 30.0  # tolerance of a start or an end: the engine counts from the allocation to its release
SHARE: Final = 0.05  # tolerance of the accelerator time, where that is more than SECONDS times the accelerators
What = Literal["unknown_to_engine", "unknown_to_muster", "nodes", "started", "ended", "accelerator_time"]


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt in Muster's record."""

    job: str
    attempt: int
    nodes: tuple[str, ...]
    started_at: float | None
    ended_at: float | None
    accelerators: int = 0  # of all its nodes together

    @property
    def accelerator_seconds(self) -> float:
        if self.started_at is None or self.ended_at is None:
            return 0.0
        return max(0.0, self.ended_at - self.started_at) * self.accelerators


@dataclass(frozen=True, slots=True)
class Difference:
    job: str
    attempt: int
    what: What
    ours: str
    theirs: str


def compare(
    attempts: Iterable[Attempted], usages: Iterable[Usage], seconds: float = SECONDS, share: float = SHARE
) -> list[Difference]:
    """Every difference above the tolerance, by job and attempt. An attempt that never started need not be in both."""
    ours = {(one.job, one.attempt): one for one in attempts}
    theirs = {(one.job, one.attempt): one for one in usages}
    found: list[Difference] = []
    for key in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(key), theirs.get(key)
        if mine is None and other is not None and other.started_at is not None:
            found.append(Difference(*key, "unknown_to_muster", "-", other.state))
        elif other is None and mine is not None and mine.started_at is not None:
            found.append(Difference(*key, "unknown_to_engine", _time(mine.started_at), "-"))
        elif mine is not None and other is not None:
            found.extend(_differences(mine, other, seconds, share))
    return found


def _differences(mine: Attempted, other: Usage, seconds: float, share: float) -> Iterable[Difference]:
    key = (mine.job, mine.attempt)
    if mine.nodes and other.nodes and set(mine.nodes) != set(other.nodes):
        yield Difference(*key, "nodes", ",".join(sorted(mine.nodes)), ",".join(sorted(other.nodes)))
    for what, here, there in (
        ("started", mine.started_at, other.started_at),
        ("ended", mine.ended_at, other.ended_at),
    ):
        if here is not None and there is not None and abs(here - there) > seconds:
            yield Difference(*key, "started" if what == "started" else "ended", _time(here), _time(there))
    allowed = max(seconds * mine.accelerators, share * mine.accelerator_seconds)
    if mine.ended_at is not None and abs(mine.accelerator_seconds - other.accelerator_seconds) > allowed:
        hours = (f"{time / 3600:.3f} h" for time in (mine.accelerator_seconds, other.accelerator_seconds))
        yield Difference(*key, "accelerator_time", *hours)


def _time(moment: float) -> str:
    return f"{moment:.0f}"
