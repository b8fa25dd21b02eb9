"""The server as a process of this machine: finds it by its home folder, starts it in the background, stops it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from muster.api.health import Readiness
from muster.client import Client
from muster.core.errors import ConfigError, MusterError, Unavailable

START_TIMEOUT: Final = 1800.0  # seconds until a server that makes progress is expected to be ready
STALL_TIMEOUT: Final = 120.0  # seconds in which a starting server must compute or log something
SAY_EVERY: Final = 30.0  # seconds between two lines that say that it is still starting
STANDBY_AFTER: Final = 5.0  # seconds after which a server that is not the leader is considered a stand-by
STOP_TIMEOUT: Final = 60.0
_LOOK_EVERY: Final = 0.05
_TAIL: Final = 15  # lines of the log


@dataclass(frozen=True, slots=True)
class Running:
    """A running server process. Its start time distinguishes it from a later process with the same id."""

    pid: int
    start_ticks: int
    urls: tuple[str, ...]

    def alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks


def find(home: Path) -> Running | None:
    """The running server of this home. Ignores the file that a killed server may have left."""
    try:
        raw = json.loads((home / "server.json").read_text())
        found = Running(int(raw["pid"]), int(raw["start_ticks"]), tuple(raw["urls"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if this_boot(raw) and found.alive() else None


def start(
    home: Path,
    words: Sequence[str],
    env: Mapping[str, str] | None = None,
    on_wait: Callable[[str], None] = lambda line: None,
) -> Running:
    """Starts a server in its own session and waits until it is ready, as long as it lives and makes progress.

    Raises ConfigError with the end of its log if it dies, or if it runs with a certificate that can't be used.
    `env`: variables for the server only. `on_wait` is called with a line for people while it takes long.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = home / "server.log"
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    began_at = os.fstat(fd).st_size
    # -P: modules are not imported from the home. It is the current folder so that the server blocks no other folder.
    command = [sys.executable, "-P", "-m", "muster", "--home", str(home), "up", *words]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, start_new_session=True, cwd=home,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
    finally:
        os.close(fd)
    began = moved_at = time.monotonic()
    seen, said_at = _traces(process.pid, log), began
    standby_at: float | None = None
    while (now := time.monotonic()) < min(began + START_TIMEOUT, moved_at + STALL_TIMEOUT):
        if process.poll() is not None:
            raise ConfigError(_last_words(log, began_at), f"Mend that and start it again. The whole log is {log}.")
        found = find(home)
        if found is not None and found.pid == process.pid:
            answer = _readiness(found, home)
            if answer and answer["ready"]:
                return found
            if answer and answer["holder"] and not answer["leader"]:
                standby_at = standby_at or time.monotonic()
                if time.monotonic() - standby_at > STANDBY_AFTER:
                    return found
        if (traces := _traces(process.pid, log)) != seen:
            seen, moved_at = traces, now
        if now - said_at >= SAY_EVERY:
            said_at = now
            on_wait(f"The server (pid {process.pid}) is still starting after {now - began:.0f} s; its log is {log}.")
        time.sleep(_LOOK_EVERY)
    stalled = "" if now >= began + START_TIMEOUT else f", and has done nothing for {STALL_TIMEOUT:g} s"
    raise Unavailable(
        f"The server (pid {process.pid}) is not ready after {now - began:.0f} s{stalled}.",
        f"It is left running: see {log}, and end it with `kill {process.pid}`.",
    )


def stop(server: Running) -> None:
    """Asks the server to stop and waits until it has."""
    try:
        os.kill(server.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise ConfigError(f"The server (pid {server.pid}) belongs to another user.", "Ask them to stop it.") from None
    deadline = time.monotonic() + STOP_TIMEOUT
    while server.alive():
        if time.monotonic() > deadline:
            hint = f"See its log; `kill -9 {server.pid}` ends it at once, and jobs go on all the same."
            raise Unavailable(f"The server (pid {server.pid}) has not ended after {STOP_TIMEOUT:.0f} s.", hint)
        time.sleep(_LOOK_EVERY)


def start_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None when it has ended, or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _traces(pid: int, log: Path) -> tuple[list[str], int]:
    """What changes as long as a process does something: its time on the processors, and the size of its log."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        fields = []
    return fields[11:15], log.stat().st_size


def this_boot(identity: Mapping[str, Any]) -> bool:
    """Process ids and start times restart with every boot. A record that an older server wrote has no boot id."""
    said = identity.get("boot_id")
    return said is None or said == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _readiness(server: Running, home: Path) -> Readiness | None:
    try:
        with Client(",".join(server.urls), home=home, timeout=5) as to:
            return to.ready()
    except ConfigError as error:
        told = f"The server (pid {server.pid}) runs, but nothing can use it. {error.message}"
        raise ConfigError(told, f"{error.hint} `muster down` stops it.") from error
    except MusterError:
        return None  # it has an address, but does not answer yet


def _last_words(log: Path, began_at: int) -> str:
    with log.open("rb") as file:
        file.seek(began_at)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(["The server ended before it was ready. It said:", *(f"  {line}" for line in lines[-_TAIL:])])
