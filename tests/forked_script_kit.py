"""Scripts, run for tests as `python SCRIPT WORDS...` would, in processes that have imported what takes long already.

To import torch or MLflow is most of what a short script costs. Of each kind one has an interpreter of its own.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from warm_kit import Started, Warm

_ERR = "SCRIPT_KIT_ERR"


class Script:
    """A script that `warm` runs in `folder`. Its output can be read while it runs; its errors are in the file `err`."""

    def __init__(self, warm: Warm, folder: Path, *words: str, env: Mapping[str, str], load: str = "") -> None:
        place = Path(tempfile.mkdtemp(prefix="script-", dir=folder))
        os.mkfifo(place / "out")
        self.err = place / "err"
        environment = {**env, _ERR: str(self.err)}
        self.process: Started = warm.start("forked_script_kit:run", words, place / "out", environment, folder, load)
        self.stdout: TextIO = (place / "out").open()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def finish(self, timeout: float) -> tuple[int, str]:
        """The exit code, and what it prints until then."""
        limit = threading.Timer(timeout, self.kill)
        limit.start()
        try:
            printed = self.stdout.read()
            return self.end(timeout), printed
        finally:
            limit.cancel()

    def end(self, timeout: float) -> int:
        """The exit code; the output that nobody read yet is dropped."""
        try:
            return self.process.wait(timeout)
        finally:
            self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stdout.close()


def run(script: str, *words: str) -> None:
    """In the process that was forked."""
    with Path(os.environ.pop(_ERR)).open("ab") as err:
        os.dup2(err.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for its threads, as the interpreter's end does
