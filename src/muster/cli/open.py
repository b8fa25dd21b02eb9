"""`muster open`: a one-time link that signs a browser in to the web page."""

from __future__ import annotations

import html
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer
from rich.text import Text

from muster.cli.call import Json, home_folder
from muster.cli.connect import client
from muster.cli.output import emit, note, out
from muster.client import Client, MusterError

_IN_ADDRESS: Final = "/?&=%:,;@+~!*()'"  # as it is
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


def open_(
    page: Annotated[str, typer.Argument(metavar="[PAGE]", help="Where it leads, such as queue or runs/JOB.")] = "/",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link, and start no browser.")] = False,
    json: Json = False,
) -> None:
    """Open the web page, signed in as you. The link works once, for 5 minutes."""
    with client() as to:
        link = to.session_link(f"/{quote(page.lstrip('/'), safe=_IN_ADDRESS)}")
    if json:
        emit(link)
        return
    out().print(Text(link["url"]))
    if no_browser or not _has_screen():
        note(("Open it in a browser; it works once, for 5 minutes.", "dim"))
    elif not _show(link["url"], home_folder()):
        note(("No browser could be started: open the link in one.", "yellow"))


def link_line(home: Path, *urls: str) -> Text | None:
    """The line that `muster up` and `muster demo` end with; None if this home's server makes no link now."""
    try:
        # All given explicitly: MUSTER_URL and MUSTER_TOKEN may be set for another server.
        with Client(",".join(urls), (home / "token").read_text().strip(), home, timeout=10) as to:
            return Text.assemble("Open ", (to.session_link()["url"], "bold"))
    except (MusterError, OSError):
        return None


def _has_screen() -> bool:
    return sys.stdout.isatty() and (sys.platform == "darwin" or any(os.environ.get(name) for name in _DISPLAYS))


def _show(url: str, home: Path) -> bool:
    """Starts a browser with a file that leads to the link: every user of this machine can read command lines."""
    path = home / "open.html"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(
            f'<!doctype html><meta http-equiv=refresh content="0;url={html.escape(url)}"><title>Muster</title>\n'
        )
    return webbrowser.open(path.as_uri())
