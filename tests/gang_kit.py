"""Gangs for tests: real ranks with gloo on loopback, one start for many cases, and nothing left running afterwards.

`import torch` costs seconds of CPU a process, so one process imports torch and the targets' modules once for all gangs
of a test run, and forks a starter for each, which forks the ranks; nothing starts a thread before. Each rank then runs
alone: own process group, own state.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warm_kit import Started, Warm, network

TIMEOUT = 240.0  # seconds for one gang; a bound for a hang on a busy machine, not an expectation

_LOADED = (
    "torch", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel", "muster.train.loop",
)  # fmt: skip


class GangFailure(Exception):
    """A rank died without a Python exception, or the gang did not end in time."""


def gang(world: int, target: Callable[..., Any], *args: Any, timeout: float = TIMEOUT, group: bool = True) -> list[Any]:
    """Runs `target(*args)` (a function of a module) in `world` ranks of a gloo gang; what each returned, by rank.

    A rank's exception is raised again here, with its traceback as a note, and the other ranks are killed. `group=False`
    leaves the process group to the target: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set as torchrun sets them.
    `timeout` counts from when every rank is in its target, in seconds.
    """
    with tempfile.TemporaryDirectory(prefix="gang-") as name:
        folder = Path(name)
        (folder / "work").write_bytes(pickle.dumps((world, group, target, args)))
        starter = torch_process().start(
            "gang_kit:start_ranks", [name], folder / "log", _environment(), Path.cwd(), target.__module__
        )
        try:
            _until_begun(folder, world, starter)
            if not starter.ended(timeout):
                tail = f"{_tail(folder)}\n{_stacks(folder, starter.pid)}"
                raise GangFailure(f"{world} ranks of {_name(target)} did not end in {timeout:g} s.\n{tail}")
        finally:
            starter.kill_session()
        return _results(folder, world, target)


def torch_process() -> Warm:
    """The process that has torch, for this test's network."""
    return _warm(network())


@functools.cache
def _warm(where: str) -> Warm:
    return Warm(*_LOADED, "gang_kit", OMP_NUM_THREADS="1", TORCHINDUCTOR_COMPILE_THREADS="1")


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _until_begun(folder: Path, world: int, starter: Started) -> None:
    """Waits until every rank is in its target: what a rank takes to begin on a busy machine is not the gang's time."""
    until = time.monotonic() + TIMEOUT
    while not starter.ended(0.02) and len(list(folder.glob("begun-*"))) < world and time.monotonic() < until:
        pass


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    import socket  # noqa: PLC0415 (forked ranks inherit every module: keep the shared set small)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_ranks(name: str) -> None:
    """In the starter process: forks the ranks, ends when they have ended or one has failed."""
    import faulthandler  # noqa: PLC0415

    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    folder = Path(name)
    world, group, target, args = pickle.loads((folder / "work").read_bytes())
    ranks = {}
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            os._exit(_rank(folder, rank, world, group, target, args))
        ranks[pid] = rank
    failed = False
    while ranks:
        # After a failure only those that are dead already count: the others wait for it, and the caller kills them.
        pid, status = os.waitpid(-1, os.WNOHANG if failed else 0)
        if pid == 0:
            break
        rank = ranks.pop(pid)
        if status != 0:
            (folder / f"died-{rank}").write_text(str(os.waitstatus_to_exitcode(status)))
            failed = True
    os._exit(int(failed))


def _rank(folder: Path, rank: int, world: int, group: bool, target: Callable[..., Any], args: tuple[Any, ...]) -> int:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
    import torch.distributed as dist  # noqa: PLC0415

    try:
        if group:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
        _write(folder / f"begun-{rank}", str(os.getpid()).encode())
        result = pickle.dumps(target(*args))
        if group:
            dist.barrier()  # nobody leaves while another still talks to it
    except BaseException as error:
        _write(folder / f"error-{rank}", pickle.dumps((time.monotonic(), _portable(error), traceback.format_exc())))
        return 1
    _write(folder / f"result-{rank}", result)
    sys.stdout.flush()
    sys.stderr.flush()
    return 0


def _portable(error: BaseException) -> BaseException:
    """The exception itself where it survives a pickle, else one that says what it was."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return GangFailure(f"{type(error).__name__}: {error}")
    return error if isinstance(copy, type(error)) else GangFailure(f"{type(error).__name__}: {error}")


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(data)
    draft.replace(path)


def _results(folder: Path, world: int, target: Callable[..., Any]) -> list[Any]:
    died = {path.name.removeprefix("died-"): int(path.read_text()) for path in folder.glob("died-*")}
    killed = {rank: status for rank, status in died.items() if status < 0}
    failures = [(*pickle.loads(path.read_bytes()), path.name) for path in folder.glob("error-*")]
    if failures and not killed:
        # The first in time: the others are mostly the echo, a connection that the failed rank closed.
        _, error, trace, name = min(failures, key=lambda failure: failure[0])
        error.add_note(f"rank {name.removeprefix('error-')} of {world}:\n{trace}")
        raise error
    paths = [folder / f"result-{rank}" for rank in range(world)]
    if died or not all(path.exists() for path in paths):
        raise GangFailure(f"{_name(target)}: exit status by rank {killed or died} of {world}.\n{_tail(folder)}")
    return [pickle.loads(path.read_bytes()) for path in paths]


def _stacks(folder: Path, starter: int) -> str:
    """Asks one process after another where it is; what each wrote in the time that a kill needs anyway."""
    first = (folder / "log").stat().st_size
    for pid in [starter, *(int(path.read_text()) for path in sorted(folder.glob("begun-*")))]:
        before, end = (folder / "log").stat().st_size, time.monotonic() + 2.0
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        while time.monotonic() < end and not _quiet(folder, before):
            pass
    return (folder / "log").read_bytes()[first:][-20_000:].decode(errors="replace")


def _quiet(folder: Path, before: int) -> bool:
    size = (folder / "log").stat().st_size
    time.sleep(0.2)
    return size > before and (folder / "log").stat().st_size == size


def _tail(folder: Path) -> str:
    return (folder / "log").read_bytes()[-8_000:].decode(errors="replace")


def _name(target: Callable[..., Any]) -> str:
    return f"{target.__module__}.{getattr(target, '__qualname__', target)}"
