"""Takes the stacks of a worker's ranks, in a process of its own: what hangs a rank can't hang its launcher. With a
number of seconds it goes on looking for so long, for a profile.

The launcher's thread starts the process and gives each rank's document to its host stream. The process runs with the
ranks' rights, inside of their sandbox if they have one, and writes one line of JSON a rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import processes, profile, stacks
from muster.runtime.flight_record import keep_flight_record
from muster.runtime.folder import Folder
from muster.runtime.ranks import Rank
from muster.runtime.sandbox import Sandbox

LIMIT: Final = 5.0  # seconds for all ranks
SPARE: Final = 3.0  # seconds more for the process to start and to answer
_ANSWER_BYTES: Final = 2 * stacks.DOC_BYTES  # per rank
_HOST: Final = "import sys; sys.path.append(sys.argv[1]); from muster.runtime.stacks_host import main; main()"

Tell = Callable[[int, dict[str, Any]], None]


class StackTaker:
    """Takes stacks when the launcher is told to. `tell` gets a rank and its document, in a thread."""

    def __init__(self, launch: wire.Launch, folder: Folder, sandbox: Sandbox | None, tell: Tell) -> None:
        self._launch, self._folder, self._sandbox, self._tell = launch, folder, sandbox, tell
        self._next: tuple[int, list[Rank], float] | None = None
        self._busy = False
        self._pid = 0  # of the process
        self._lock = threading.Lock()

    def take(self, order: int, ranks: list[Rank], seconds: float = 0.0) -> None:
        """Returns at once. Of the orders that come while one is carried out, the last is next."""
        with self._lock:
            self._next = (order, ranks, min(max(0.0, seconds), profile.LONGEST))
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._run, name="stacks", daemon=True).start()

    def processes(self) -> list[int]:
        """Those that take stacks now. Their memory is not the ranks'."""
        pid = self._pid
        return [pid, *processes.descendants(pid)] if pid else []

    def _run(self) -> None:
        while True:
            with self._lock:
                todo, self._next = self._next, None
                if todo is None:
                    self._busy = False
                    return
            self._take(*todo)

    def _take(self, order: int, ranks: list[Rank], seconds: float) -> None:
        living = {one.rank: one.pid for one in ranks if one.exit is None}
        waiting = set(living)
        for one in ranks:
            if one.exit is not None:
                how = f"signal {one.exit.signal}" if one.exit.signal else f"exit code {one.exit.exit_code}"
                self._send(order, one.rank, [], f"the rank has ended with {how}")
        problem = f"its node did not find out within {LIMIT + SPARE + seconds:g} s"
        try:
            for rank, found, profiled in self._answers(living, seconds):
                if rank in waiting:
                    waiting.discard(rank)
                    self._send(order, rank, found, "" if found else "the rank has ended", profiled)
        except (OSError, ValueError, LookupError, TypeError) as error:
            problem = f"its node could not find out: {error}"[:200]
            processes.log_line(f"stacks could not be taken: {error!r}")
        for rank in waiting:
            self._send(order, rank, [], problem)

    def _send(
        self, order: int, rank: int, found: list[Any], problem: str, profiled: dict[str, Any] | None = None
    ) -> None:
        world = self._launch.num_nodes * self._launch.nproc
        doc = {"type": "stacks", "id": f"{order}:{rank}", "order": order, "world": world, "problem": problem}
        self._tell(rank, {**doc, "processes": found, **({"profile": profiled} if profiled is not None else {})})

    def _answers(self, living: Mapping[int, int], seconds: float) -> Any:
        """Each rank with its processes and its profile, as they arrive within the limit."""
        if not living:
            return
        until = time.monotonic() + LIMIT + SPARE + seconds
        with self._started(living, seconds) as output:
            held, most = b"", _ANSWER_BYTES * len(living)
            while (left := until - time.monotonic()) > 0 and most > 0 and select.select([output], [], [], left)[0]:
                chunk = os.read(output, 1 << 16)
                if not chunk:
                    return
                most -= len(chunk)
                *lines, held = (held + chunk).split(b"\n")
                for line in lines:
                    answer = json.loads(line)
                    yield int(answer["rank"]), list(answer["processes"]), answer["profile"]

    @contextlib.contextmanager
    def _started(self, living: Mapping[int, int], seconds: float) -> Any:
        namespaces = self._sandbox.namespaces if self._sandbox else ()
        given = {
            "parent": os.getpid(),
            "folder": str(self._folder.path),
            "isolation": asdict(self._launch.isolation) if self._sandbox and self._launch.isolation else None,
            "namespaces": namespaces,
            "seconds": seconds,
            "spy": stacks.find_spy(self._launch.envs.get("PATH", "")),
            "ranks": [[rank, pid, str(self._folder.rank_files_dir(rank))] for rank, pid in living.items()],
        }
        root = str(Path(wire.__file__).resolve().parents[1])
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HOST, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            pass_fds=namespaces, start_new_session=True, cwd="/",
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        self._pid = process.pid
        try:
            with process.stdin:
                process.stdin.write(json.dumps(given).encode())
            yield process.stdout.fileno()
        finally:
            self._pid = 0
            process.stdout.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, 9)
            process.returncode = 0  # the launcher's loop reaps it


def main() -> None:
    """In the process."""
    processes.die_with_parent()
    given = json.load(sys.stdin.buffer)
    if os.getppid() != given["parent"]:
        return
    processes.set_process_name("muster-stacks")
    ranks = [(int(rank), int(pid), Path(folder)) for rank, pid, folder in given["ranks"]]
    if given["isolation"]:
        processes.adopt_orphans()
        ranks = [(rank, _inner(pid), folder) for rank, pid, folder in ranks]
        isolation = wire.Isolation.from_dict(given["isolation"])
        child = Sandbox.joined(isolation, Path(given["folder"]), given["namespaces"]).fork()
        if child:
            os.waitpid(child, 0)
            return
    try:
        _collect(ranks, given["spy"], given["seconds"])
    finally:
        os._exit(0)  # also from threads that hang


def _collect(ranks: list[tuple[int, int, Path]], spy: str, seconds: float) -> None:
    until = time.monotonic() + LIMIT
    written = threading.Lock()

    def run(rank: int, pid: int, folder: Path) -> None:
        found = stacks.collect(pid, folder, spy, until)
        profiled = profile.take(pid, folder, spy, seconds) if seconds > 0 and found else None
        line = json.dumps({"rank": rank, "processes": found, "profile": profiled}).encode() + b"\n"
        with written:
            while line:
                line = line[os.write(1, line) :]
        keep_flight_record(pid, rank, folder)

    threads = [threading.Thread(target=run, args=one, daemon=True) for one in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until + seconds + SPARE / 2 - time.monotonic()))


def _inner(pid: int) -> int:
    """The id of a process in its own namespace."""
    for line in processes.read(f"/proc/{pid}/status").decode(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid
