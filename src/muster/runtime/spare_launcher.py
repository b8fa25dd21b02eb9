"""The launcher of a worker's next attempt, started while this one runs, with the spare process that becomes its ranks.

It waits for the name of the next attempt's folder on a pipe of the warm process, and then is that worker's launcher. It
ends, with the spare process, when the pipe is closed (the job is over, or the server is gone) and when no attempt has
followed for a minute.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import launcher, processes, rank_site, spare, spare_rules
from muster.runtime.folder import Folder
from muster.runtime.ranks import SHELLS, TO_DEFAULT, Rank, environment, open_output, workdir

LOOK: Final = 0.25  # seconds between two looks at what the running rank imports
LATER_LOOK: Final = 2.0  # seconds between two looks whether the attempt is over
FIRST_AGE: Final = (
    10.0  # seconds that a first attempt has to last: a short job would end before its spare process is of use
)
QUIET: Final = 2.0  # seconds without an import after which all are taken to be known
READY: Final = "spare"  # in the worker's folder: the id of the spare process that is ready
KEEP: Final = 60.0  # seconds that it waits for another attempt
READY_SECONDS: Final = 120.0  # for the imports
ANSWER_SECONDS: Final = 3.0  # for a rank
PAD_BYTES: Final = 32 << 10  # of environment that a rank may have more than the spare process
IMPORTS_BYTES: Final = 100 << 10  # of the modules' names: what fits into one message


class Spare:
    """The spare process of one worker. `start_ranks` is called once."""

    def __init__(self, launch: wire.Launch, folder: Folder) -> None:
        self._launch, self._folder = launch, folder
        self._env = environment(launch, 0, folder, {}, os.environ)
        self._modules: list[str] = []
        self._link: socket.socket | None = None
        self._pid = 0
        self._ready = False

    @property
    def fd(self) -> int:
        """Readable when the process has something to say or has ended; -1 for none."""
        return self._link.fileno() if self._link is not None else -1

    def start(self, modules: Sequence[str]) -> None:
        """Starts the process, which imports these modules. Raises OSError."""
        env = {name: value for name, value in self._env.items() if not spare_rules.varies(name)}
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        printed, parent = os.memfd_create("muster-spare"), os.getpid()
        env |= {rank_site.SPARE: str(theirs.fileno()), spare.PAD: "-" * PAD_BYTES}
        shell = next((path for path in SHELLS if os.access(path, os.X_OK)), "/bin/sh")
        self._pid = os.fork()
        if self._pid == 0:
            try:
                for signum in TO_DEFAULT:
                    signal.signal(signum, signal.SIG_DFL)
                processes.die_with_parent()
                if os.getppid() != parent:
                    os._exit(1)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(printed, 1)
                os.dup2(printed, 2)
                os.set_inheritable(theirs.fileno(), True)
                os.chdir(workdir(self._launch))
                os.execve(shell, [Path(shell).name, "-c", self._launch.run], env)  # noqa: S606
            finally:
                os._exit(126)
        theirs.close()
        os.close(printed)
        self._modules, self._link = list(modules), own
        own.settimeout(ANSWER_SECONDS)
        own.send(json.dumps({"import": self._modules}).encode())

    def hear(self) -> bool:
        """Takes the answer of a process that has imported everything; False if it can't be used."""
        answer = self._answer() if not self._ready else {}
        self._ready = bool(answer.get("ready"))
        if self._ready:
            with contextlib.suppress(OSError):
                (self._folder.path / READY).write_text(f"{self._pid}\n")
        elif why := answer.get("why"):
            processes.log_line(f"no spare process is kept: {why}")
        return self._ready

    def start_ranks(
        self, launch: wire.Launch, folder: Folder, envs: Sequence[Mapping[str, str]]
    ) -> tuple[list[Rank], str]:
        """Forks the ranks of an attempt; or none, with the reason. They run when this returns."""
        why = "" if self._ready else "the spare process was not ready"
        why = why or ("" if spare_rules.same_start(self._launch, launch) else "the command is another one")
        for env in envs:
            name = spare_rules.difference(self._env, env)
            why = why or (f"the variable {name} has changed" if name else "")
        read, write = os.pipe()
        ranks: list[Rank] = []
        try:
            for env in envs:
                if not why:
                    why = self._fork(launch, folder, env, read, ranks)
            os.close(read)
            read = -1
            self.close()  # now they are children of this process
            if not why:
                os.write(write, b"\1" * len(ranks))
        except OSError as error:
            why = str(error)
        finally:
            os.close(write)  # ranks that have not been told to start end now
            if read >= 0:
                os.close(read)
            self.close()
        if why:
            for rank in ranks:
                os.close(rank.pipe)
            return [], why
        self._hand_on(folder, ranks)
        return ranks, ""

    def close(self) -> None:
        """Ends the process."""
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._pid:
            processes.kill([self._pid])
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            self._pid = 0

    def _fork(self, launch: wire.Launch, folder: Folder, env: Mapping[str, str], start: int, ranks: list[Rank]) -> str:
        """Has one rank forked, which waits for a byte from `start`. Returns why not, if it is refused."""
        assert self._link is not None
        given = spare_rules.changes(env)
        unset = [name for name in (*self._env, spare.PAD, rank_site.SPARE) if spare_rules.varies(name)]
        asked = {
            "set": given,
            "unset": [name for name in unset if name not in given],
            "package": str(folder.package_dir),
            "workdir": workdir(launch),
            "parent": os.getpid(),
        }
        read, write = open_output()
        try:
            socket.send_fds(self._link, [json.dumps(asked).encode()], [write, start])
        finally:
            os.close(write)
        answer = self._answer()
        if "pid" not in answer:
            os.close(read)
            return str(answer.get("why") or "the spare process did not answer")
        ranks.append(Rank(int(env[wire.RANK]), int(answer["pid"]), read))
        return ""

    def _answer(self) -> dict[str, Any]:
        assert self._link is not None
        try:
            raw = json.loads(self._link.recv(4096) or b"{}")
        except (OSError, ValueError):
            return {}
        return raw if isinstance(raw, dict) else {}

    def _hand_on(self, folder: Folder, ranks: Sequence[Rank]) -> None:
        """The next spare process imports what this one did, and what its ranks import beyond it."""
        noted = folder.rank_files_dir(ranks[0].rank) / rank_site.IMPORTS
        with contextlib.suppress(OSError), noted.open("a") as file:
            file.write("".join(f"{name}\n" for name in self._modules))


def run(path: Path, orders: int) -> int:
    """Waits, and is then the launcher of the folder that a line on the descriptor `orders` names."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    processes.set_process_name("muster-spare")
    folder = Folder(path)
    found = Spare(folder.launch(), folder)
    try:
        following = _wait(folder, found, orders)
    except BaseException:
        found.close()
        raise
    os.close(orders)
    if following:
        return launcher.run(Path(following), spare=found)
    found.close()
    return 0


def _wait(folder: Folder, found: Spare, orders: int) -> str:
    """The folder of the next attempt; "" when there is none, or no spare process."""
    leave_at = ready_by = float("inf")
    told = b""
    while True:
        watched = [orders] if found.fd < 0 else [orders, found.fd]
        readable, _, _ = select.select(watched, [], [], LOOK if found.fd < 0 else LATER_LOOK)
        now = time.monotonic()
        if orders in readable:
            piece = os.read(orders, 4096)
            told += piece
            if not piece or told.endswith(b"\n"):
                return told.decode().strip() if piece else ""
        elif found.fd in readable:
            if not found.hear():
                return ""
            ready_by = float("inf")
        elif found.fd < 0 and (modules := imports_of(folder)) and spare_rules.memory_allows():
            found.start(modules)
            ready_by = now + READY_SECONDS
        if leave_at == float("inf") and (folder.exit() or not folder.path.exists()):
            leave_at = now + KEEP
        if now >= min(leave_at, ready_by):
            return ""


def imports_of(folder: Folder) -> list[str]:
    """The modules of large libraries that the worker's first rank has imported; none before it has been quiet for a
    while, and none if its Python did not run `rank_site`: a spare process would then run the program."""
    launch = folder.launch()
    place, now = folder.rank_files_dir(launch.worker * launch.nproc), time.time()
    try:
        noted = place / rank_site.IMPORTS
        young = launch.attempt == 1 and now - (folder.path / "launch.json").stat().st_mtime < FIRST_AGE
        if young or now - noted.stat().st_mtime < QUIET:
            return []
        names = noted.read_text()[:IMPORTS_BYTES].splitlines()
    except (OSError, ValueError):
        return []
    return list(dict.fromkeys(names)) if names and _runs_site(folder, place / rank_site.FILE) else []


def _runs_site(folder: Folder, stacks: Path) -> bool:
    """Whether a rank's own process, which the shell has become, holds this file of `rank_site` open."""
    try:
        identity = json.loads((folder.path / "launcher.json").read_text())
    except (OSError, ValueError):
        return False
    for pid in processes.descendants(int(identity["pid"])):
        with contextlib.suppress(OSError):
            opened = os.readlink(f"/proc/{pid}/fd/{rank_site.DESCRIPTOR}")  # noqa: PTH115
            if processes.group(pid) == pid and opened == str(stacks):
                return True
    return False
