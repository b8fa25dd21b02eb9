"""Job arrays: the indexes that `array` asks for, and what the state keeps of an array and of its tasks.

An array is a job without nodes that runs until its tasks are over. Each task is an ordinary job with an index, whose
parent is the array. Their numbers follow the array's, in the order of the indexes.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from muster.core.units import InvalidValue

if TYPE_CHECKING:
    from muster.core.job import Job
    from muster.core.state_data import Changes, State

LARGEST: Final = 999_999  # index
MOST: Final = 100_000  # tasks that a job file may ask for; a server's limit is `tasks_per_array`


@dataclass(frozen=True, slots=True)
class Array:
    """The indexes, ascending, and how many of them may run at once; None: all."""

    indexes: tuple[int, ...]
    limit: int | None = None


@dataclass(slots=True)
class Tasks:
    """The tasks of an array that are not over: how many, and the numbers of those that its limit holds back."""

    live: int = 0
    held: list[int] = field(default_factory=list)  # descending: the next one is the last


@lru_cache(maxsize=64)
def parse_array(text: str) -> Array:
    """The array of `1-20`, `0-9%4` (at most four at once), `1-20:2`, `3,5,9` and what these make together."""
    body, percent, most = text.replace(" ", "").partition("%")
    if percent and not (_WHOLE.fullmatch(most) and int(most)):
        raise InvalidValue("After `%` stands how many may run at once, as in `0-9%4`.")
    found: set[int] = set()
    for part in body.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise InvalidValue
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if first > last:
            raise InvalidValue(f"`{part}` ends before it begins: write `{last}-{first}`.")
        if max(first, last) > LARGEST or not step:
            raise InvalidValue(f"Indexes go from 0 to {LARGEST}, in steps of at least 1.")
        indexes = range(first, last + 1, step)
        if len(found) + len(indexes) > MOST:
            raise InvalidValue(f"An array has at most {MOST:,} tasks: make several.")
        if not found.isdisjoint(indexes):
            raise InvalidValue(f"`{part}` has an index that stands before it already: name each once.")
        found.update(indexes)
    return Array(tuple(sorted(found)), int(most) if percent else None)


def format_array(array: Array) -> str:
    """The shortest text in the notation of `parse_array` with ranges of equal steps."""
    parts, left = list[str](), list(array.indexes)
    while left:
        step = left[1] - left[0] if len(left) > 1 else 1
        length = 1
        while length < len(left) and left[length] - left[length - 1] == step:
            length += 1
        if length == 2 and step > 1:
            length = 1
        last = f"-{left[length - 1]}" if length > 1 else ""
        parts.append(f"{left[0]}{last}" + (f":{step}" if length > 1 and step > 1 else ""))
        del left[:length]
    return ",".join(parts) + (f"%{array.limit}" if array.limit is not None else "")


def array_of(job: Job) -> Array:
    assert job.spec.array is not None
    return parse_array(job.spec.array)


def task_id(array: Job, index: int) -> str | None:
    """The id of a task of the array; None if it has no such index."""
    indexes = array_of(array).indexes
    at = bisect_left(indexes, index)
    found = at < len(indexes) and indexes[at] == index
    return f"{array.spec.name}-{array.number + 1 + at}" if found else None


def split_index(ref: str) -> tuple[str, int] | None:
    """("sweep", 3) for `sweep[3]`; None for a reference without an index."""
    match = _TASK.fullmatch(ref)
    return (match[1], int(match[2])) if match else None


# --- what the folds of events call ----------------------------------------------------------------------------------
def add_array(state: State, job: Job) -> None:
    tasks = state.tasks.setdefault(job.id, Tasks())
    if not tasks.live:  # its tasks follow in the same transaction, or are over
        state.settled[job.id] = None


def add_task(state: State, job: Job) -> None:
    assert job.array is not None
    state.tasks.setdefault(job.array, Tasks()).live += 1
    state.settled.pop(job.array, None)


def is_full(state: State, array: str) -> bool:
    """Whether the limit of the array holds back the next task."""
    tasks, parent = state.tasks.get(array), state.jobs.get(array)
    limit = array_of(parent).limit if parent is not None else None
    return limit is not None and tasks is not None and tasks.live - len(tasks.held) >= limit


def hold(state: State, job: Job) -> None:
    """The limit of the task's array holds it back."""
    assert job.array is not None
    insort(state.tasks.setdefault(job.array, Tasks()).held, job.number, key=lambda number: -number)


def unhold(state: State, job: Job) -> None:
    assert job.array is not None
    held = state.tasks[job.array].held
    at = bisect_left(held, -job.number, key=lambda number: -number)
    if at < len(held) and held[at] == job.number:
        del held[at]


def end_task(state: State, job: Job, time: float, changes: Changes) -> None:
    """A task has ended: the next one that was held back may start, and the last one ends the array."""
    assert job.array is not None
    array, tasks = state.jobs[job.array], state.tasks[job.array]
    tasks.live -= 1
    array.outcomes = {**array.outcomes, job.phase: array.outcomes.get(job.phase, 0) + 1}
    changes.jobs[array.id] = array
    if not tasks.live:
        state.settled[array.id] = None
    elif tasks.held and not is_full(state, array.id):
        following = state.jobs[state.by_number[tasks.held.pop()]]
        following.awaits = tuple([name for name in following.awaits if name != array.id])
        changes.jobs[following.id] = following
        if not following.awaits:
            following.since = time
            state.journal.note("job", following.id)


def resume_task(state: State, job: Job, before: str, changes: Changes) -> None:
    """A task that had ended in the phase `before` is queued again."""
    assert job.array is not None
    array = state.jobs[job.array]
    left = {**array.outcomes, before: array.outcomes.get(before, 0) - 1}
    array.outcomes = {phase: count for phase, count in left.items() if count}
    changes.jobs[array.id] = array


_WHOLE: Final = re.compile(r"[0-9]{1,6}")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_TASK: Final = re.compile(r"(.+)\[([0-9]{1,9})\]")
