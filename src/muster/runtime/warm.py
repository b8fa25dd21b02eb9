"""A process that has the launcher imported and forks one for each request, so that a launch costs milliseconds.

`python -m muster.runtime.warm`: a line of JSON on stdin asks, {"dir": DIR, "recover": false}; a line on stdout answers,
{"dir": DIR, "pid": N}. It leaves when stdin is closed; the launchers, which belong to init, stay.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from muster.runtime import launcher


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the server's terminal is the server's to handle
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the pages that the forks share
    for line in sys.stdin:
        request = json.loads(line)
        middle = os.fork()
        if middle == 0:
            _middle(request["dir"], bool(request.get("recover")))
        os.waitpid(middle, 0)
    return 0


def _middle(folder: str, recover: bool) -> NoReturn:
    """Its end makes an orphan of the launcher, which then outlives the server."""
    try:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            _launch(folder, recover)
        os.write(1, json.dumps({"dir": folder, "pid": pid}).encode() + b"\n")
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
    sys.exit(main())
