"""`muster doctor --engine X`: checks one engine, through the running server or else from this process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from muster.api.engines import FindingView
from muster.cli import daemon
from muster.cli.call import CALL
from muster.cli.check import Check
from muster.cli.connect import client
from muster.control.secrets import load_keyring
from muster.core.errors import NotFound, Unavailable
from muster.engines.describe import Home
from muster.engines.registry import KINDS, LOCAL, check_engines, how_to_add, make_adapter
from muster.server.settings import Settings


def look(home: Path, name: str) -> Iterator[Check]:
    """Findings, one after the other. Raises NotFound for an engine that is not configured."""
    with client() as to:
        try:
            findings = to.diagnose(name)
            first = next(findings, None)
        except Unavailable:
            if CALL.url is not None or daemon.find(home) is not None:
                raise
            yield Check("server", "warn", "none runs: looked at from here, with this home's settings")
            yield from _from_here(home, name)
            return
        for found in chain([first] if first is not None else [], findings):
            yield _check(found)


def _from_here(home: Path, name: str) -> Iterator[Check]:
    settings = Settings.load(home, {})
    named: dict[str, dict[str, Any]] = check_engines(settings.engines) or {LOCAL: {"kind": LOCAL}}
    if name in KINDS:
        named = {name: {"kind": name}, **named}  # as `muster up --engine NAME` would configure it
    if name not in named:
        raise NotFound(f"No engine {name!r} is set up.", how_to_add(name, named))
    if name == LOCAL:
        yield Check("engine", "ok", "this machine: see `muster doctor`")
        return
    adapter = make_adapter(name, named[name], _home(home, settings))
    try:
        for found in adapter.diagnose():
            yield Check(found.name, found.status, found.detail, found.hint)
    finally:
        adapter.close()


def _home(home: Path, settings: Settings) -> Home:
    urls = settings.advertised or (f"http://{settings.host}:{settings.port}",)
    keyring = load_keyring(home / "key")
    return Home(home, keyring.installation, lambda: urls, home / "server.json", key=keyring.engines)


def _check(found: FindingView) -> Check:
    return Check(found["name"], found["status"], found["detail"], found["hint"])
