"""Reads the stacks that py-spy and Python's faulthandler write."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

FRAMES: Final = 100  # kept of each thread
THREADS: Final = 64  # kept of each process
TEXT: Final = 300  # characters of a path, the last of them
_HEAD: Final = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+(?: \[(.*)\])? .*\(most recent call first\):$")
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
_OWN: Final = "/muster/runtime/rank_collectives.py"  # Muster's own thread in ranks, which is left out
_CUT: Final = "..."  # faulthandler's end of a list that is too long


class PythonThread(NamedTuple):
    tid: int | None  # of the kernel; None where it is not known
    name: str
    main: bool
    frames: list[dict[str, Any]]  # the innermost first


def from_py_spy(text: bytes, pid: int) -> list[PythonThread]:
    """The threads in py-spy's JSON. Raises ValueError, LookupError, TypeError or AttributeError if it is something
    else."""
    found = []
    for raw in json.loads(text)[:THREADS]:
        tid = raw["os_thread_id"]
        frames = [frame(one["name"], one["filename"], one["line"]) for one in raw["frames"][:FRAMES]]
        if not _is_own(frames):
            found.append(PythonThread(tid, str(raw["thread_name"] or ""), tid == pid, frames))
    return found


def from_faulthandler(text: str) -> list[PythonThread]:
    """The threads in a dump. Python lists the main thread last; if there are too many, the main thread is missing, and
    it is most often the one that ran the handler."""
    found: list[tuple[str, bool, list[dict[str, Any]]]] = []
    cut = False
    for line in text.splitlines():
        if head := _HEAD.match(line):
            found.append((head[2] or "", head[1].startswith("Current"), []))
        elif (at := _FRAME.match(line)) and found:
            found[-1][2].append(frame(at[3], at[1], int(at[2])))
        elif line == _CUT:
            cut = True
    last = len(found) - 1
    threads = [
        PythonThread(None, name, current if cut else at == last, frames[:FRAMES])
        for at, (name, current, frames) in enumerate(found)
        if not _is_own(frames)
    ]
    mains = [one for one in threads if one.main]
    return (mains + [one for one in threads if not one.main])[:THREADS]


def frame(function: object, file: object, line: object) -> dict[str, Any]:
    number = line if isinstance(line, int) else 0
    return {"function": str(function)[:TEXT], "file": str(file)[-TEXT:], "line": max(0, number)}


def _is_own(frames: list[dict[str, Any]]) -> bool:
    return any(one["file"].endswith(_OWN) for one in frames)
