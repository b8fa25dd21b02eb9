"""The ranks of one worker: their environment, start, signals, reaping and cleanup."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol

from muster import wire
from muster.inherited import home_of, inherited
from muster.runtime import processes, rank_site
from muster.runtime.folder import Folder
from muster.runtime.sandbox import WORK, Sandbox

PIPE_BYTES: Final = 1 << 20  # what a rank may write before it blocks on the launcher
SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh")
# Variables of the server, or of an outer launcher, that ranks must not see.
_NOT_INHERITED: Final = ("MUSTER_", "TORCHELASTIC_", "_MLFLOW_SERVER_")
# Python and daemons ignore some of these, and an ignored signal stays ignored across exec.
TO_DEFAULT: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@dataclass(slots=True)
class Rank:
    rank: int
    pid: int
    pipe: int
    exit: wire.RankExit | None = None


class RankSource(Protocol):
    """What forks ranks from a process that has imported their libraries; see `muster.runtime.spare_launcher`."""

    def start_ranks(
        self, launch: wire.Launch, folder: Folder, envs: Sequence[Mapping[str, str]]
    ) -> tuple[list[Rank], str]:
        """The ranks, which run; or none, and why."""

    def close(self) -> None:
        """Ends what is not used."""


def gang_mark(job: str, attempt: int, worker: int, folder: Path) -> str:
    """A mark that is unique to the worker on this machine, even if another server has a job with the same id."""
    place = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return f"{job}/{attempt}/{worker}@{place}"


def workdir(launch: wire.Launch) -> str:
    """The folder in which the ranks start: the job's, else the home folder."""
    home = _own_home(os.environ) if launch.isolation is not None else os.environ.get("HOME")
    return launch.workdir or home or "/"


def environment(
    launch: wire.Launch, local: int, folder: Folder, secrets: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str]:
    """The environment of one rank: the launcher's, the job's, the secrets, torchrun's variables and Muster's,
    in that order."""
    rank = launch.worker * launch.nproc + local
    seen = base if launch.pass_env is None else inherited(base, launch.pass_env)
    env = {name: value for name, value in seen.items() if not name.startswith(_NOT_INHERITED)}
    if launch.isolation is not None:
        env.pop("TMPDIR", None)  # they have their own /tmp
        env |= {"HOME": _own_home(base), "USER": launch.isolation.name, "LOGNAME": launch.isolation.name}
    if "SLURM_PROCID" in env:
        env |= _as_srun_would(launch, rank, local)
    env |= launch.envs
    env |= secrets
    env |= {
        wire.RANK: str(rank),
        wire.WORLD_SIZE: str(launch.num_nodes * launch.nproc),
        wire.LOCAL_RANK: str(local),
        wire.LOCAL_WORLD_SIZE: str(launch.nproc),
        wire.GROUP_RANK: str(launch.worker),
        wire.NODE_RANK: str(launch.worker),
        wire.MASTER_ADDR: launch.master_addr,
        wire.MASTER_PORT: str(launch.master_port),
        wire.JOB: launch.job,
        wire.ATTEMPT: str(launch.attempt),
        wire.NODE: launch.node,
        wire.GANG: gang_mark(launch.job, launch.attempt, launch.worker, folder.path),
        wire.RANK_DIR: str(folder.rank_files_dir(rank)),
        wire.CONTROL: str(folder.path / "control"),
        wire.CHECKPOINT_DIR: launch.checkpoint_dir,
        wire.CHECKPOINT_KEEP: str(launch.checkpoint_keep),
    }
    if wire.PARAMS in launch.envs:
        env[wire.PARAMS_FILE] = str(folder.rank_files_dir(rank) / "params.json")
    if launch.checkpoint_every is not None:
        env[wire.CHECKPOINT_EVERY] = f"{launch.checkpoint_every:g}"
    if launch.checkpoint_memory:
        env[wire.CHECKPOINT_MEMORY] = launch.checkpoint_memory
    if launch.devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, launch.devices))
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the order of the indices
    if launch.nproc > 1:
        env.setdefault("OMP_NUM_THREADS", "1")  # like torchrun: the ranks share the cores
    env.setdefault("PYTHONUNBUFFERED", "1")  # so that output appears at once
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), str(folder.package_dir)]))
    return env


def gang_environment(launch: wire.Launch, folder: Folder) -> dict[str, str]:
    """The environment of a process that belongs to the worker and to none of its ranks."""
    return {**inherited(os.environ), wire.GANG: gang_mark(launch.job, launch.attempt, launch.worker, folder.path)}


def make_sandbox(launch: wire.Launch, folder: Folder) -> Sandbox:
    """The sandbox of a worker: its ranks see only what they need of its folder, and nothing of other workers'."""
    assert launch.isolation is not None
    shown = {str(folder.path / name): False for name in ("control", "pkg")} | {str(folder.path / WORK): True}
    first = launch.worker * launch.nproc
    for rank in range(first, first + launch.nproc):
        folder.rank_files_dir(rank).mkdir(parents=True, exist_ok=True)
        shown[str(folder.rank_files_dir(rank))] = True
    if "://" not in launch.checkpoint_dir:
        Path(launch.checkpoint_dir).mkdir(parents=True, exist_ok=True)
        shown[launch.checkpoint_dir] = True
    return Sandbox(launch.isolation, folder.path, shown)


def _write_new(path: str, text: str) -> None:
    """Writes a file that must not be there: not through a link that somebody has put in its place."""
    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(made, "w") as file:
        file.write(text)


def _own_home(base: Mapping[str, str]) -> str:
    """The HOME of isolated ranks: the launcher's path with another folder mounted there, or /tmp if it has none."""
    return base["HOME"] if home_of(base) else "/tmp"  # noqa: S108  (their own)


def _as_srun_would(launch: wire.Launch, rank: int, local: int) -> dict[str, str]:
    """Slurm's variables for the ranks. Slurm has started one task per node, the launcher;
    scripts and libraries made for `srun` prefer these variables to torchrun's."""
    world, spread = str(launch.num_nodes * launch.nproc), f"{launch.nproc}(x{launch.num_nodes})"
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(launch.worker),
        "SLURM_NTASKS": world,
        "SLURM_NPROCS": world,
        "SLURM_STEP_NUM_TASKS": world,
        "SLURM_NTASKS_PER_NODE": str(launch.nproc),
        "SLURM_TASKS_PER_NODE": spread,
        "SLURM_STEP_TASKS_PER_NODE": spread,
    }


class WorkerRanks:
    """The ranks that this launcher started, and all their descendants."""

    def __init__(self, launch: wire.Launch, folder: Folder, sandbox: Sandbox | None = None) -> None:
        self.ranks: list[Rank] = []
        # Whether this process may have children. Every process of the worker is a child of this one, or below a child.
        self.children = sandbox is not None
        self._launch = launch
        self._folder = folder
        self._sandbox = sandbox
        self._mark = gang_mark(launch.job, launch.attempt, launch.worker, folder.path)

    def start(self, secrets: Mapping[str, str], spare: RankSource | None = None) -> None:
        """Starts the ranks. Raises OSError when the machine refuses another process."""
        shell = next((path for path in SHELLS if os.access(path, os.X_OK)), "/bin/sh")
        launch, folder = self._launch, self._folder
        envs = [environment(launch, local, folder, secrets, os.environ) for local in range(launch.nproc)]
        for env in envs:
            folder.rank_dir(int(env[wire.RANK])).mkdir(exist_ok=True)
            if wire.PARAMS in launch.envs:
                _write_new(env[wire.PARAMS_FILE], launch.envs[wire.PARAMS] + "\n")
        if launch.warm and self._sandbox is None:
            (folder.rank_files_dir(int(envs[0][wire.RANK])) / rank_site.IMPORTS).touch()
        if spare is not None and self._sandbox is None:
            self.ranks, why = spare.start_ranks(launch, folder, envs)
            self.children = True  # its process was one
            processes.log_line(f"the ranks start anew: {why}" if why else "the ranks were forked from a spare process")
            if self.ranks:
                return
        for local, env in enumerate(envs):
            self.ranks.append(_start(int(env[wire.RANK]), shell, launch, env, self._sandbox))
            self.children = True
            if local == 0:
                processes.fault("after_first_rank")

    def alive(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.exit is None]

    def signal(self, numbers: Collection[int], signum: signal.Signals) -> None:
        """Signals the whole process group of each of these ranks that still runs."""
        for rank in self.alive():
            if rank.rank in numbers:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(rank.pid, signum)

    def has_left(self, numbers: Collection[int]) -> bool:
        """Whether these ranks' process groups are empty; their first processes may have ended before."""
        groups = {rank.pid for rank in self.ranks if rank.rank in numbers}
        return not any(processes.group(pid) in groups for pid in processes.descendants(os.getpid()))

    def reap(self) -> list[Rank]:
        """Reaps every child that has ended; returns the ranks among them, the most likely cause of a failure first."""
        ended = []
        by_pid = {rank.pid: rank for rank in self.alive()}
        while self.children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.children = False
                break
            if pid == 0:
                break
            if rank := by_pid.get(pid):
                code = os.waitstatus_to_exitcode(status)
                signum = -code if code < 0 else None
                rank.exit = wire.RankExit(rank.rank, code if code >= 0 else None, signum, time.time())
                ended.append(rank)
        # Ranks that ended at the same time: the one that was killed is the cause; the others lost their peer.
        return sorted(ended, key=lambda r: (likelihood(r.exit), r.rank))

    def kill_strays(self) -> bool:
        """Kills the worker's remaining processes below this process; True when there were none."""
        if self.children:
            processes.kill(processes.descendants(os.getpid()))
            self.reap()
        return not self.children

    def kill_marked(self) -> bool:
        """Kills the worker's remaining processes anywhere on the machine; True when there were none."""
        left = processes.marked(self._mark)
        processes.kill(left)
        return not left

    def reporting(self) -> set[int]:
        """The ranks that use `muster.runtime`, and so can see the flag in the control block."""
        return {r.rank for r in self.ranks if any(self._folder.rank_files_dir(r.rank).glob("spool.*"))}


def likelihood(ended: wire.RankExit | None) -> int:
    """How likely an end is a cause rather than a consequence; lower is more likely.

    SIGKILL comes from outside. A library that lost its peer raises an exception or, failing that, aborts.
    """
    if ended is None or ended.signal is None or ended.signal == signal.SIGABRT:
        return 2
    return 0 if ended.signal == signal.SIGKILL else 1


def open_output() -> tuple[int, int]:
    """A pipe for a rank's output: the launcher's end and the rank's."""
    read, write = os.pipe()
    with contextlib.suppress(OSError):  # the system's limit for a user's pipes may be reached
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(read, False)
    return read, write


def _start(rank: int, shell: str, launch: wire.Launch, env: dict[str, str], sandbox: Sandbox | None) -> Rank:
    read, write = open_output()
    parent = os.getpid()
    try:
        pid = os.fork() if sandbox is None else sandbox.fork()
    except OSError:
        os.close(read)
        os.close(write)
        raise
    if pid == 0:
        _become(shell, launch, env, write, parent if sandbox is None else 0)
    os.close(write)
    return Rank(rank, pid, read)


def _become(shell: str, launch: wire.Launch, env: dict[str, str], output: int, parent: int) -> NoReturn:
    """In the child: executes the shell, which a simple command then replaces.
    `parent` is 0 for a child that can't see its parent."""
    try:
        signal.set_wakeup_fd(-1)
        for signum in TO_DEFAULT:
            signal.signal(signum, signal.SIG_DFL)
        os.setsid()
        processes.die_with_parent()
        if parent and os.getppid() != parent:
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(workdir(launch))
        os.execve(shell, [Path(shell).name, "-c", launch.run], env)  # noqa: S606  (the shell itself)
    except BaseException as error:
        os.write(2, f"muster: can't start the shell {shell} in {workdir(launch)}: {error}\n".encode())
    finally:
        os._exit(126)
