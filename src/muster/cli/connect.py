"""Creates the client of this call."""

from __future__ import annotations

import os

from muster.cli.call import CALL, Usage, home_folder
from muster.cli.output import note
from muster.client import Client
from muster.client.stream import RETRY_FOR, Link
from muster.core.errors import Unavailable
from muster.core.units import InvalidValue, parse_duration


def client(on_link: Link | None = None, timeout: float = 30) -> Client:
    """A client of the server that the command line, the environment or the home names; `timeout` is in seconds."""
    return Client(CALL.url, home=home_folder(), timeout=timeout, retry_for=_retry_for(), on_link=on_link or say_link)


def sees_our_files(to: Client) -> bool:
    """Whether the server is on this machine. Without a server nothing can be sent, but a job can still be checked."""
    try:
        return to.target.local
    except Unavailable:
        return True


def say_link(back: bool) -> None:
    """Tells the user who follows a stream that the server is lost, or back."""
    note(("server is back" if back else "server away, retrying", "dim"))


def _retry_for() -> float:
    """Seconds that `logs -f`, `run` and similar verbs wait for a lost server."""
    text = os.environ.get("MUSTER_RETRY_FOR")
    try:
        return parse_duration(text) if text else RETRY_FOR
    except InvalidValue:
        raise Usage(f"MUSTER_RETRY_FOR is {text!r}.", "Expected a duration such as 60s or 1h.") from None
