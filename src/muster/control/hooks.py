"""Hooks: sends events of the log as HTTP requests to URLs that the server's settings name.

    [hooks.chat]
    url = "https://chat.example/hook"
    events = ["job.failed", "node."]        # kinds, or prefixes of kinds that end in "."
    secret_env = "CHAT_SECRET"              # optional: the body is signed with the value of this variable

Each event becomes a message of the outbox in the transaction that moves the mark of the follower `hooks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.control.delivery import is_address, post
from muster.control.outbox_rows import Message, message_row
from muster.core.config import Table
from muster.core.errors import ConfigError
from muster.core.event import Event
from muster.store.base import Entry

KIND: Final = "hook"  # of outbox messages


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
        """Posts the event. Raises unless the receiver answers with a 2xx."""
        hook = self._hooks.get(message.doc["hook"])
        if hook is None:
            raise ConfigError(f"There is no hook {message.doc['hook']!r} in the settings any more.")
        body = json.dumps(message.doc["event"], separators=(",", ":")).encode()
        post(hook.url, body, message.id, hook.secret_env)


def _hook(table: Table) -> Hook:
    found = Hook(table.text("url"), table.texts("events"), table.text("secret_env"))
    if not is_address(found.url):
        table.wrong("url", "an address", "Write it like https://HOST/PATH.")
    if not found.events or not all(found.events):
        table.wrong("events", "a list of kinds of events", 'Write it like ["job.failed", "node."].')
    table.refuse_others()
    return found
