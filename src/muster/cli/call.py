"""The global options of this call: those before any verb, and `--json`, which every verb has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from muster.core.errors import MusterError


class Usage(MusterError):
    """A command line that is not valid; the exit code is 2."""

    code = "usage"


@dataclass(slots=True)
class Call:
    url: str | None = None
    home: Path | None = None
    ca_file: Path | None = None
    json: bool = False


CALL = Call()


def reset() -> None:
    """Resets the options; one process may call `main` more than once."""
    CALL.url, CALL.home, CALL.ca_file, CALL.json = None, None, None, False


def home_folder() -> Path:
    """The home folder of the server of this call."""
    return (CALL.home or Path(os.environ.get("MUSTER_HOME") or "~/.muster")).expanduser().absolute()


def _remember(value: bool) -> bool:
    """`muster queue --json ls` means the same as `muster queue ls --json`."""
    CALL.json = CALL.json or value
    return CALL.json


Json = Annotated[
    bool,
    # Eager, so that a mistake in another option is already reported as JSON.
    typer.Option("--json", help="Print JSON, for programs.", callback=_remember, is_eager=True, show_default=False),
]
