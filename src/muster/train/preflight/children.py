"""Processes in which a program is tried: forked where that is safe, killed with all that they started."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Literal

import torch

from muster import wire
from muster.train.preflight.program import last_line

Send = Callable[[Any], None]
Method = Literal["fork", "spawn"]
_DEATH: Final = 5.0  # seconds to wait for the end of a killed process


class ChildFailed(Exception):
    """A process ended without its result, or did not end in time; the message says how."""


@dataclass
class Child:
    """A process and the pipe through which it sends."""

    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, method: Method, function: Callable[..., None], *args: Any) -> Child:
        """Runs `function(send, *args)`. With "spawn" all of it must be importable by name."""
        context: Any = multiprocessing.get_context(method)
        pipe, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_enter, args=(theirs, function, args))
        _flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside any thread
            process.start()
        theirs.close()
        return cls(process, pipe)

    def receive(self, seconds: float) -> Any:
        """The next message. Raises TimeoutError without one, ChildFailed if the process ended."""
        if not self.pipe.poll(max(0.0, seconds)):
            raise TimeoutError
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(_DEATH)
            raise ChildFailed(how_it_ended(self.process.exitcode)) from None

    def kill(self) -> None:
        """Ends it, and every process of its session."""
        if self.process.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.is_alive():
            self.process.kill()
        self.process.join(_DEATH)
        self.pipe.close()


def method(forks: bool | None = None) -> Method:
    """Fork, which needs nothing of the program; but a fork can't use a device that its parent may have used.

    `forks` says that the program uses the CPU alone, or that its parent has used a device.
    """
    if forks is None:
        forks = not torch.cuda.device_count()
    return "fork" if forks else "spawn"


def gather(
    function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], limit: float, forks: bool | None = None
) -> list[Any]:
    """Runs `function(*each)` in a process for each of the arguments at once; what they returned, in order.

    Raises ChildFailed with the first failure; the others are killed then.
    """
    how = method(forks)
    if how == "spawn":
        _check_picklable((function, arguments))
    until = time.monotonic() + limit
    children = [Child.start(how, _answer, function, each) for each in arguments]
    found: dict[int, Any] = {}
    try:
        while len(found) < len(children):
            left = {child.pipe: index for index, child in enumerate(children) if index not in found}
            ready = wait(list(left), max(0.0, until - time.monotonic()))
            if not ready:
                raise ChildFailed(f"did not end in {limit:g} s")
            for pipe in ready:
                index = left[pipe]  # type: ignore[index]
                good, value = children[index].receive(0.0)
                if not good:
                    raise ChildFailed(value)
                found[index] = value
    finally:
        for child in children:
            child.kill()
    return [found[index] for index in range(len(children))]


def gang_environment(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun would set for one of several processes of this machine."""
    names = {wire.RANK: rank, wire.WORLD_SIZE: world, wire.LOCAL_RANK: rank, wire.LOCAL_WORLD_SIZE: world}
    place = {wire.MASTER_ADDR: "127.0.0.1", wire.MASTER_PORT: str(port), "GLOO_SOCKET_IFNAME": "lo"}
    return {**{name: str(value) for name, value in names.items()}, **place}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def how_it_ended(code: int | None) -> str:
    """Words for an exit code."""
    if code is None:
        return "the process did not end"
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the process was killed by {name}" + (", as for want of memory" if name == "SIGKILL" else "")


def _enter(pipe: Connection, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    """In the new process: alone in its session, silent on standard output, unknown to the platform."""
    os.setsid()
    os.dup2(2, 1)  # what the program prints is no part of a report
    sys.stdout = sys.stderr
    for name in list(os.environ):
        if name.startswith("MUSTER_"):
            del os.environ[name]  # reports and checkpoints of a check are none of the job's
    torch.set_num_threads(1)  # the pool of the parent's threads is not there after a fork
    warnings.simplefilter("ignore")

    def send(message: Any) -> None:
        pipe.send_bytes(pickle.dumps(message))

    function(send, *args)
    _flush()
    pipe.close()
    os._exit(0)  # a program's own exit handlers may wait for threads that are not here


def _answer(send: Send, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        send((True, function(*args)))
    except BaseException as error:
        send((False, last_line(error)))


def _check_picklable(what: Any) -> None:
    try:
        pickle.dump(what, io.BytesIO())
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ChildFailed(
            f"a new process can't be given the program ({last_line(error)}); "
            "on a machine with a GPU its functions must stand at the top level of a module"
        ) from None


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
