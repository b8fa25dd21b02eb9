"""The warm process: has the launcher imported and forks one for each request, so that a launch costs milliseconds.

`python -m muster.runtime.warm`: a line of JSON on stdin is a request, {"dir": DIR, "recover": false}; a line on stdout
is the answer, {"dir": DIR, "pid": N}. It exits when stdin is closed; the launchers, which belong to init, stay.
A request {"remove": DIR} removes a folder with files of granted users (`muster.runtime.namespace`); it has no answer.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from muster.runtime import launcher, namespace


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the server's terminal must only reach the server
    gc.collect()
    gc.freeze()  # so that the garbage collector does not touch, and so copy, the pages that forks share
    for line in sys.stdin:
        request = json.loads(line)
        middle = os.fork()
        if middle == 0:
            _middle(request)
        os.waitpid(middle, 0)
    return 0


def _middle(request: dict[str, Any]) -> NoReturn:
    """Forks the launcher and exits, so that the launcher is orphaned and outlives the server."""
    try:
        os.setsid()
        pid = os.fork()
        if "remove" in request:
            if pid == 0:
                namespace.main(["remove", request["remove"]])
        elif pid == 0:
            _launch(request["dir"], bool(request.get("recover")))
        else:
            os.write(1, json.dumps({"dir": request["dir"], "pid": pid}).encode() + b"\n")
    finally:
        os._exit(0)


def _launch(folder: str, recover: bool) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        status = launcher.run(Path(folder), recover)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    os._exit(main())  # nothing is left to tidy up, and Python takes as long for that as for a launch
