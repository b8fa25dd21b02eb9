"""The Python processes of a Ray node, forked from one that has imported what Ray imports: most of what they cost.

A node is a process namespace. Its first process forks `ray start`, and every process that Ray starts after it: Ray is
given an interpreter that passes its command, its environment and its files on to the first process, and ends as the
process does that was forked for it. Each of them imports Ray itself, which reads settings of its process meanwhile.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import runpy
import select
import shlex
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import warm_kit

# Of what Ray, Ray Data, Ray Train and Ray Tune import, all that takes long.
IMPORTED = (
    "aiohttp.web", "aiohttp_cors", "asyncio", "click", "colorful", "fastapi", "filelock", "fsspec",
    "google.protobuf.duration_pb2", "google.protobuf.json_format", "google.protobuf.struct_pb2",
    "google.protobuf.timestamp_pb2", "grpc.aio", "jsonschema", "msgpack", "numpy", "opentelemetry.exporter.prometheus",
    "opentelemetry.sdk.metrics.export", "pandas", "prometheus_client", "pyarrow.dataset", "pyarrow.fs",
    "pyarrow.parquet", "pydantic", "requests", "rich.console", "unittest.mock", "uvicorn", "uvloop", "yaml",
)  # fmt: skip
TESTS = Path(__file__).parents[1]
SETUP, WORKER = "setup_worker.py", "default_worker.py"  # scripts of Ray's workers
CLONE_NEWNS, CLONE_NEWPID, MS_REC, MS_PRIVATE, PR_SET_PDEATHSIG = 0x20000, 0x20000000, 0x4000, 0x40000, 1
INTERPRETER = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as forks:
    forks.connect({door!r})
    asked = {{"args": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}
    said = json.dumps(asked).encode()
    socket.send_fds(forks, [len(said).to_bytes(4, "big")], [0, 1, 2])
    forks.sendall(said)
    status = int(forks.recv(16) or b"-9")
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def node(folder: str, *options: str) -> int:
    """Runs `ray start` with these options. With this process goes all of the node."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(CLONE_NEWPID | CLONE_NEWNS), "unshare")
    first = os.fork()
    if first == 0:
        _check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
        _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
        _check(libc.mount(b"proc", b"/proc", b"proc", 0, None), "mount")
        os._exit(_First(Path(folder)).serve(options))
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def program(out: str, text: str) -> None:
    """Runs a program, and writes what it prints."""
    with Path(out).open("wb") as file:
        os.dup2(file.fileno(), 1)
    exec(compile(text, "<program>", "exec"), {"__name__": "__main__"})


class _First:
    """The first process of a node: everything else in it is a child of this one, or of one of Ray's."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._python, self._interpreter = sys.executable, folder / "python"
        place = folder / "forks"
        place.unlink(missing_ok=True)  # of the node before this one
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(place))
        self._door.listen(128)
        self._interpreter.write_text(INTERPRETER.format(python=sys.executable, door=str(place)))
        self._interpreter.chmod(0o755)
        self._asked: dict[int, socket.socket] = {}  # by process id: the interpreter that waits for it

    def serve(self, options: Sequence[str]) -> int:
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        main = os.fork()
        if main == 0:
            self._become()
            warm_kit.finish(lambda: _ray_start(options))
        while True:
            ready, _, _ = select.select([woken, self._door, *self._asked.values()], [], [])
            for found in ready:
                if found is woken:
                    os.read(woken, 4096)
                elif found is self._door:
                    self._fork()
            for pid, asked in self._asked.items():
                if asked in ready:  # the interpreter was killed
                    os.kill(pid, signal.SIGKILL)
            while (ended := _reap()) is not None:
                pid, status = ended
                if pid == main:
                    return max(status, 0)
                if asked := self._asked.pop(pid, None):
                    _tell(asked, status)

    def _fork(self) -> None:
        door, _ = self._door.accept()
        size, files, _, _ = socket.recv_fds(door, 4, 3)
        with door.makefile("rb") as said:
            asked = json.loads(said.read(int.from_bytes(size, "big")))
        pid = os.fork()
        if pid == 0:
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.environ.clear()
            os.environ.update(asked["env"])
            os.chdir(asked["cwd"])
            self._become()
            warm_kit.finish(lambda: _run(asked["args"], self._python, list(sys.path)))
        for file in files:
            os.close(file)
        self._asked[pid] = door

    def _become(self) -> None:
        """In a new process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for asked in self._asked.values():
            asked.close()
        self._door.close()
        os.setsid()
        sys.path[:] = [entry for entry in sys.path if entry and not TESTS.is_relative_to(entry) and not _is_test(entry)]
        sys.executable = str(self._interpreter)
        multiprocessing.set_executable(self._python)  # it passes files on


def _ray_start(options: Sequence[str]) -> None:
    from ray.scripts.scripts import main  # noqa: PLC0415

    sys.argv[:] = ["ray", "start", *options]
    main()


def _run(args: list[str], python: str, base: list[str]) -> None:
    """As the interpreter would: scripts and modules in this process, anything else in a new one."""
    if args[:1] == ["-u"]:
        args = args[1:]
    given = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if args[0] == "-m":
        sys.path[:] = [str(Path.cwd()), *given, *base]
        sys.argv[:] = args[1:]
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    elif args[0].endswith(".py"):
        script = Path(args[0])
        if script.name == SETUP:
            _go_on_after_setup(python, base)
        if script.name == WORKER:
            sys.executable = python  # what a worker starts is not Ray's
        if script.name == "dashboard.py" and not any(word.startswith("--modules-to-load") for word in args):
            args = [*args, "--modules-to-load=StateHead"]  # what the state API of `records` asks; the others are unused
        sys.path[:] = [str(script.parent), *given, *base]
        sys.argv[:] = args
        runpy.run_path(args[0], run_name="__main__")
    else:
        os.execv(python, [python, *args])


def _go_on_after_setup(python: str, base: list[str]) -> None:
    """Set-up changes the environment, and then has a shell execute the worker: here it becomes the worker itself."""
    execute, interpreter = os.execvp, sys.executable

    def become(file: str, args: Sequence[str]) -> None:
        words = shlex.split(args[2]) if list(args[:2]) == ["bash", "-c"] else []
        if words[:2] == ["exec", interpreter]:
            os.execvp = execute  # type: ignore[assignment]
            warm_kit.finish(lambda: _run(words[2:], python, base))
        execute(file, args)

    os.execvp = become  # type: ignore[assignment]


def _is_test(entry: str) -> bool:
    return Path(entry).is_relative_to(TESTS)


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _tell(asked: socket.socket, status: int) -> None:
    try:
        asked.sendall(str(status).encode())
    except OSError:
        pass  # it was killed
    asked.close()


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
