"""`muster exec` and `attach`: a command, or a shell, beside a running job's ranks."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.exec_session import ExecSession, window
from muster.cli.jobs import JobRef
from muster.cli.output import emit, note, show_error
from muster.client import MusterError
from muster.client.blocking import complete
from muster.client.exec_calls import open_exec

FAILED = 255  # the exit code if not the command but the session failed, as with ssh
_SHELL = 'exec "$(command -v bash || command -v sh)" -i'

Worker = Annotated[int | None, typer.Option(min=0, help="On the node of this worker; else of the first.")]
Rank = Annotated[int | None, typer.Option(min=0, help="On the node and in the environment of this rank.")]


def exec_(
    ref: JobRef,
    words: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The program and its arguments.")],
    worker: Worker = None,
    rank: Rank = None,
    tty: Annotated[
        bool | None,
        typer.Option("--tty/--no-tty", "-t/-T", help="In a terminal; by default if this is one.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Run a command in the folder and environment of a running job, isolated as its ranks are.

    Its exit code is the command's, or 255 if the session failed. Ctrl-C interrupts the command there. What it leaves
    running is killed. The event log records who ran what. With --json: code, stdout and stderr, when it has ended."""
    if json:
        _run_json(ref, words, worker, rank)
    terminal = sys.stdin.isatty() and sys.stdout.isatty() if tty is None else tty
    _run(ref, words, worker, rank, terminal)


def attach(ref: JobRef, worker: Worker = None, rank: Rank = None, json: Json = False) -> None:
    """Open a shell beside a running job's ranks, as ssh would on its node; `exit` or Ctrl-D leaves it.

    It runs in the job's folder and environment, isolated as its ranks are. It ends with the job.
    With --json, errors are JSON."""
    if not sys.stdin.isatty():
        raise Usage("attach needs a terminal.", f"Without one, use `muster exec {ref} -- COMMAND`.")
    _run(ref, ["/bin/sh", "-c", _SHELL], worker, rank, True, welcome=True, json=json)


def waiting(job: str) -> None:
    note(f"waiting for job {job} to start")


def _run(
    ref: str,
    words: list[str],
    worker: int | None,
    rank: int | None,
    terminal: bool,
    welcome: bool = False,
    json: bool = False,
) -> None:
    try:
        with client() as to:
            term, size = os.environ.get("TERM", ""), window() if terminal else None
            stream = complete(open_exec(to, ref, words, worker=worker, rank=rank, tty=size, term=term, on_wait=waiting))
            view = stream.view
            if welcome:
                told = f"{view['job']}, worker {view['worker']} on {view['node']}; `exit` or Ctrl-D leaves"
                note((told, "dim"))
            code = ExecSession(stream, terminal).run()
    except MusterError as error:
        show_error(error.to_dict(), as_json=json)
        code = FAILED
    raise typer.Exit(code)


def _run_json(ref: str, words: list[str], worker: int | None, rank: int | None) -> None:
    given = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    try:
        with client() as to:
            done = to.exec(ref, words, worker=worker, rank=rank, input=given)
    except MusterError as error:
        show_error(error.to_dict(), as_json=True)
        raise typer.Exit(FAILED) from None
    text = {name: getattr(done, name).decode(errors="replace") for name in ("stdout", "stderr")}
    emit({"code": done.code, **text})
    raise typer.Exit(done.code)
