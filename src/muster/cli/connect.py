"""Creates the client of this call, and applies an action to several objects of the server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from rich.text import Text

from muster.cli.call import CALL, Usage, home_folder
from muster.cli.output import emit, note, out, show_error
from muster.client import Client, MusterError
from muster.client.stream import RETRY_FOR, Link
from muster.core.errors import Unavailable
from muster.core.units import InvalidValue, parse_duration


def client(on_link: Link | None = None, timeout: float = 30) -> Client:
    """A client of the server that the command line, the environment or the home names; `timeout` is in seconds."""
    link = on_link or say_link
    return Client(
        CALL.url, home=home_folder(), timeout=timeout, ca_file=CALL.ca_file, retry_for=_retry_for(), on_link=link
    )


def for_each(
    noun: str, refs: Sequence[str], act: Callable[[Client, str], tuple[Mapping[str, Any], str]], json: bool
) -> None:
    """Calls `act` for each reference; it returns a document and a sentence. A failure does not affect the others, and
    makes the exit code 1."""
    results: list[Mapping[str, Any]] = []
    failed = False
    with client() as to:
        for ref in refs:
            try:
                result, sentence = act(to, ref)
            except MusterError as error:
                failed = True
                results.append({"error": error.to_dict()})
                if not json:
                    show_error(error.to_dict(), as_json=False)
            else:
                results.append(result)
                if not json:
                    out().print(Text(sentence))
    if json:
        emit({noun: results})
    if failed:
        raise typer.Exit(1)


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
