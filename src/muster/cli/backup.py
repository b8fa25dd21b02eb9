"""`muster backup`: a consistent copy of everything that the server on this machine stores, made while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from muster.cli import format
from muster.cli.call import Json, home_folder
from muster.cli.lazy import load
from muster.cli.output import emit, err, note, out


def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that is not there yet, or empty.")],
    verify: Annotated[bool, typer.Option("--verify", help="Check a backup that was made before.")] = False,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Database, if the server was started with another.")
    ] = None,
    json: Json = False,
) -> None:
    """Copy the database, the key and the content of the server on this machine; it goes on meanwhile.

    The copy is a home folder. `muster --home FOLDER up` starts a server on it, and that one starts the jobs again that
    ran when the copy was made: only do that where the first server is gone.
    """
    with _bars(json) as progress:
        if verify:
            found = load("muster.store.backup_check:verify")(folder, progress)
        else:
            home = home_folder()
            settings = load("muster.server.settings:Settings").load(home, {"store_url": store})
            remote = settings.artifacts.startswith("s3:")
            blobs = None if remote else load("muster.track.blob_store:local_folder")(settings.artifacts, home)
            source = load("muster.store.backup:Source")(
                settings.url_of_store, home, blobs, settings.artifacts if remote else ""
            )
            found = load("muster.store.backup:back_up")(source, folder, progress)
            if remote and not json:
                note(f"The content is in {settings.artifacts} and was not copied: protect the bucket itself.")
    if json:
        emit({"verified": verify, **found.to_dict()})
    else:
        _show(found.to_dict(), verify)
    if found.problems:
        raise typer.Exit(1)


def _show(doc: dict[str, Any], verified: bool) -> None:
    files = ", ".join(f"{name} ({format.size(each['bytes'])})" for name, each in doc["files"].items())
    content = f"{doc['blobs']:,} pieces of content ({format.size(doc['blob_bytes'])})"
    for problem in doc["problems"]:
        note(("problem: ", "bold red"), problem)
    if doc["problems"]:
        out().print(Text(f"{doc['folder']} is not whole: {len(doc['problems'])} problems.", style="red"))
    else:
        done = "is whole" if verified else "holds a whole copy"
        out().print(Text(f"{doc['folder']} {done}: {files}; {content}."))
        if "muster.pgdump" in doc["files"]:
            note(f"Put it back with: pg_restore --dbname=URL {doc['folder']}/muster.pgdump")
        elif not verified:
            note(f"`muster --home {doc['folder']} up` goes on from it, with the jobs that ran when it was made.")


@contextmanager
def _bars(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    screen = err()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=False), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bars:
        task = bars.add_task("", total=None)
        yield lambda what, done, total: bars.update(task, description=what, completed=done, total=total)
