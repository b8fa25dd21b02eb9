"""`muster runs artifacts RUN [ls|get|put|rm]`: the files of a run; `--collect` removes what retention does not keep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.format import since, size
from muster.cli.output import emit, note, out, show_table, table
from muster.client import Client
from muster.client.folders import get_files, put_files

ACTIONS = ("ls", "get", "put", "rm")


def artifacts(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="Its id, number or name.")] = None,
    action: Annotated[str, typer.Argument(metavar="[ls|get|put|rm]", help="What to do.")] = "ls",
    paths: Annotated[list[str] | None, typer.Argument(metavar="PATH", help="Of the run; for put: files here.")] = None,
    to: Annotated[str | None, typer.Option(help="get: a folder here. put: a path in the run.")] = None,
    kind: Annotated[str, typer.Option(help="put: file, media, checkpoint or model.")] = "file",
    step: Annotated[int | None, typer.Option(help="put: the step that it belongs to.")] = None,
    why: Annotated[str | None, typer.Option(help="get: why an administrator takes what is quarantined.")] = None,
    about: Annotated[str | None, typer.Option(help="put: a sentence about it.")] = None,
    collect: Annotated[
        bool, typer.Option("--collect", help="Remove what the projects' retention lets go, now rather than tonight.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="collect, rm: only say what would go.")] = False,
    json: Json = False,
) -> None:
    """List, download, upload and remove the files of a run."""
    with client() as at:
        if collect:
            _collect(at, run, dry_run, json)
            return
        if run is None or action not in ACTIONS:
            given = "No run is given." if run is None else f"{action!r} is nothing that can be done."
            raise Usage(given, "Write `muster runs artifacts RUN [ls|get|put|rm] [PATH]`, or --collect.")
        if action == "ls":
            _list(at, run, paths or [""], json)
        elif action == "get":
            _get(at, run, paths or [""], Path(to or "."), why, json)
        elif action == "put":
            _put(at, run, paths or [], {"to": to, "kind": kind, "step": step, "about": about}, json)
        else:
            _remove(at, run, paths or [], dry_run, json)


app = artifacts


def _list(at: Client, run: str, prefixes: list[str], json: bool) -> None:
    found = [one for prefix in prefixes for one in at.artifacts(run, prefix)]
    if json:
        emit({"artifacts": found})
        return
    if not found:
        note(("no artifacts", "dim"))
        return
    shown = table("path", "kind", "size", "age", "about", right=("size", "age"))
    for one in found:
        doc = one["doc"]
        said = str(doc.get("about") or doc.get("load") or "")
        if one.get("findings"):
            said = f"{one.get('scan')}: {one['findings'][0]['what']}"
        shown.add_row(one["path"], one["kind"], size(one["bytes"]), since(one["time"]), said)
    show_table(shown)


def _get(at: Client, run: str, prefixes: list[str], folder: Path, why: str | None, json: bool) -> None:
    written = [path for prefix in prefixes for path in get_files(at, run, prefix, folder, why)]
    if json:
        emit({"files": [str(path) for path in written]})
        return
    for path in written:
        out().print(str(path))


def _put(at: Client, run: str, files: list[str], options: dict[str, Any], json: bool) -> None:
    if not files:
        raise Usage("No file is given.", "Write `muster runs artifacts RUN put FILE...`.")
    made = [one for file in files for one in put_files(at, run, Path(file), alone=len(files) == 1, **options)]
    if json:
        emit({"artifacts": made})
        return
    for one in made:
        out().print(Text.assemble((one["path"], "bold"), f"  {size(one['bytes'])}  ", (one["digest"][:12], "dim")))


def _remove(at: Client, run: str, paths: list[str], dry_run: bool, json: bool) -> None:
    if not paths:
        raise Usage("No path is given.", "Write `muster runs artifacts RUN rm PATH...`.")
    gone: list[str] = []
    for path in paths:
        gone += (
            [one["path"] for one in at.artifacts(run, path)] if dry_run else at.remove_artifact(run, path)["removed"]
        )
    if json:
        emit({"removed": gone, "dry_run": dry_run})
        return
    out().print(f"{'would remove' if dry_run else 'removed'} {len(gone)} files")


def _collect(at: Client, run: str | None, dry_run: bool, json: bool) -> None:
    if run is not None:
        raise Usage("--collect is for all runs.", "Leave the run out; to remove some of its files: `rm`.")
    found = at.collect(dry_run)
    if json:
        emit(found)
        return
    verb = "would go" if dry_run else "went"
    for one in found["projects"]:
        out().print(f"{one['project']}: {one['files']} files, {size(one['bytes'])}, of {one['runs']} runs {verb}")
    out().print(f"{found['blobs']} contents that nobody refers to, {size(found['bytes'])}, {verb}")
