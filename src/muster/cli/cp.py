"""`muster cp`: copies files and folders to and from the folder of a running job."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.exec_ import Worker, waiting
from muster.cli.format import size
from muster.cli.output import emit, note
from muster.client import Client
from muster.client.blocking import complete
from muster.client.exec_calls import ExecStream, exit_code, open_exec
from muster.copying import BLOCK, Copied, CopyError, Progress, receive, send
from muster.core.errors import Conflict, Invalid
from muster.exec_frames import DATA, END, EOF, STDERR

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
    with client() as to:
        try:
            copied = _put(to, Path(source), there) if to_job else _get(to, there, Path(target))
        except (CopyError, OSError) as error:
            raise Invalid(f"cp: {error}.", "Nothing was left under the final name.") from None
    if json:
        emit({"files": copied.files, "bytes": copied.bytes, "skipped": copied.skipped})
    elif copied.skipped:
        note(f"{copied.skipped} that are no files, folders or links were left out")


class _Copy:
    """A session that copies; keeps what the other side writes about it."""

    def __init__(self, stream: ExecStream) -> None:
        self._stream = stream
        self._said = b""
        self._code: int | None = None

    def read(self) -> bytes:
        """The next bytes; empty at the end. Raises Invalid, with the other side's words, if it failed."""
        while self._code is None:
            found = b""
            for frame in complete(self._stream.receive()):
                if frame.kind == DATA:
                    found += frame.data
                elif frame.kind == STDERR:
                    self._said = (self._said + frame.data)[:2000]
                elif frame.kind == END:
                    self._code = exit_code(frame)
            if found:
                return found
        if self._code:
            said = self._said.decode(errors="replace").strip() or f"it failed with status {self._code}"
            job = self._stream.view["job"]
            raise Invalid(f"cp: on the node of {job}: {said}.", f"`muster exec {job} -- ls -la` shows its folder.")
        return b""

    def write(self, data: bytes) -> None:
        try:
            for at in range(0, len(data), BLOCK):
                complete(self._stream.send(DATA, data[at : at + BLOCK]))
        except Conflict:  # it has ended: why is in what it wrote
            self.read()
            raise

    def end_input(self) -> None:
        with suppress(Conflict):  # the other side has all of it and ended already
            complete(self._stream.send(EOF))


def _get(to: Client, there: Remote, target: Path) -> Copied:
    with _session(to, there, "send") as copy, _progress() as progress:
        copied = receive(copy.read, target, progress)
        copy.read()
        return copied


def _put(to: Client, source: Path, there: Remote) -> Copied:
    source.stat()  # before anything is opened there
    with _session(to, there, "receive") as copy, _progress() as progress:
        copied = send(str(source), copy.write, progress)
        copy.end_input()
        copy.read()
        return copied


@contextmanager
def _session(to: Client, there: Remote, direction: str) -> Iterator[_Copy]:
    path = [there.path or "."]
    stream = complete(open_exec(to, there.job, path, worker=there.worker, copy=direction, on_wait=waiting))
    try:
        yield _Copy(stream)
    except BaseException:
        complete(stream.close())
        raise


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
