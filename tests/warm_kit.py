"""A process that has imported what takes seconds to import, and forks others that need it: for tests that start many.

Nothing may start a thread in it. What it forks gets an environment, a folder, a search path and a log of its own, and
is handled like a child of the test's: it can be waited for, killed, and asked how it ended.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_SERVE = "import sys; sys.path[:] = {path!r}; import warm_kit; warm_kit.serve({modules!r})"


class Started:
    """A process that was forked there; in what tests use of it, like `subprocess.Popen`."""

    def __init__(self, pid: int, args: Sequence[str], warm: Warm) -> None:
        self.pid, self.args = pid, list(args)
        self.returncode: int | None = None
        self._warm, self._end = warm, os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        found = self._look(timeout)
        if found is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return found

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # it is reaped by nobody else: the number is still its own
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, seconds: float | None) -> bool:
        """Whether it does within that time. It is not reaped: its session can still be killed by its number."""
        return bool(select.select([self._end], [], [], seconds)[0])

    def kill_session(self) -> None:
        """It, and all that it has started and that is still of its session, also when it has ended itself."""
        os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def _look(self, seconds: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and self.ended(seconds):
                self.returncode = self._warm.ask({"reap": self.pid})
                os.close(self._end)
            return self.returncode


class Warm:
    """It ends with the process that made it."""

    def __init__(self, *modules: str, **env: str) -> None:
        command = [sys.executable, "-c", _SERVE.format(path=_path(), modules=modules)]
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            command, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            text=True,
        )  # fmt: skip
        atexit.register(self.close)

    def start(
        self, function: str, args: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path, load: str = ""
    ) -> Started:
        """`function`: as MODULE:NAME; what it returns is the exit status. `load`: further modules that it needs."""
        asked = {"function": function, "args": list(args), "log": str(log), "env": dict(env), "cwd": str(cwd)}
        return Started(self.ask({**asked, "path": _path(), "load": load}), args, self)

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


def network() -> str:
    """Which one this test is in. What is forked is in that of the process that forks it, so each needs its own."""
    return str(Path("/proc/thread-self/ns/net").readlink())


def _path() -> list[str]:
    place = str(Path(__file__).parent)
    return [place, *(entry for entry in sys.path if entry != place)]


# --- in the warm process ----------------------------------------------------------------------------------------------
def serve(modules: Sequence[str]) -> None:
    """A line of JSON asks for a process, or that one that has ended is reaped; a line answers with a number."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a module prints is no answer
    gc.disable()  # what is imported stays: to look through it again and again takes an eighth of the time
    for name in modules:
        _call(name)
    gc.enable()
    gc.freeze()  # the collector would write to every object, and each of those that are forked have pages of its own
    for line in sys.stdin:
        asked = json.loads(line)
        if "reap" in asked:
            status = os.waitstatus_to_exitcode(os.waitpid(asked["reap"], 0)[1])
            print(status, file=answers, flush=True)
            continue
        sys.path[:] = asked["path"]
        _load(asked["load"])
        pid = os.fork()
        if pid == 0:
            _become(asked)
        print(pid, file=answers, flush=True)


def _call(name: str, *args: str) -> Any:
    """MODULE:FUNCTION; a module alone is imported."""
    module, _, function = name.partition(":")
    found = importlib.import_module(module)
    return getattr(found, function)(*args) if function else None


def _load(names: str) -> None:
    for name in (name for name in names.split() if name not in sys.modules):
        try:
            importlib.import_module(name)
        except Exception:
            sys.modules.pop(name, None)  # the process that needs it meets it again, and its log has it
        gc.freeze()


def _become(asked: dict[str, Any]) -> NoReturn:
    def work() -> int | None:
        os.setsid()
        with Path(os.devnull).open() as nothing, Path(asked["log"]).open("ab") as log:
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.clear()
        os.environ.update(asked["env"])
        time.tzset()
        os.chdir(asked["cwd"])
        sys.argv[:] = asked["args"]
        status: int | None = _call(asked["function"], *asked["args"])
        return status

    finish(work)


def finish(work: Callable[[], int | None]) -> NoReturn:
    """Ends a process that was forked, as an interpreter would after this work."""
    status = 1
    try:
        status = work() or 0
    except SystemExit as left:
        if isinstance(left.code, str):
            sys.stderr.write(f"{left.code}\n")
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
