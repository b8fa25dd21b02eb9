"""Runs `beside` on a node of a job through an exec session, and returns what it said before it acted."""

from __future__ import annotations

import json
import time
from importlib.resources import files
from typing import Any, Final

from muster.client import Client, MusterError
from muster.client.blocking import complete
from muster.client.exec_calls import ExecStream, exit_code, open_exec
from muster.core.errors import Unavailable
from muster.exec_frames import DATA, END, EOF, STDERR

START_SECONDS: Final = 30.0  # for the session to begin, and the program to say what it does
_AFTER: Final = 2.0  # seconds after the act in which a session that does not outlive it is given up
_PARTS: Final = ("beside", "beside_memory", "beside_network")  # modules that are sent; the others import the first
_PYTHON: Final = 'exec "$(command -v python3 || command -v python)" - "$1"'


class NotInjected(Exception):
    """The fault could not be injected, as a sentence."""


def inject(client: Client, job: str, rank: int, /, lasts: float = 0.0, **asked: Any) -> dict[str, Any]:
    """Injects the fault `asked` on the node of this rank and returns its facts, "time" among them.

    `lasts`: seconds that the fault takes. A session that ends with its launcher is no error once its line has come.
    """
    command = ["/bin/sh", "-c", _PYTHON, "drill", json.dumps(asked)]
    stream: ExecStream | None = None
    try:
        stream = complete(open_exec(client, job, command, rank=rank, start_timeout=START_SECONDS))
        complete(stream.send(DATA, program()))
        complete(stream.send(EOF))
        return _facts(stream, lasts)
    except (MusterError, TimeoutError) as error:
        raise NotInjected(f"the command beside rank {rank} failed: {error}") from error
    finally:
        if stream is not None:
            complete(stream.close())


def program() -> bytes:
    """The text of `beside` and its parts, as one program: on the node there is no `muster.drill` to import."""
    texts = {f"muster.drill.{name}": files("muster.drill").joinpath(f"{name}.py").read_text() for name in _PARTS}
    return f"""import sys, types
for name, text in {texts!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules["muster.drill.beside"].main(sys.argv[1])
""".encode()


def _facts(stream: ExecStream, lasts: float) -> dict[str, Any]:
    said = {DATA: b"", STDERR: b""}
    facts: dict[str, Any] | None = None
    code: int | None = None
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        try:
            frames = complete(stream.receive(min(1.0, max(0.0, until - time.monotonic()))))
        except MusterError:
            if facts is None:
                raise
            return facts  # the session ended with its launcher
        for frame in frames:
            if frame.kind in said:
                said[frame.kind] += frame.data
        line, end, _ = said[DATA].partition(b"\n")
        if facts is None and end:
            facts = json.loads(line)
            until = time.monotonic() + lasts + _AFTER
            if "refused" in facts:
                raise NotInjected(str(facts["refused"]))
        if ended := next((frame for frame in frames if frame.kind == END), None):
            code = exit_code(ended) if facts is None else 0  # raises, with why, if the session ended before the command
            break
    if facts is not None:
        return facts
    what = f"It said nothing in {START_SECONDS:.0f} s." if code is None else f"It ended with exit code {code}."
    told = said[STDERR].decode(errors="replace").strip()[-500:]
    raise Unavailable(f"{what} {told}".strip(), "Is there a Python in the job's PATH?")
