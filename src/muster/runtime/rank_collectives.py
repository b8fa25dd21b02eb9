"""Writes, in a rank, how many collectives each of its process groups has begun, for the launcher's pulses.

`rank_site` runs this file when a program with several ranks imports PyTorch; the program itself needs no change. A
thread looks once in a while, in microseconds, and never waits for a collective. Reading the number of a group takes no
lock. A thread that does not get the GIL writes nothing, so the file has a count of looks: by it the launcher knows
that what it reads is old. Standard library only, and run in a namespace of its own.
"""

from __future__ import annotations

import _thread
import json
import os
import sys
import time

FILE = "collectives."  # and the process id; in the rank's folder
EVERY = 1.5  # seconds: as often as a launcher takes pulses
GROUPS = 8  # the first ones of a process: as many as `wire` allows
NAME = 24  # characters of a group's name
BYTES = 1024  # of the file


def start(module: str) -> None:
    """Starts the thread, which waits for the process groups of the module. It is not joined at the program's end."""
    place = os.path.join(os.environ["MUSTER_RANK_DIR"], FILE + str(os.getpid()))  # noqa: PTH118
    _thread.start_new_thread(_watch, (module, place))


def begun(module: str) -> dict[str, int]:
    """By process group of this process, how many collectives it has begun. Empty before there are groups."""
    counts: dict[str, int] = {}
    world = getattr(sys.modules.get(module), "_world", None)
    for group in list(world.pg_map)[:GROUPS] if world is not None else ():
        try:
            counts[str(group.group_name)[:NAME]] = int(group._get_sequence_number_for_group())
        except Exception:  # noqa: S112  (a backend that does not count)
            continue
    return counts


def _watch(module: str, place: str) -> None:
    looks = 0
    try:
        while True:
            time.sleep(EVERY)
            counts = begun(module)
            if counts:
                looks += 1
                text = json.dumps({"looks": looks, "begun": counts}).encode()
                # Opened anew: a program may close every descriptor that it does not know.
                file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                try:
                    os.write(file, text.ljust(BYTES))
                finally:
                    os.close(file)
    except Exception:  # noqa: S110  (the program is more important)
        pass
