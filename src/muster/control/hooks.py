"""Hooks: sends events of the log as HTTP requests to URLs that the server's settings name.

    [hooks.chat]
    url = "https://chat.example/hook"
    events = ["job.failed", "node."]        # kinds, or prefixes of kinds that end in "."
    secret_env = "CHAT_SECRET"              # optional: the body is signed with the value of this variable

Each event becomes a message of the outbox in the transaction that moves the mark of the follower `hooks`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx

from muster.control.outbox import ReceiverAway
from muster.control.outbox_rows import Message, message_row
from muster.core.config import Table
from muster.core.errors import ConfigError
from muster.core.event import Event
from muster.store.base import Entry

KIND: Final = "hook"  # of outbox messages
SIGNATURE: Final = "Muster-Signature"  # "sha256=" and the HMAC of the body
DELIVERY: Final = "Muster-Delivery"  # the message's number, the same at every try
_SECONDS: Final = 10.0  # timeout of a request in seconds
_LATER: Final = {429, 503}  # too many requests, and unavailable


@dataclass(frozen=True, slots=True)
class Hook:
    url: str
    events: tuple[str, ...]
    secret_env: str = ""

    def wants(self, kind: str) -> bool:
        return any(kind.startswith(one) if one.endswith(".") else kind == one for one in self.events)


def read_hooks(given: object) -> dict[str, Hook]:
    """Reads `hooks` of the server's settings, by name. Raises ConfigError with every mistake."""
    table = Table("", {"hooks": given})
    found = {name: _hook(one) for name, one in table.tables("hooks").items()}
    table.finish()
    return found


class Hooks:
    """The fold of the follower `hooks`, and the delivery of its messages."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks

    def fold(self, events: Sequence[Event]) -> Entry:
        return Entry(rows=[
            message_row(KIND, {"hook": name, "event": event.to_dict()}, event.time, name)
            for event in events
            for name, hook in self._hooks.items()
            if hook.wants(event.kind)
        ])  # fmt: skip

    def deliver(self, message: Message) -> None:
        """Posts the event. Raises unless the receiver answers with a 2xx. Redirects are not followed.

        A receiver that does not answer, or asks to come later, is away: it would treat every message so.
        """
        hook = self._hooks.get(message.doc["hook"])
        if hook is None:
            raise ConfigError(f"There is no hook {message.doc['hook']!r} in the settings any more.")
        body = json.dumps(message.doc["event"], separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json", DELIVERY: str(message.id)}
        if hook.secret_env:
            secret = os.environ.get(hook.secret_env, "")
            if not secret:
                raise ConfigError(f"The variable {hook.secret_env} is not set.", "Set it for the server.")
            headers[SIGNATURE] = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        host = urlsplit(hook.url).hostname
        try:
            with (
                httpx.Client(timeout=_SECONDS, follow_redirects=False, trust_env=False) as http,
                http.stream("POST", hook.url, content=body, headers=headers) as answer,  # its body is not read
            ):
                status = answer.status_code
        except httpx.TransportError as error:
            raise ReceiverAway(f"{host} did not answer: {error or type(error).__name__}") from error
        if status in _LATER:
            raise ReceiverAway(f"{host} answered {status}")
        if not 200 <= status < 300:
            raise ConnectionError(f"{host} answered {status}")


def _hook(table: Table) -> Hook:
    found = Hook(table.text("url"), table.texts("events"), table.text("secret_env"))
    parts = urlsplit(found.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        table.wrong("url", "an address", "Write it like https://HOST/PATH.")
    if not found.events or not all(found.events):
        table.wrong("events", "a list of kinds of events", 'Write it like ["job.failed", "node."].')
    table.refuse_others()
    return found
