"""Active checks of a node: each is named, runs in a process of its own, and is ended after five seconds.

`python -m muster.runtime.node_checks [FOLDER] [OPTION...]` runs all of them, writes in the folder, and prints JSON:

    --shared           jobs may use the accelerators
    --accelerators=N   the process was given so many whole ones
    --no-accelerators  it was given none, because others hold them: their checks are unknown
    --result=FILE      write the JSON there too, at most RESULT_BYTES of it

A check that can't be made, or does not answer, is "unknown"; only a check that saw a fault is "failed".
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from muster.runtime.device_checks import device_compute, device_health, device_memory, devices_present
from muster.runtime.kernel_log import Unreadable, recent_lines
from muster.runtime.node_finding import Failed, Node, Unknown
from muster.runtime.xid_codes import SICK, find_xid

CAP: Final = 5.0  # seconds for each check; all run at the same time
DISK_BYTES: Final = 16 << 20
DISK_FREE: Final = 256 << 20  # bytes; with less, any job here would fail soon
KERNEL_SECONDS: Final = 3600.0  # how far back the kernel's log is read
Status = Literal["ok", "failed", "unknown"]
RESULT_BYTES: Final = 4096  # of a result in a file, which may be a container's termination message
DETAIL: Final = 2000  # characters of a finding
_ANSWER_MAX: Final = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Status
    detail: str
    seconds: float


def run_checks(node: Node, checks: Mapping[str, Callable[[Node], str]] | None = None) -> list[Finding]:
    """Runs the checks at the same time. Call it before the process has threads and before it touches a device."""
    began = time.monotonic()
    running = {name: _Child(name, check, node) for name, check in (CHECKS if checks is None else checks).items()}
    waiting = {child.pipe: child for child in running.values()}
    while waiting and (left := began + CAP - time.monotonic()) > 0:
        for pipe in select.select(list(waiting), [], [], left)[0]:
            if waiting[pipe].read():
                del waiting[pipe]
    return [child.end(time.monotonic() - began) for child in running.values()]


def failures(findings: Sequence[Finding]) -> str:
    """The checks that failed, in a sentence without an end; empty if none did."""
    return "; ".join(f"{one.check}: {one.detail}" for one in findings if one.status == "failed")


class _Child:
    """The process of one check, and the pipe on which it answers."""

    def __init__(self, name: str, check: Callable[[Node], str], node: Node) -> None:
        self._name = name
        self._answer = b""
        self._done: float | None = None
        self._began = time.monotonic()
        self.pipe, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _answer(writing, check, node)
        os.close(writing)

    def read(self) -> bool:
        """Takes what there is; True at the end of the answer."""
        part = os.read(self.pipe, _ANSWER_MAX)
        self._answer += part
        if not part or len(self._answer) > _ANSWER_MAX:
            self._done = time.monotonic() - self._began
        return self._done is not None

    def end(self, seconds: float) -> Finding:
        os.close(self.pipe)
        if self._done is None:
            os.kill(self._pid, signal.SIGKILL)
        self._reap()
        if self._done is None:
            return Finding(self._name, "unknown", f"no answer within {CAP:g} s", seconds)
        try:
            status, detail = json.loads(self._answer)
        except ValueError:
            return Finding(self._name, "unknown", "the check ended without an answer", self._done)
        return Finding(self._name, status, detail, self._done)

    def _reap(self) -> None:
        """A process in uninterruptible sleep survives SIGKILL, and is not waited for."""
        until = time.monotonic() + 0.5
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
            time.sleep(0.01)


def _answer(pipe: int, check: Callable[[Node], str], node: Node) -> None:
    """In the child: runs the check, writes its status and detail, and ends the process."""
    status: Status = "unknown"
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        detail = check(node)
        status = "ok"
    except Failed as error:
        status, detail = "failed", str(error)
    except Unknown as error:
        detail = str(error)
    except BaseException as error:  # a fault of the check is none of the node
        detail = f"the check broke: {error!r}"
    try:
        os.write(pipe, json.dumps([status, detail[:DETAIL]]).encode())
    finally:
        os._exit(0)


def disk(node: Node) -> str:
    """Writes a file with random content, makes the disk have it, and reads it back without the page cache."""
    path = node.folder / f".muster-disk-check-{os.getpid()}"
    content = os.urandom(DISK_BYTES)
    try:
        status = os.statvfs(node.folder)
        free = status.f_bavail * status.f_frsize
        if free < DISK_FREE:
            raise Failed(f"{free >> 20} MiB are free in {node.folder}, of at least {DISK_FREE >> 20} MiB")
        began = time.monotonic()
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        seconds = time.monotonic() - began
        if path.read_bytes() != content:
            raise Failed(f"what was read from {node.folder} is not what was written")
        return f"{DISK_BYTES / 1e6 / max(seconds, 1e-6):.0f} MB/s written"
    except OSError as error:
        raise Failed(f"{node.folder}: {error.strerror or error}") from None
    finally:
        path.unlink(missing_ok=True)


def memory_errors(node: Node) -> str:
    """Errors of the machine's memory that it could not correct, by the kernel's counters."""
    counters = [*Path("/sys/devices/system/edac/mc").glob("mc*/ue_count")]
    if not counters:
        raise Unknown("the kernel counts no memory errors on this machine")
    wrong = sum(int(path.read_text() or 0) for path in counters)
    if wrong:
        raise Failed(f"{wrong} uncorrectable memory errors since the machine started")
    return f"no uncorrectable error on {len(counters)} controllers"


def kernel_log(node: Node) -> str:
    """Faults of hardware that the kernel logged in the last hour."""
    try:
        lines = recent_lines(KERNEL_SECONDS)
    except Unreadable as error:
        raise Unknown(str(error)) from None
    return judge_log(lines)


def judge_log(lines: Sequence[str]) -> str:
    """Raises Failed for lines that mean a sick device, machine check or disk."""
    found = [xid for line in lines if (xid := find_xid(line)) is not None]
    sick = [xid for xid in found if xid.action in SICK]
    if sick:
        said = ", ".join(sorted({f"Xid {xid.code} of {xid.device} ({xid.action})" for xid in sick}))
        raise Failed(f"the driver logged {said} in the last hour")
    for line in lines:
        if any(word in line for word in _FAULTS):
            raise Failed(f"the kernel logged: {line.strip()[:200]}")
    return f"{len(lines)} lines of the last hour" + (f", {len(found)} Xids of programs" if found else "")


# Corrected errors and a lack of memory are no faults of the machine.
_FAULTS: Final = (
    "Uncorrected error", "mce: [Hardware Error]: Machine check", "EDAC UE", "blk_update_request: critical",
    "critical medium error", "I/O error, dev nvme", "EXT4-fs error", "XFS: Internal error",
    "Remounting filesystem read-only",
)  # fmt: skip

CHECKS: Final[Mapping[str, Callable[[Node], str]]] = {
    "disk": disk,
    "memory_errors": memory_errors,
    "kernel_log": kernel_log,
    "devices": devices_present,
    "device_health": device_health,
    "device_memory": device_memory,
    "device_compute": device_compute,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exits with 1 if a check failed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    named = dict(word.partition("=")[::2] for word in given if word.startswith("--"))
    folder = Path(os.path.expandvars(next((word for word in given if not word.startswith("--")), ".")))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    count = int(named["--accelerators"]) if "--accelerators" in named else None
    node = Node(folder, accelerators=count, shared="--shared" in named)
    held = [name for name in CHECKS if name.startswith("device") and "--no-accelerators" in named]
    findings = run_checks(node, {name: check for name, check in CHECKS.items() if name not in held})
    findings += [Finding(name, "unknown", "others hold the node's accelerators", 0.0) for name in held]
    print(packed(findings).decode())  # noqa: T201
    if "--result" in named:
        Path(named["--result"]).write_bytes(packed(findings, RESULT_BYTES))
    return int(any(one.status == "failed" for one in findings))


def packed(findings: Sequence[Finding], most: int | None = None) -> bytes:
    """The findings as JSON. Details are cut so that it has at most so many bytes."""
    length = DETAIL
    while True:
        shown = [replace(one, detail=one.detail[:length], seconds=round(one.seconds, 3)) for one in findings]
        raw = json.dumps([asdict(one) for one in shown]).encode()
        if most is None or len(raw) <= most or not length:
            return raw
        length //= 2


if __name__ == "__main__":
    sys.exit(main())
