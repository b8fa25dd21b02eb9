"""The sidecar: a process next to a script outside Muster's jobs that opens its run, ships its reports and ends it.

`python -m muster.runtime.sidecar FOLDER` runs as long as the script, and then until the server has everything. `python
-m muster.runtime.sidecar --sync HOME` ships the runs that earlier ones could not, and `python -m muster.runtime.sidecar
--ship FOLDER SECONDS [URL]` ships one of them; a line of JSON reports the result.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from muster import wire
from muster.runtime import processes
from muster.runtime.channel import BACKOFF_FIRST, Away, Channel
from muster.runtime.companion import Companion, Program
from muster.runtime.host import FOLDER as HOST
from muster.runtime.offline import OfflineRun, offline_runs
from muster.runtime.server import Server, ServerRefused, find_server
from muster.runtime.ship import Shipper
from muster.runtime.streams import SpoolSource, Stream

LOOK: Final = 0.1  # seconds between two checks of the script
QUICK_LOOK: Final = 0.02  # seconds between two checks of what is left to ship
BEAT: Final = 5.0  # seconds between two heartbeats of the writer
OPEN_LAST: Final = 10.0  # seconds between two attempts to open the run, at most
LINGER: Final = 600.0  # seconds after the script's end to wait for a server that is away

Result = Literal["shipped", "away", "refused", "busy", "running"]


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) == 2 and given[0] == "--sync":
        for offline_run in offline_runs(Path(given[1])):
            Sidecar(offline_run).sync(LINGER)
        return 0
    if len(given) in (3, 4) and given[0] == "--ship":
        sidecar = Sidecar(OfflineRun(Path(given[1]).resolve()), url=given[3] if len(given) == 4 else None)
        result = sidecar.sync(float(given[2]))
        print(json.dumps({"result": result, "trouble": sidecar.trouble}))  # noqa: T201
        return 0
    if len(given) != 1 or given[0].startswith("-"):
        usage = "usage: python -m muster.runtime.sidecar FOLDER | --sync HOME | --ship FOLDER SECONDS [URL]"
        print(usage, file=sys.stderr)  # noqa: T201
        return 2
    Sidecar(OfflineRun(Path(given[0]).resolve())).run_beside()
    return 0


@dataclass
class Sidecar:
    """Ships one offline run."""

    offline_run: OfflineRun
    url: str | None = None  # overrides the one that the script was given
    trouble: str = ""  # why no server has it yet
    _server: Server | None = None
    _shipper: Shipper | None = None
    _companion: Companion | None = None
    _beats: Channel | None = None
    _files: Channel | None = None
    _refused: bool = False
    _host_closed: bool = False
    _open_at: float = 0.0  # monotonic times
    _beat_at: float = 0.0
    _delay: float = BACKOFF_FIRST

    def run_beside(self) -> Result:
        """Runs next to the script, from its start until its data is shipped."""
        if not self.offline_run.lock():
            return "busy"
        root = int(self.offline_run.description()["process"]["pid"])
        self._start(Program(sys.executable, str(Path.cwd()), {0: dict(os.environ)}, {}), {0: root})
        while (ended := self.offline_run.ended()) is None:
            self._attend()
            time.sleep(LOOK)
        return self._hand_over(ended, LINGER)

    def sync(self, patience: float) -> Result:
        """Ships what an ended script left; waits this many seconds for a server."""
        try:
            if not self.offline_run.lock():
                return "busy"
            ended = self.offline_run.ended()
            if ended is None:
                return "running"
            self._start(None, {})
            return self._hand_over(ended, patience)
        except FileNotFoundError:  # its own sidecar has just finished it
            return "shipped"
        finally:
            self.offline_run.unlock()

    def _start(self, program: Program | None, roots: dict[int, int]) -> None:
        self._server = self._find()
        self._beats, self._files = self._channel(), self._channel()
        ranks, alone = {0: self.offline_run.rank_dir}, frozenset({os.getpid()})
        self._companion = Companion(self.offline_run.path, ranks, program, self._files, _say, self._close_host, alone)
        self._companion.start(roots)

    def _attend(self) -> None:
        now = time.monotonic()
        if self._shipper is None and not self._refused and now >= self._open_at:
            self._open()
            self._delay = min(2 * self._delay, OPEN_LAST)
            self._open_at = time.monotonic() + self._delay
        if self._shipper is not None and self._beats is not None and now >= self._beat_at:
            self._beat_at = now + BEAT
            with contextlib.suppress(Away):  # prevents other writers to the same run; a lost heartbeat does no harm
                self._beats.call("POST", "/v1/runs/external/beat", b"")

    def _open(self) -> None:
        """Registers the run with a server, if it is not, and starts to ship."""
        assert self._files is not None
        assert self._beats is not None
        try:
            opened = self.offline_run.opened()
            if opened is None:
                opened = self._find().open_run(self.offline_run.description()["request"])
                self.offline_run.write_opened(opened)
        except (Away, ServerRefused) as error:
            self._refused = isinstance(error, ServerRefused)
            self.trouble = str(error)
            processes.log_line(f"the run can't be opened: {error}")
            return
        self.trouble = ""
        shipping = self._channel()
        for channel in (shipping, self._files, self._beats):
            channel.allow(str(opened["token"]))
        folder = self.offline_run.rank_dir
        streams = [
            Stream(0, "spool", SpoolSource(folder, processes.log_line)),
            Stream(0, "host", SpoolSource(folder / HOST, processes.log_line)),
        ]
        self._shipper = Shipper(shipping, 0, streams, lambda command: None, lambda ident: None, lambda: None, _say)
        self._shipper.start()

    def _hand_over(self, ended: wire.WorkerExit, patience: float) -> Result:
        """Sends the end, and removes the folder when the server has it with everything before it."""
        assert self._companion is not None
        self._companion.finish()
        until, told, self._open_at = time.monotonic() + patience, False, 0.0
        while time.monotonic() < until and not self._refused:
            self._attend()
            if self._shipper is not None:
                if not told:
                    self._shipper.finish(ended)
                    told = True
                if self._host_closed:
                    self._shipper.close_host()
                if self._shipper.result:
                    self.offline_run.remove()
                    return "shipped"
            time.sleep(QUICK_LOOK)
        return "refused" if self._refused else "away"

    def _close_host(self) -> None:
        self._host_closed = True

    def _find(self) -> Server:
        """Looked up each time: a server that was started since may have another address."""
        return find_server(self.url or self.offline_run.description()["url"], self.offline_run.path.parent.parent)

    def _channel(self) -> Channel:
        """Without a token until the run is open."""
        assert self._server is not None
        return Channel(self._server.urls, self._server.urls_file, "", self._server.ca_file)


def _say(rank: int, text: str) -> None:
    processes.log_line(text)


if __name__ == "__main__":
    sys.exit(main())
