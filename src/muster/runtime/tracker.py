"""A run's tracker: inside a job for the job's own run, elsewhere for a run that a sidecar ships.

    with muster.start_run("lr sweep", params={"lr": 3e-4}, tags={"task": "pretrain"}) as run:
        for step in range(1000):
            run.log({"loss": train_step()}, step)

No call waits for the server. While none answers, everything is kept on disk, and `muster runs sync`, or the next
`start_run`, ships it.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, SupportsIndex

from muster import wire
from muster.runtime import rank_info
from muster.runtime.channel import Away
from muster.runtime.checks import Number, check_keys
from muster.runtime.child_runs import ChildRun, open_child
from muster.runtime.files import Files, shared_files
from muster.runtime.media import Media, shared_media
from muster.runtime.offline import FOLDER, OfflineRun, new_id, offline_run_for, offline_runs
from muster.runtime.plain import plain
from muster.runtime.reporter import Reporter, shared
from muster.runtime.server import ServerRefused, find_server, home_folder

CLOSE_PATIENCE: Final = 10.0  # seconds that a script's exit waits for its last data to arrive
_LOOK: Final = 0.01  # seconds


class RunRefused(RuntimeError):
    """The server rejects this run: its message, with a hint."""


class Tracker:
    """Non-blocking; everything recorded is stored once, at the latest when a server is back."""

    def __init__(
        self, run: str, reporter: Reporter, files: Files, media: Media, offline_run: OfflineRun | None = None
    ) -> None:
        self.run = run  # its id; empty for a process that does not write
        self._reporter, self._offline_run, self._files = reporter, offline_run, files
        self._closed = False
        self._next = 0  # the step of the next `log` without one
        self.note = reporter.note
        self.data = reporter.data
        self.progress = reporter.progress
        self.artifact = files.artifact
        self.image, self.histogram = media.image, media.histogram
        self.table, self.text = media.table, media.text

    def log(self, values: Mapping[str, Number], step: SupportsIndex | None = None) -> None:
        """Records one value for each metric at a step; the default step is the one after the last."""
        if step is None:
            step = self._next
        self._reporter.log(values, step)
        self._next = int(step) + 1

    def params(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Records parameters, as a mapping or by name."""
        self._reporter.params(**{**(values or {}), **more})

    def tags(self, values: Mapping[str, str | None] | None = None, /, **more: str | None) -> None:
        """Sets tags, as a mapping or by name; None removes one."""
        self._reporter.tags(**{**(values or {}), **more})

    def child_run(
        self, id: str, name: str = "", params: Mapping[str, Any] | None = None, tags: Mapping[str, str] | None = None
    ) -> ChildRun:
        """A run below this one; `id` distinguishes it from the others."""
        return open_child(self._reporter, id, name, params, tags)

    def flush(self) -> None:
        """Returns when everything recorded is on disk."""
        self._files.flush()
        self._reporter.flush()

    def close(self, outcome: wire.Outcome = "succeeded", detail: str = "", patience: float = CLOSE_PATIENCE) -> None:
        """Ends a run outside Muster; a job's run ends with its job. Waits until the server has everything, `patience`
        seconds at most, and not at all if none has answered yet. The sidecar continues after that."""
        if self._closed:
            return
        if outcome not in wire.OUTCOMES:
            raise ValueError(f"close(): outcome got {outcome!r}; expected 'succeeded', 'failed' or 'stopped'.")
        self._closed = True
        self.flush()
        if self._offline_run is not None and self._offline_run.path.exists():
            try:
                self._offline_run.end(outcome, detail)
            except OSError as error:
                rank_info.warn(f"the end of the run can't be written to {self._offline_run.path}: {error}.")
            until = time.monotonic() + patience
            while time.monotonic() < until and (self._offline_run.path / "opened.json").exists():
                time.sleep(_LOOK)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            self.close(*_outcome(error))


def start_run(
    name: str | None = None,
    project: str = "default",
    params: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    purpose: str | None = None,
    url: str | None = None,
    resume: str | None = None,
) -> Tracker:
    """The run of this script. `resume` continues a run that has ended, as its next attempt.

    In a gang outside Muster only the process with RANK 0 writes; the trackers of the others do nothing. Raises
    RunRefused when the server rejects it, and ValueError for what can't be stored.
    """
    check_keys("start_run(): params", params or {})
    check_keys("start_run(): tags", tags or {})
    if rank_info.active():
        tracker = Tracker(rank_info.job() or "", shared, shared_files, shared_media)
        if params:
            tracker.params(params)
        if tags:
            tracker.tags(tags)
        return tracker
    if rank_info.rank() != 0:
        silent = Reporter()
        return Tracker("", silent, Files(silent), Media(Files(silent)))
    request = {
        "id": resume or new_id(name or Path(sys.argv[0] or "run").stem),
        "key": uuid.uuid4().hex,
        "resume": resume is not None,
        "name": plain(name or ""),
        "project": project,
        "params": plain(dict(params or {})),
        "tags": {key: plain(str(value)) for key, value in (tags or {}).items()},
        "purpose": plain(purpose or ""),
        "created_at": time.time(),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "command": plain(" ".join(sys.orig_argv)[:4000]),
    }
    return _outside(request, url, home_folder())


def _outside(request: dict[str, Any], url: str | None, home: Path) -> Tracker:
    server = find_server(url, home)
    offline_run = offline_run_for(home, request["id"], request["key"])
    offline_run.make(request, url)
    run = str(request["id"])
    try:
        opened = server.open_run(request)
        offline_run.write_opened(opened)
        run = str(opened["id"])
    except ServerRefused as error:
        offline_run.remove()
        raise RunRefused(f"start_run(): {error}") from None
    except Away as error:
        rank_info.warn(f"offline: {error}. The run {run} is kept in {offline_run.path}; `muster runs sync` ships it.")
    else:
        if any(each.path != offline_run.path for each in offline_runs(home)):
            _spawn(["--sync", str(home)], home / FOLDER / "sync.log")
    _spawn([str(offline_run.path)], offline_run.path / "sidecar.log")
    reporter = Reporter(offline_run.rank_dir)
    files = Files(reporter)
    tracker = Tracker(run, reporter, files, Media(files), offline_run)
    _close_at_exit(tracker)
    return tracker


def _spawn(arguments: list[str], log: Path) -> None:
    """Starts a process in its own session, which outlives this one."""
    command = [sys.executable, "-m", "muster.runtime.sidecar", *arguments]
    to_log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(log), to_log, 0o600),
    ]
    try:
        os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
    except OSError as error:
        rank_info.warn(f"the sidecar can't be started ({error}); `muster runs sync` ships what is recorded.")


def _close_at_exit(tracker: Tracker) -> None:
    """Makes the run end as the script ends, unless the script is killed."""
    process, before_hook, before_exit = os.getpid(), sys.excepthook, sys.exit
    ends: list[tuple[wire.Outcome, str]] = []

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        ends.append(_outcome(error))
        before_hook(kind, error, trace)

    def leave(code: Any = None, /) -> NoReturn:
        ends.append(_outcome(SystemExit(code)))
        before_exit(code)

    def close() -> None:
        if os.getpid() == process:
            tracker.close(*(ends[-1] if ends else ("succeeded", "")))

    sys.excepthook = hook
    sys.exit = leave
    atexit.register(close)


def _outcome(error: BaseException) -> tuple[wire.Outcome, str]:
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "interrupted from the keyboard"
    if isinstance(error, SystemExit):
        return ("failed", f"exit {error.code}") if error.code else ("succeeded", "")
    return "failed", "".join(traceback.format_exception(error))
