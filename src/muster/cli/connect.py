"""The client of this call."""

from __future__ import annotations

import os

from muster.cli.call import CALL, Usage, home_folder
from muster.cli.output import note
from muster.client import Client
from muster.client.stream import RETRY_FOR, Link
from muster.core.units import Unfit, parse_duration


def client(on_link: Link | None = None, timeout: float = 30) -> Client:
    """To the server that the command line, the environment or the home folder names; `timeout` is in seconds."""
    return Client(CALL.url, home=home_folder(), timeout=timeout, retry_for=_retry_for(), on_link=on_link or say_link)


def say_link(back: bool) -> None:
    """Tells somebody who follows a stream that the server went away, or that it is back."""
    note(("server is back" if back else "server away, retrying", "dim"))


def _retry_for() -> float:
    """Seconds that `logs -f`, `run` and the like wait for a server that went away."""
    text = os.environ.get("MUSTER_RETRY_FOR")
    try:
        return parse_duration(text) if text else RETRY_FOR
    except Unfit:
        raise Usage(f"MUSTER_RETRY_FOR is {text!r}.", "Expected a duration such as 60s or 1h.") from None
