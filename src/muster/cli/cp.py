"""`muster cp`: copies files and folders to and from the folder of a running job."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final, NamedTuple

import typer

from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.exec_ import Worker, waiting
from muster.cli.format import size
from muster.cli.output import emit, note
from muster.copying import Progress
from muster.core.errors import Invalid

_REMOTE: Final = re.compile(r"(?P<job>[A-Za-z0-9][\w.-]*):(?P<path>.*?)(?:@(?P<worker>\d+))?", re.DOTALL)


class Remote(NamedTuple):
    job: str
    path: str
    worker: int | None


def cp(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A local path, or JOB:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A local path, or JOB:PATH.")],
    worker: Worker = None,
    json: Json = False,
) -> None:
    """Copy a file or a folder to or from a running job: one of the two is JOB:PATH, or JOB:PATH@WORKER.

    A relative PATH starts in the job's folder. What is copied is checked, and has its name only when it is complete. It
    is read and written as the job's user, isolated as its ranks are."""
    there, to_job = _remote(source, worker), False
    if there is None:
        there, to_job = _remote(target, worker), True
    if there is None or (not to_job and _remote(target, worker)):
        raise Usage("cp: one of the two is JOB:PATH, and the other one a local path.", "A local a:b is ./a:b.")
    with client() as to, _progress() as progress:
        try:
            if to_job:
                copied = to.copy_to(
                    there.job, source, there.path, worker=there.worker, progress=progress, on_wait=waiting
                )
            else:
                copied = to.copy_from(
                    there.job, there.path, target, worker=there.worker, progress=progress, on_wait=waiting
                )
        except OSError as error:
            raise Invalid(f"cp: {error}.", "Nothing was left under the final name.") from None
    if json:
        emit({"files": copied.files, "bytes": copied.bytes, "skipped": copied.skipped})
    elif copied.skipped:
        note(f"{copied.skipped} that are no files, folders or links were left out")


def _remote(text: str, worker: int | None) -> Remote | None:
    found = _REMOTE.fullmatch(text)
    if found is None:
        return None
    if worker is not None:  # then an @ is part of the path
        return Remote(found["job"], text[len(found["job"]) + 1 :], worker)
    return Remote(found["job"], found["path"], int(found["worker"]) if found["worker"] else None)


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A bar on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    shown: list[int] = []

    def tell(done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if not shown or shown[-1] != percent:
            shown[:] = [percent]
            bar = "#" * (percent // 4)
            sys.stderr.write(f"\r[{bar:<25}] {percent:3}% of {size(total)}")
            sys.stderr.flush()

    told: Callable[[int, int], None] = tell
    try:
        yield told
    finally:
        if shown:
            sys.stderr.write("\n")
