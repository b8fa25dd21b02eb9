"""The checks of `muster doctor` on the server: whether it is reachable, is the leader, and accepts the token."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from muster.api.health import ServerHealth
from muster.cli import daemon
from muster.cli.check import Check, Checker
from muster.cli.connect import client
from muster.core.errors import ConfigError, MusterError
from muster.engines.isolation import HINT, probe_isolation, read_local
from muster.engines.registry import LOCAL, check_engines
from muster.server.settings import Settings

_SKEW = 5.0  # seconds; the server's Date header has whole seconds
_TIMEOUT = 5.0  # seconds
_BEHIND = 10_000  # events that a follower may be behind


def port(home: Path) -> Iterator[Check]:
    """Whether the port of this home's server is free, or in use by this server."""
    try:
        settings = Settings.load(home, {})
    except ConfigError as error:
        yield Check("config", "fail", error.message, error.hint)
        return
    server = daemon.find(home)
    if server is not None:
        ours = ", ".join(str(urlsplit(url).port) for url in server.urls)
        yield Check("port", "ok", f"{ours}, of the server that runs (pid {server.pid})")
        return
    try:
        with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        detail = f"{settings.host}:{settings.port}: {error.strerror}"
        yield Check("port", "warn", detail, "Stop what uses it, or choose another: `muster up --port`.")
    else:
        yield Check("port", "ok", f"{settings.port} is free" if settings.port else "any that is free")


def server(home: Path) -> Iterator[Check]:
    """Whether the server is reachable, ready, the leader, has the same clock, and accepts our token."""
    with client(timeout=_TIMEOUT) as to:
        try:
            answer = to.ready()
            where = ", ".join(to.target.urls)
        except MusterError as error:
            yield Check("server", "warn", error.message, error.hint)
            return
        if not answer.get("ready"):
            holder = answer.get("holder") or "nobody"
            hint = "It takes over when the other one is gone; see its log if there is no other."
            yield Check("server", "warn", f"{where} does not lead; {holder} holds the lease", hint)
            return
        yield Check("server", "ok", f"{where} is ready and leads")
        skew = time.time() - to.clock()
        if abs(skew) > _SKEW:
            hint = "Set both clocks by NTP: times and rates that you see are off by as much."
            yield Check("clock", "warn", f"this machine is {skew:+.0f} s from the server", hint)
        else:
            yield Check("clock", "ok", "as the server's")
        try:
            me = to.whoami()
        except MusterError as error:
            yield Check("token", "fail", error.message, error.hint)
        else:
            yield Check("token", "ok", f"valid: {me['user']}, {'superuser' if me['superuser'] else me['role']}")
            health = to.health()
            yield from _record(health)
            yield from _admission(health)
            yield from _advisories(health)


def _record(health: ServerHealth) -> Iterator[Check]:
    """Whether the record keeps up with the log, and whether anything could not be written or delivered."""
    followers, aside, outbox = health["followers"], health["set_aside"], health["outbox"]
    troubled = [f"{one['name']}: {one['trouble']}" for one in followers if one["trouble"]]
    behind = [f"{one['name']} by {one['behind']:,} events" for one in followers if one["behind"] > _BEHIND]
    if troubled or behind:
        hint = "See the server's log; what they write comes later, and is not lost."
        yield Check("followers", "warn", "behind the event log: " + "; ".join(troubled + behind), hint)
    else:
        yield Check("followers", "ok", f"all {len(followers)} are at the end of the event log")
    if aside:
        newest = aside[0]
        about = f" of {newest['run']}" if newest["run"] else ""
        detail = f"{len(aside)} could not be written and were set aside; the newest: {newest['source']}{about}: "
        hint = "Report it; the bytes are in the table set_aside of the server's database."
        yield Check("record", "warn", detail + newest["error"], hint)
    elif health["outbox"] is None and not troubled and not health.get("healthy", True):
        detail = "something could not be written or delivered"
        yield Check("record", "warn", detail, "Ask an administrator to run `muster doctor`.")
    if outbox and outbox["given_up"]:
        detail = f"{outbox['given_up']} were given up: {outbox['error']}"
        yield Check("messages", "warn", detail, "Check `hooks` in the server's settings, and their receivers.")
    elif outbox and outbox["error"]:
        yield Check("messages", "warn", f"{outbox['waiting']} wait: {outbox['error']}", "They are tried again.")


def _admission(health: ServerHealth) -> Iterator[Check]:
    """The company's own admission checks, each with what its failure means."""
    for one in health.get("admission", []):
        whose = f" for {', '.join(one['projects'])}" if one["projects"] else ""
        terms = f"{one['where']}{whose}, {one['deadline']:g} s, on_error {one['on_error']}"
        counts = f"asked {one['asked']} times, refused {one['refused']}, failed {one['failed']}"
        name = f"admission {one['kind']} {one['name']}"
        if one["error"]:
            means = "jobs are refused" if one["on_error"] == "refuse" else "jobs are accepted without it"
            yield Check(name, "warn", f"{terms}; {counts}; {one['error']}", f"While it fails, {means}.")
        else:
            yield Check(name, "ok", f"{terms}; {counts}")


def _advisories(health: ServerHealth) -> Iterator[Check]:
    """Whether known vulnerable packages can be looked up."""
    found = health.get("advisories")
    if found is None:
        return
    if found["error"]:
        hint = "Correct `advisories` in config.toml, or the file. Guards that refuse for them refuse every lock file."
        yield Check("advisories", "warn", found["error"], hint)
    else:
        yield Check("advisories", "ok", f"{found['count']:,} of {found['path']}")


def launchers(home: Path) -> Iterator[Check]:
    """Jobs that continue while no server watches them."""
    if daemon.find(home) is not None:
        return
    alive = sorted({path.parts[-4] for path in home.glob("local/attempts/*/*/*/launcher.json") if _lives(path)})
    if alive:
        detail = f"{len(alive)} job(s) go on without a server: {', '.join(alive[:5])}"
        yield Check("jobs", "warn", detail, "`muster up -d` takes them up again.")


def isolation(home: Path) -> Iterator[Check]:
    """Whether jobs of members on this machine are isolated; found out by trying."""
    try:
        settings = Settings.load(home, {})
    except ConfigError:
        return  # reported above
    named = check_engines(settings.engines)
    if named and LOCAL not in named:
        return
    found = probe_isolation(read_local(named.get(LOCAL, {}), settings.trust_members))
    if found.kind == "none":
        hint = f"Type `{found.remedy}`." if found.remedy else HINT
        yield Check("isolation", "warn", f"{found.detail}; they are refused, and administrators' are not", hint)
    elif found.kind == "trusted":
        yield Check("isolation", "warn", found.detail, "Take `trust_members` away to have them kept apart.")
    else:
        yield Check("isolation", "ok", found.detail)


CHECKS: Final[tuple[Checker, ...]] = (port, server, launchers, isolation)


def _lives(path: Path) -> bool:
    try:
        identity = json.loads(path.read_text())
        return daemon.this_boot(identity) and daemon.start_ticks(int(identity["pid"])) == int(identity["start_ticks"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
