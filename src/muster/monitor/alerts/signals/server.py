"""Signals of the server itself."""

from __future__ import annotations

from collections.abc import Iterator

from muster.monitor.alerts.rule import Reading, Subject
from muster.monitor.alerts.signals.base import View

SERVER = Subject("server", "server")


def behind(view: View) -> Iterator[Reading]:
    """Events that the slowest follower of the log has not folded yet."""
    yield from _figure(view, "events_behind")


def disk(view: View) -> Iterator[Reading]:
    yield from _figure(view, "disk_share")


def messages(view: View) -> Iterator[Reading]:
    yield from _figure(view, "messages_waiting")


def _figure(view: View, name: str) -> Iterator[Reading]:
    if name in view.server:
        yield Reading(SERVER, view.server[name])
