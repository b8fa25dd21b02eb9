"""A job that starts from a checkpoint of another run, its source. The folds keep which runs are still needed for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muster.core.job import Job
    from muster.core.state_data import Changes, State

# A run by its name or its id, or a task of an array, and a step.
PATTERN: Final = r"^[a-z]([a-z0-9-]*[a-z0-9])?(\[[0-9]{1,9}\])?(@[0-9]{1,15})?$"
_PATH_MAX: Final = 4096  # characters of a path: the program reported it
_PLACE: Final = re.compile(r"(/|[a-z0-9]+://)[^\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class StartPoint:
    """What a job starts from. Its source's project and trust decide whether both may have the same files."""

    run: str
    step: int | None = None  # None: the newest that verifies when the job starts
    project: str = ""
    trusted: bool = False
    # Where the source's program saves, if that is not the folder that its engine gave it: as far as it was known when
    # the source ended, or else when the job was submitted.
    store: str = ""
    taken: int | None = None  # the step of the checkpoint that the job has taken


def split_start(text: str) -> tuple[str, int | None]:
    """("gpt-12", 2000) for `gpt-12@2000`; without a step for `gpt-12`."""
    run, at, step = text.partition("@")
    return run, int(step) if at else None


def start_text(point: StartPoint) -> str:
    """Inverse of `split_start`."""
    return point.run if point.step is None else f"{point.run}@{point.step}"


def point_at(source: Job, step: int | None) -> StartPoint:
    return StartPoint(source.id, step, source.project, source.trusted, store_of(source))


def current(state: State, point: StartPoint) -> StartPoint:
    """With what is known now, if the source is not over."""
    source = state.jobs.get(point.run)
    return replace(point, trusted=source.trusted, store=store_of(source)) if source is not None else point


def store_of(source: Job) -> str:
    """The place of the job's checkpoints, if it is object storage or a folder that its program chose."""
    path = source.checkpoint.path if source.checkpoint is not None else ""
    place = path.rpartition("/")[0]
    if len(path) > _PATH_MAX or not _PLACE.fullmatch(place):
        return ""
    return place if "://" in place or place.rpartition("/")[2] != source.id else ""


def needed_by(state: State, run: str) -> list[str]:
    """The jobs that start from a checkpoint of the run and have not taken it yet: nothing may remove it."""
    return list(state.starters.get(run, ()))


def steps_needed(state: State, run: str) -> tuple[int, ...]:
    """The steps among them that were named. The newest one needs no name: a run never prunes that."""
    jobs = [state.jobs.get(name) for name in needed_by(state, run)]
    return tuple(sorted({job.start.step for job in jobs if job and job.start and job.start.step is not None}))


# --- what the folds of events call ----------------------------------------------------------------------------------
def expect_start(state: State, job: Job) -> None:
    """Enters a job that is new, or loaded, at the run that it starts from."""
    if (point := job.start_due) is not None:
        state.starters.setdefault(point.run, {})[job.id] = None


def settle_start(state: State, job: Job) -> None:
    """Inverse of `expect_start`: it has taken the checkpoint, or needs it no more."""
    waiting = state.starters.get(job.start.run) if job.start is not None else None
    if waiting is not None and job.start is not None:
        waiting.pop(job.id, None)
        if not waiting:
            del state.starters[job.start.run]


def source_ended(state: State, source: Job, changes: Changes) -> None:
    """The source leaves the state: those that start from it keep what they have to know of it."""
    for name in state.starters.get(source.id, ()):
        job = state.jobs[name]
        if job.start is not None:
            job.start = replace(job.start, trusted=source.trusted, store=store_of(source))
            changes.jobs[name] = job
