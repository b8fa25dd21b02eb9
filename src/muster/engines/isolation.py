"""Isolation of jobs on shared machines: an engine's settings for it, and the instructions for launchers.

An administrator's job runs as the server's own user, because an administrator controls the server anyway. Any other job
is isolated (see `muster.runtime.sandbox`), unless `trust_members` says that all members are trusted.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pwd
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from muster.core.config import Table
from muster.core.errors import EngineError
from muster.engines.base import GangLaunch
from muster.inherited import for_launcher
from muster.wire import Isolation

UID_BASE: Final = 2_000_000  # above the users of any machine, below the range commonly given to containers
PROBE_SECONDS: Final = 60.0
REMOVAL_SECONDS: Final = 3600.0
REFUSAL_SECONDS: Final = 30.0  # how long a failed probe's result is kept
HINT: Final = "apt-get install bubblewrap, or `muster up --trust-members`: then any member's job may read all of it."
_log = logging.getLogger(__name__)

Kind = Literal["user", "sandbox", "trusted", "none"]


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    """The isolation part of an engine's table in config.toml."""

    trust_members: bool = False  # every member's job runs like an administrator's
    pass_env: tuple[str, ...] = ()  # variables that ranks inherit besides the usual ones; a name may end with *
    readable: tuple[str, ...] = ()  # paths that jobs can read even inside hidden folders
    writable: tuple[str, ...] = ()  # paths that jobs may write to as the engine's user; all else is read-only
    hidden: tuple[str, ...] = ()  # further paths that jobs can't see
    users: Mapping[str, str] = field(default_factory=dict)  # project → Unix account, where the launchers run as root
    uid_base: int = UID_BASE  # for projects without an account
    use_subuids: bool = False  # of the local engine: without root, projects' users come from /etc/subuid


def read_isolation(table: Table, trust_members: bool = False) -> IsolationSettings:
    """Reads the isolation keys of an engine's table. `trust_members`: the setting for all engines."""
    found = IsolationSettings(
        trust_members=table.flag("trust_members") or trust_members,
        pass_env=table.texts("pass_env"),
        readable=_folders(table, "readable"),
        writable=_folders(table, "writable"),
        hidden=_folders(table, "hidden"),
        users=table.words("users"),
        uid_base=table.whole("uid_base", UID_BASE, 1000, 2**31 - 1),
    )
    for project, name in found.users.items():
        if name in ("", "root"):
            table.mistakes.add(f"{table.where}.users.{project} is {name!r}.", "Name an account that is not root's.")
    return found


def read_local(given: Mapping[str, Any], trust_members: bool) -> IsolationSettings:
    """Reads [engines.local]. Raises ConfigError with every mistake."""
    table = Table("engines.local", given)
    table.know("kind")
    settings = replace(read_isolation(table, trust_members), use_subuids=table.flag("use_subuids"))
    if settings.use_subuids and settings.users:
        hint = "Accounts need a server that is root; with `use_subuids` each project has a number. Take one away."
        table.mistakes.add("engines.local has both `users` and `use_subuids`.", hint)
    table.finish()
    return settings


def isolation_of(
    gang: GangLaunch, settings: IsolationSettings, hidden: Iterable[str], numbers: Path
) -> Isolation | None:
    """The isolation of a gang's launchers; None for a job that is not isolated.
    `numbers`: the file with the projects' user ids. `hidden`: what the engine itself hides."""
    if gang.trusted or settings.trust_members:
        return None
    uid, gid = _user(gang.project, settings, numbers)
    paths, subid = (*hidden, *settings.hidden), 0
    if _uses_subuids(settings):
        subid = uid - settings.uid_base
        paths = (*paths, *_own_home())  # in its namespace a launcher takes itself for root
    return Isolation(uid, gid, gang.project or "member", paths, settings.readable, settings.writable, subid)


@dataclass(frozen=True, slots=True)
class IsolationStatus:
    """The isolation that works on this machine, as a probe has shown."""

    kind: Kind
    detail: str
    remedy: str = ""  # what to type

    @property
    def isolation_error(self) -> str:
        """Why a member's job can't run here; "" when it can."""
        if self.kind != "none":
            return ""
        return f"{self.detail}; type `{self.remedy}`" if self.remedy else self.detail


def probe_isolation(settings: IsolationSettings) -> IsolationStatus:
    """Probes the isolation in a separate process."""
    if settings.trust_members:
        return IsolationStatus(
            "trusted", "members are trusted: their jobs run as the server's user and can read all it can"
        )
    granted = _uses_subuids(settings)
    why = _run(*(("namespace", "probe") if granted else ("sandbox",)), str(settings.uid_base))
    if why:
        why, _, remedy = why.partition("\n") if granted else (why, "", "")
        return IsolationStatus("none", f"jobs of members can't be kept apart here: {why}", remedy)
    if granted:
        detail = "each project's jobs run as a user of their own (/etc/subuid), in a sandbox (bubblewrap)"
        return IsolationStatus("user", detail)
    if os.geteuid() == 0:
        return IsolationStatus("user", "each project's jobs run as a user of their own, in a sandbox (bubblewrap)")
    return IsolationStatus("sandbox", "members' jobs run in a sandbox (bubblewrap), as the server's user")


def remove_folder(folder: Path) -> None:
    """Removes a folder of a job, with what its ranks saved there as users that /etc/subuid grants."""
    shutil.rmtree(folder, ignore_errors=True)
    if (
        folder.exists()
        and os.geteuid() != 0
        and (why := _run("namespace", "remove", str(folder), seconds=REMOVAL_SECONDS))
    ):
        _log.warning("%s could not be removed: %s", folder, why)


class Probe:
    """Runs the probe at the first call. A failed probe is repeated, but at most once in REFUSAL_SECONDS."""

    def __init__(
        self,
        settings: IsolationSettings,
        look: Callable[[IsolationSettings], IsolationStatus] = probe_isolation,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._look, self._now = settings, look, now
        self._found: IsolationStatus | None = None
        self._looked = float("-inf")
        self._lock = threading.Lock()

    def __call__(self) -> IsolationStatus:
        with self._lock:
            again = (
                self._found is not None
                and self._found.isolation_error
                and self._now() - self._looked >= REFUSAL_SECONDS
            )
            if self._found is None or again:
                self._found = self._look(self._settings)
                self._looked = self._now()
            return self._found


def _run(module: str, *words: str, seconds: float = PROBE_SECONDS) -> str:
    """Runs a module of the worker's side. Returns what it says is wrong, else ""."""
    command = [sys.executable, "-P", "-m", f"muster.runtime.{module}", *words]
    try:
        done = subprocess.run(
            command, env=for_launcher(os.environ), capture_output=True, text=True, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout.strip() or done.stderr.strip()[-500:]) if done.returncode else ""


def _uses_subuids(settings: IsolationSettings) -> bool:
    return settings.use_subuids and os.geteuid() != 0


def _own_home() -> tuple[str, ...]:
    try:
        return (pwd.getpwuid(os.geteuid()).pw_dir,)
    except KeyError:
        return ()


def _user(project: str, settings: IsolationSettings, numbers: Path) -> tuple[int, int]:
    name = settings.users.get(project)
    if name is None:
        number = settings.uid_base + _number(project, numbers)
        return number, number
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise EngineError(f"There is no user {name!r} for project {project!r}.", "Correct `users`.") from None
    if found.pw_uid == 0:
        raise EngineError(f"Project {project!r} would run as root.", "Name another account in `users`.")
    return found.pw_uid, found.pw_gid


def _number(project: str, numbers: Path) -> int:
    """The project's number. It never changes and no other project gets it, so the project's files stay its own."""
    numbers.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(numbers, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known: dict[str, int] = json.loads(file.read() or "{}")
        if project not in known:
            known[project] = 1 + max(known.values(), default=0)
            draft = json.dumps(known)
            file.seek(0)
            file.write(draft)  # the text only ever grows, so nothing of the old text is left behind it
            file.flush()
            os.fsync(file.fileno())
        return known[project]


def _folders(table: Table, key: str) -> tuple[str, ...]:
    found = table.texts(key)
    for path in found:
        if not path.startswith("/") or path.rstrip("/") == "":
            table.mistakes.add(
                f"{table.where}.{key} has {path!r}.", "Write whole paths of folders, and not `/` itself."
            )
    return found
