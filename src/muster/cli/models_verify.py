"""`muster models verify`, `download` and `keys`: signed statements of models, checked with or without a server."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from muster.cli import format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.lazy import load
from muster.cli.model_names import One, one_version
from muster.cli.output import emit, out, show_table, table
from muster.client.folders import get_model
from muster.core.errors import Invalid, NotFound

if TYPE_CHECKING:
    from muster.track.provenance.verify import Verdict

_SHOWN = 20  # names of each kind


def verify(
    what: Annotated[
        str, typer.Argument(metavar="MODEL/VERSION|FOLDER", help="A version of the registry, or downloaded files.")
    ],
    key: Annotated[
        Path | None, typer.Option("--key", help="Trusted public keys (PEM); else those of the server.")
    ] = None,
    statement: Annotated[
        Path | None, typer.Option("--statement", help="Else muster.statement.json in the folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Check a signature, and the digest of every file. With a folder and --key no server is needed.

    Exits with 1 if a file was changed, is missing or is not in the statement.
    """
    folder = Path(what).expanduser()
    if folder.is_dir():
        verdict: Verdict = _verify_folder(folder, key, statement)
    elif statement is not None:
        raise Usage(f"--statement: {what!r} is no folder.", "Name the folder with the files.")
    else:
        verdict = _verify_version(what, key)
    _show(verdict, what, json)
    if not verdict.ok:
        raise typer.Exit(1)


def download(
    name: One,
    to: Annotated[Path | None, typer.Option("--to", help="A folder; else one named after the version.")] = None,
    json: Json = False,
) -> None:
    """Download a version's files, with its signed statement beside them."""
    with client() as at:
        model, version = one_version(at, name)
        folder = to if to is not None else Path(f"{model}-{version}")
        written = get_model(at, model, version, folder.expanduser())
    if json:
        emit({"files": [str(path) for path in written]})
        return
    for path in written:
        out().print(Text(str(path)))


def keys(
    pem: Annotated[bool, typer.Option("--pem", help="As PEM, for --key of `verify`.")] = False,
    rotate: Annotated[bool, typer.Option("--rotate", help="Make a new key; what was signed stays good.")] = False,
    json: Json = False,
) -> None:
    """Show the public keys that the server signs statements with; rotate them."""
    with client() as at:
        found = at.rotate_signing_key() if rotate else at.signing_keys()
    if json:
        emit({"keys": found})
    elif pem:
        typer.echo("".join(one["pem"] for one in found), nl=False)
    else:
        made = table("key", "made", "retired")
        for one in found:
            retired = format.clock(one["retired_at"]) if one["retired_at"] else Text("in use", style="green")
            made.add_row(one["id"], format.clock(one["created_at"]), retired)
        show_table(made)


def _verify_folder(folder: Path, key: Path | None, statement: Path | None) -> Verdict:
    read: Any = load("muster.track.provenance.verify:read_envelope")
    check: Any = load("muster.track.provenance.verify:verify_folder")
    name = load("muster.track.provenance.statement:FILE_NAME")
    file = statement.expanduser() if statement is not None else folder / name
    data = read(file)
    verdict: Verdict = check(folder, data, _keys(key, None), file)
    return verdict


def _verify_version(what: str, key: Path | None) -> Verdict:
    """Against what the server stores now."""
    check: Any = load("muster.track.provenance.verify:verify_digests")
    with client() as at:
        name, version = one_version(at, what)
        envelope = at.model_statement(name, version)["envelope"]
        stored = at.model_files(name, version)["files"]
        trusted = _keys(key, at)
    data = json_text.dumps(envelope).encode()
    verdict: Verdict = check(data, trusted, {one["name"]: one["digest"] for one in stored}, f"model:{name}/{version}")
    return verdict


def _keys(file: Path | None, at: Any) -> Mapping[str, bytes]:
    read: Any = load("muster.core.envelope:read_keys")
    if file is not None:
        try:
            text = file.expanduser().read_text()
        except (OSError, ValueError) as error:
            hint = "Write one with `muster models keys --pem > keys.pem`."
            raise NotFound(f"The keys in {file} can't be read: {error}.", hint) from None
        found: Mapping[str, bytes] = read(text, str(file))
        return found
    if at is None:
        with client() as own:
            return _keys(None, own)
    text = "".join(one["pem"] for one in at.signing_keys())
    if not text:
        raise Invalid("The server has no keys.", "Give trusted keys with --key.")
    found = read(text, "the server's keys")
    return found


def _show(verdict: Verdict, what: str, json: bool) -> None:
    statement = verdict.statement
    if json:
        emit({
            "ok": verdict.ok, "ref": statement.about, "run": statement.run, "built": statement.built,
            "builder": statement.builder, "key": verdict.key, "good": list(verdict.good),
            "changed": list(verdict.changed), "missing": list(verdict.missing), "extra": list(verdict.extra),
            "predicate": statement.predicate,
        })  # fmt: skip
        return
    mark, style = ("good", "green") if verdict.ok else ("NOT GOOD", "red")
    out().print(Text.assemble((mark, style), f"  {what}: {len(verdict.good)} of {len(statement.subjects)} files"))
    made = f"run {statement.run}" if statement.built else "not observed: files were uploaded"
    facts = {"signed as": statement.about, "built by": made, "builder": statement.builder, "key": verdict.key}
    for name, value in facts.items():
        out().print(Text.assemble((f"{name:<11}", "dim"), value))
    for name, found in (("changed", verdict.changed), ("missing", verdict.missing), ("not signed", verdict.extra)):
        for file in found[:_SHOWN]:
            out().print(Text.assemble((f"{name:<11}", "red"), file))
        if len(found) > _SHOWN:
            out().print(Text(f"{'':<11}and {len(found) - _SHOWN} more"))
