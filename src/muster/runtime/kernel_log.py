"""The last lines of the kernel's log, for processes that may read it."""

from __future__ import annotations

import os
import time
from typing import Final

_PATH: Final = "/dev/kmsg"
_RECORD: Final = 8192  # bytes; a read returns one record
_MOST: Final = 100_000  # records


class Unreadable(Exception):
    """The log can't be read; the text says why."""


def recent_lines(seconds: float) -> list[str]:
    """The lines of the last `seconds`, oldest first. Raises Unreadable."""
    try:
        log = os.open(_PATH, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise Unreadable(f"{_PATH}: {error.strerror}") from None
    since, lines = time.clock_gettime(time.CLOCK_MONOTONIC) - seconds, []
    try:
        for _ in range(_MOST):
            try:
                record = os.read(log, _RECORD)
            except BlockingIOError:  # the end
                break
            except BrokenPipeError:  # records were overwritten meanwhile: goes on with the oldest
                continue
            moment, line = parse_record(record.decode(errors="replace"))
            if moment >= since:
                lines.append(line)
    except OSError as error:
        raise Unreadable(f"{_PATH}: {error.strerror}") from None
    finally:
        os.close(log)
    return lines


def parse_record(record: str) -> tuple[float, str]:
    """The time of a record in seconds since the machine started, and its text."""
    head, _, text = record.partition(";")
    fields = head.split(",")
    moment = int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else 0.0
    return moment, text.partition("\n")[0]
