"""Classifies how a worker ended: a reason and its detail from exit codes, signals and the last output."""

from __future__ import annotations

import re
import signal
from typing import Final, NamedTuple

from muster import wire
from muster.runtime.device_memory import shortage

# Codes of `core.reasons`, which this side of the wire can't import.
COMPLETED: Final = "completed"
USER_ERROR: Final = "user_error"
USER_STOP: Final = "user_stop"
COMMAND_NOT_FOUND: Final = "command_not_found"
COMMAND_NOT_EXECUTABLE: Final = "command_not_executable"
HOST_OUT_OF_MEMORY: Final = "host_out_of_memory"
OUT_OF_MEMORY: Final = "out_of_memory"
DEVICE_OUT_OF_MEMORY: Final = "device_out_of_memory"
KILLED_BY_SIGNAL: Final = "killed_by_signal"
WORKDIR_MISSING: Final = "workdir_missing"
SECRET_MISSING: Final = "secret_missing"  # noqa: S105
LAUNCH_FAILED: Final = "launch_failed"
LAUNCHER_LOST: Final = "launcher_lost"
NOT_ISOLATED: Final = "not_isolated"
NODE_LOST: Final = "node_lost"
NODE_CHECK_FAILED: Final = "node_check_failed"
SPOT_NOTICE: Final = "spot_notice"
NO_GOOD_CHECKPOINT: Final = "no_good_checkpoint"
START_MISSING: Final = "start_missing"
MAX_DURATION: Final = "max_duration"
REASONS: Final = (
    COMPLETED,
    USER_ERROR,
    USER_STOP,
    COMMAND_NOT_FOUND,
    COMMAND_NOT_EXECUTABLE,
    HOST_OUT_OF_MEMORY,
    OUT_OF_MEMORY,
    DEVICE_OUT_OF_MEMORY,
    KILLED_BY_SIGNAL,
    WORKDIR_MISSING,
    SECRET_MISSING,
    LAUNCH_FAILED,
    LAUNCHER_LOST,
    NOT_ISOLATED,
    NODE_LOST,
    NODE_CHECK_FAILED,
    SPOT_NOTICE,
    NO_GOOD_CHECKPOINT,
    START_MISSING,
    MAX_DURATION,
)

DETAIL_BYTES: Final = 4096
DETAIL_LINES: Final = 10
TRACEBACK: Final = "Traceback (most recent call last):"

# A shell exits with 128 + N when its command was ended by signal N.
_SHELL_SIGNALS: Final = {128 + number for number in (4, 6, 7, 8, 9, 11, 15)}
# The last line of a traceback, or what `python -m muster.train` prints in its place.
_NO_CHECKPOINT: Final = re.compile(
    r"^(?:\[rank\d+\]: )?(?:muster: (?:rank \d+: )?|muster\.[\w.]+\.)(NoGoodCheckpoint|StartMissing): (.*)$",
    re.MULTILINE,
)
# The line of an exception: the first after the frames that is not indented. torch.distributed marks lines with a rank.
_EXCEPTION: Final = re.compile(r"^(?:\[rank\d+\]: )?[^\W\d][\w.<>]*(?::.*)?$", re.MULTILINE)
_SHELL_LINE: Final = re.compile(r"^(?:\S*/)?(?:ba|da)?sh: .*$", re.MULTILINE)


class Cause(NamedTuple):
    reason: str
    detail: str


def classify_exit(ended: wire.RankExit, pid: int, tail: str, oom_killed: bool) -> Cause:
    """Why a rank failed. `tail` is the end of its output; `oom_killed`: the kernel was killing for lack of memory."""
    code = ended.exit_code
    signum = ended.signal
    if signum is None and code in _SHELL_SIGNALS:
        signum = code - 128
    if signum == signal.SIGKILL and oom_killed:
        detail = f"rank {ended.rank} (pid {pid}) was killed by the kernel: the machine had no memory left"
        return Cause(HOST_OUT_OF_MEMORY, detail)
    if signum is not None:
        last = excerpt(tail)
        detail = f"rank {ended.rank} (pid {pid}) was killed by {signal_name(signum)}"
        return Cause(KILLED_BY_SIGNAL, f"{detail}\n{last}" if last else detail)
    if code in (126, 127) and (line := _shell_line(tail)):
        missing = code == 127 and ("not found" in line or "No such file or directory" in line)
        if missing or code == 126:
            return Cause(COMMAND_NOT_FOUND if missing else COMMAND_NOT_EXECUTABLE, line)
    last = excerpt(tail) or "it printed nothing"
    if missing_memory := shortage(last):
        return Cause(DEVICE_OUT_OF_MEMORY, f"rank {ended.rank} {missing_memory}\n{last}")
    if found := _NO_CHECKPOINT.search(last):
        return Cause(NO_GOOD_CHECKPOINT if found[1] == "NoGoodCheckpoint" else START_MISSING, found[2])
    return Cause(USER_ERROR, f"rank {ended.rank} ended with exit code {code}\n{last}")


def excerpt(tail: str) -> str:
    """The last Python traceback of an output, else its last lines."""
    found = tail.rfind(TRACEBACK)
    if found < 0:
        return "\n".join(tail.rstrip().splitlines()[-DETAIL_LINES:])[-DETAIL_BYTES:]
    text = tail[found:].rstrip()
    if len(text) <= DETAIL_BYTES:
        return text
    # Of a long one, the innermost frames, the exception and the beginning of its message say what went wrong.
    raised = _EXCEPTION.search(text, len(TRACEBACK))
    frames, message = (text[: raised.start()], text[raised.start() :]) if raised else (text, "")
    if len(message) > DETAIL_BYTES // 2:
        message = f"{message[: DETAIL_BYTES // 2]}\n..."
    room = DETAIL_BYTES - len(message) - len(TRACEBACK) - 10
    if len(frames) > room:
        frames = f"{TRACEBACK}\n  ...\n" + frames[-room:].partition("\n")[2]
    return frames + message


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def format_size(size: int) -> str:
    """A readable size."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _shell_line(tail: str) -> str:
    lines = _SHELL_LINE.findall(tail)
    return lines[-1][:DETAIL_BYTES] if lines else ""
