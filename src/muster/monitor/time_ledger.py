"""The ledger of held time: every microsecond that an attempt holds its seats belongs to exactly one class.

An attempt holds its seats from its plan to its end. A gang counts by its first rank, which waits for the others in
every step. All times are integers of microseconds since 1970, so that the classes add up exactly in any grouping.

    starting.*   until training begins: `launch` by the platform, then the phases that the program states. Without
                 stated phases it is `program`, until one step before the first report
    done_again   training of steps that an earlier attempt had reached: the first time counts as training
    hung         from the last step of an attempt that hung until it was stopped
    lost         from the failure of an attempt to the release of its seats
    idle         stated by the program, and from its good end to the release
    training     the rest: a program that reports nothing trains from its start to its end
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from muster.wire import START_PHASES

SECOND: Final = 1_000_000  # microseconds
DAY: Final = 86_400 * SECOND
UNSTATED: Final = ""
STARTING: Final = tuple(f"starting.{part}" for part in ("launch", "program", *START_PHASES))
# In the order of tables: what is good first.
CLASSES: Final = (
    "training", *STARTING, "data", "saving", "evaluating", "done_again", "idle", "hung", "lost",
)  # fmt: skip


class Interval(NamedTuple):
    begin: int
    end: int
    kind: str


class PhaseEntry(NamedTuple):
    """From `time` on, the rank is in the phase `name`. `spent`: microseconds of the time since the entry before."""

    time: int
    name: str
    spent: Mapping[str, int]


class StepTrail(NamedTuple):
    """The steps that an attempt reported: of the first, of the last, and of the one that reached an earlier attempt."""

    first: tuple[int, int]  # step, time
    last: tuple[int, int]
    caught_up: int | None = None  # time of the first step that no earlier attempt had passed; None: there is none
    repeats: int = 0  # steps that an earlier attempt had finished too


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """What is known of an attempt's time. `ended`: when its seats were released, or now if it holds them."""

    planned: int
    ended: int
    running: int | None = None  # when its ranks started
    exited: int | None = None  # when the first of its workers failed, or the last one ended well
    failed: bool = False
    hung: bool = False
    from_step: int | None = None  # of the checkpoint that it started from
    trail: StepTrail | None = None


def intervals(attempt: HeldAttempt, entries: Sequence[PhaseEntry]) -> list[Interval]:
    """The held time as intervals without a gap or an overlap, in order; neighbours have different classes."""
    planned, ended = attempt.planned, max(attempt.planned, attempt.ended)
    never = attempt.exited if attempt.failed and attempt.exited is not None else ended  # it was never running
    running = _within(planned, attempt.running if attempt.running is not None else never, ended)
    exit = _within(running, _exit(attempt, entries), ended)
    stated = list(_stated(entries, running, exit))
    trains = _within(running, _training_begins(attempt, stated, exit), exit)
    known = any(entry.name in START_PHASES for entry in entries)
    parts = [Interval(planned, running, "starting.launch")]
    for begin, end, name in _cut(stated, trains):
        parts.append(Interval(begin, end, _class(name, begin < trains, known and begin == running)))
    if attempt.trail is not None and attempt.trail.repeats:
        until = attempt.trail.caught_up if attempt.trail.caught_up is not None else exit
        parts = _renamed(parts, running, until, "done_again", only="training")
    if attempt.hung:
        parts = _renamed(parts, attempt.trail.last[1] if attempt.trail else trains, exit, "hung")
    parts.append(Interval(exit, ended, "lost" if attempt.failed else "idle"))
    return _joined(parts)


def by_day(parts: Iterable[Interval]) -> dict[int, dict[str, int]]:
    """Microseconds by class for each day, in UTC; days by their first microsecond."""
    days: dict[int, dict[str, int]] = {}
    for begin, end, kind in parts:
        while begin < end:
            day = begin - begin % DAY
            until = min(end, day + DAY)
            sums = days.setdefault(day, {})
            sums[kind] = sums.get(kind, 0) + until - begin
            begin = until
    return days


def microseconds(time: float) -> int:
    return round(time * SECOND)


def _exit(attempt: HeldAttempt, entries: Sequence[PhaseEntry]) -> int:
    """When the program ended. A failed worker that could not say it failed after its last report."""
    if attempt.exited is not None or not attempt.failed:
        return attempt.exited if attempt.exited is not None else attempt.ended
    signs = [entries[-1].time] if entries else []
    signs += [attempt.trail.last[1]] if attempt.trail is not None else []
    return max(signs, default=attempt.ended)


def _stated(entries: Sequence[PhaseEntry], begin: int, end: int) -> Iterator[Interval]:
    """The phases as the program stated them. Clocks differ, so that entries may be outside of the attempt."""
    at, name = begin, UNSTATED
    for entry in entries:
        until = _within(at, entry.time, end)
        spent = {part: value for part, value in entry.spent.items() if value > 0 and part != name}
        rest = max(at, until - sum(spent.values())) if spent else until
        yield Interval(at, rest, name)  # first, so that what is before all phases stays there
        at = rest
        for part, value in spent.items():
            then = min(until, at + value)
            yield Interval(at, then, part)
            at = then
        at, name = until, entry.name
    yield Interval(at, end, name)


def _training_begins(attempt: HeldAttempt, stated: Sequence[Interval], exit: int) -> int:
    other = (begin for begin, end, name in stated if end > begin and name not in (UNSTATED, *START_PHASES))
    first = next(other, None)
    starts = any(name in START_PHASES for _, _, name in stated)
    trail = attempt.trail
    if trail is None:
        return first if first is not None else exit if starts else stated[0].begin
    if first is not None or starts:
        return min(trail.first[1], first if first is not None else exit)
    # A program that states nothing has done steps before its first report: as many as it counts, at its mean pace.
    steps, span = trail.last[0] - trail.first[0], trail.last[1] - trail.first[1]
    if steps <= 0 or span <= 0:
        return stated[0].begin
    start = attempt.from_step if attempt.from_step is not None and attempt.from_step < trail.first[0] else 0
    return trail.first[1] - span * max(1, trail.first[0] - start) // steps


def _class(name: str, starting: bool, importing: bool) -> str:
    if name in START_PHASES:
        return f"starting.{name}"
    if name == "waiting":  # for the other ranks, which train
        return "training"
    if name != UNSTATED:
        return name
    return "training" if not starting else "starting.import" if importing else "starting.program"


def _cut(parts: Iterable[Interval], at: int) -> Iterator[Interval]:
    for begin, end, kind in parts:
        if begin < at < end:
            yield Interval(begin, at, kind)
            yield Interval(at, end, kind)
        else:
            yield Interval(begin, end, kind)


def _renamed(parts: list[Interval], begin: int, end: int, kind: str, only: str = "") -> list[Interval]:
    """The parts, with what is between two times in another class; `only`: if it was in this class."""
    cut = list(_cut(_cut(parts, begin), end))
    return [
        Interval(part.begin, part.end, kind)
        if begin <= part.begin and part.end <= end and (not only or part.kind == only)
        else part
        for part in cut
    ]


def _joined(parts: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for part in parts:
        if part.begin == part.end:
            continue
        if joined and joined[-1].kind == part.kind:
            joined[-1] = Interval(joined[-1].begin, part.end, part.kind)
        else:
            joined.append(part)
    assert all(before.end == after.begin for before, after in pairwise(joined))
    return joined


def _within(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))
