"""Servers from one process that has loaded Muster: what `python -m muster up` does, less two seconds of CPU of imports.

The process imports what the server's own modules import, starts nothing, and forks for each server; the fork takes the
environment, the folder and the files that it was asked to, and then runs the package `muster` as `python -m muster`.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from muster.core import faults

_WARM = "import sys; sys.path.insert(0, {place!r}); import warm_server; warm_server.serve()"
_LOADED = ("muster.cli.main", "muster.cli.server", "muster.server.main")
# What Python itself or a library reads before the first line of `muster up`: such a server starts alone.
_EARLY = ("PYTHON", "LD_", "OPENBLAS", "OMP_", "MALLOC")


class Server:
    """A process that a warm one forked, with what tests use of `subprocess.Popen`."""

    def __init__(self, args: Sequence[str], pid: int, warm: _Warm) -> None:
        self.args, self.pid = args, pid
        self._warm, self._end = warm, os.pidfd_open(pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode if self.returncode is not None else self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        found = self.returncode if self.returncode is not None else self._wait(timeout)
        if found is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return found

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._end, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, seconds: float | None) -> int | None:
        if not select.select([self._end], [], [], seconds)[0]:
            return None
        self.returncode = self._warm.ask({"reap": self.pid})
        os.close(self._end)
        return self.returncode


def start(words: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> Server | None:
    """`python -m muster WORDS`, with its output at the end of `log`; None where only a process of its own will do."""
    warm = _warm()
    if _early(env) != _early(warm.env):
        return None
    asked = {"words": list(words), "env": dict(env), "cwd": str(cwd), "log": str(log)}
    return Server(words, warm.ask(asked), warm)


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_EARLY)}


class _Warm:
    """The process that has Muster. It ends with the one that made it."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _WARM.format(place=str(Path(__file__).parent))]
        self.env = {**os.environ, "PYTHONWARNINGS": "default"}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True
        )

    def ask(self, what: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(json.dumps(what), file=self._process.stdin, flush=True)
            return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@functools.cache
def _warm() -> _Warm:
    made = _Warm()
    atexit.register(made.close)
    return made


def serve() -> None:
    """In the warm process: a line of JSON asks for a server, or for how one that has ended ended; a line answers."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _serve(answers)


def _serve(answers: TextIO) -> None:
    sys.path.remove(str(Path(__file__).parent))  # a server knows nothing of the tests
    for name in _LOADED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        if "reap" in asked:
            print(os.waitstatus_to_exitcode(os.waitpid(asked["reap"], 0)[1]), file=answers, flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            answers.close()
            _become(asked)
        print(pid, file=answers, flush=True)


def _become(asked: dict[str, Any]) -> None:
    """Ends as `python -m muster` does, with SystemExit."""
    gc.unfreeze()
    with Path(os.devnull).open() as nothing, Path(asked["log"]).open("ab") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.clear()
    os.environ.update(asked["env"])
    importlib.reload(faults)  # it reads the environment when it is loaded
    os.chdir(asked["cwd"])
    sys.argv[1:] = asked["words"]
    runpy.run_module("muster", run_name="__main__", alter_sys=True)
