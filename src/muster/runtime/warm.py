"""The warm process: has the launcher imported and forks one for each request, so that a launch costs milliseconds.

`python -m muster.runtime.warm`: a line of JSON on stdin is a request, {"dir": DIR, "recover": false}; a line on stdout
is the answer, {"dir": DIR, "pid": N}. It exits when stdin is closed; the launchers, which belong to init, stay.
A request {"remove": DIR} removes a folder with files of granted users (`muster.runtime.namespace`); it has no answer.

{"spare": KEY, "of": DIR} starts a launcher for the attempt that may follow the one in DIR, if its command allows it
(see `spare_launcher`). A later {"dir": DIR, "spare": KEY} makes it the launcher of DIR, and {"drop": KEY} ends it. The
first and the last have no answer.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from muster.runtime import launcher, namespace, spare_launcher, spare_rules
from muster.runtime.folder import Folder

_spares: dict[str, tuple[int, int]] = {}  # by key: the process id, and the pipe that it waits on


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the server's terminal must only reach the server
    gc.collect()
    gc.freeze()  # so that the garbage collector does not touch, and so copy, the pages that forks share
    for line in sys.stdin:
        request = json.loads(line)
        if "drop" in request:
            _drop(request["drop"])
        elif "of" in request:
            _start_spare(request)
        elif not _use_spare(request):
            _fork(request)
    return 0


def _fork(request: dict[str, Any], orders: int = -1, answer: int = 1) -> None:
    middle = os.fork()
    if middle == 0:
        _middle(request, orders, answer)
    os.waitpid(middle, 0)


def _start_spare(request: dict[str, Any]) -> None:
    _drop(request["spare"])
    try:
        if not spare_rules.fits(Folder(Path(request["of"])).launch()):
            return
    except (OSError, ValueError, TypeError, KeyError):  # the attempt is over, or its launcher says what is wrong
        return
    read, write = os.pipe()
    told, tell = os.pipe()
    _spares[request["spare"]] = (0, write)  # so that the process closes it, too
    _fork(request, read, tell)
    for fd in (read, tell):
        os.close(fd)
    _spares[request["spare"]] = (int(os.read(told, 100) or 0), write)
    os.close(told)


def _use_spare(request: dict[str, Any]) -> bool:
    """Whether a launcher that waits has taken the request."""
    pid, orders = _spares.pop(request.get("spare", ""), (0, -1))
    if orders < 0:
        return False
    try:
        os.write(orders, request["dir"].encode() + b"\n")
    except BrokenPipeError:  # it has given up
        return False
    finally:
        os.close(orders)
    _answer(1, request, pid)
    return True


def _drop(key: str) -> None:
    _, orders = _spares.pop(key, (0, -1))
    if orders >= 0:
        os.close(orders)


def _answer(fd: int, request: dict[str, Any], pid: int) -> None:
    os.write(fd, json.dumps({"dir": request["dir"], "pid": pid}).encode() + b"\n")


def _middle(request: dict[str, Any], orders: int, answer: int) -> NoReturn:
    """Forks the launcher and exits, so that the launcher is orphaned and outlives the server."""
    try:
        for _, other in _spares.values():
            os.close(other)  # a launcher that waits ends when nobody holds its pipe
        os.setsid()
        pid = os.fork()
        if "remove" in request:
            if pid == 0:
                namespace.main(["remove", request["remove"]])
        elif "of" in request:
            if pid == 0:
                os.close(answer)
                _launch(lambda: spare_launcher.run(Path(request["of"]), orders))
            os.write(answer, str(pid).encode())
        elif pid == 0:
            _launch(lambda: launcher.run(Path(request["dir"]), bool(request.get("recover"))))
        else:
            _answer(answer, request, pid)
    finally:
        os._exit(0)


def _launch(work: Callable[[], int]) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    os._exit(main())  # nothing is left to tidy up, and Python takes as long for that as for a launch
