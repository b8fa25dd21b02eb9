"""`muster check`: tells every mistake of job files, without a server."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from muster.cli.call import Json
from muster.cli.output import emit, out, show_error
from muster.cli.prepare import Prepared, check_circle, from_file, parse_overrides
from muster.client import MusterError


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Job files; - reads one from standard input.")],
    override: Annotated[
        list[str] | None,
        typer.Option("--override", "-o", metavar="KEY=VALUE", help="Set a field of the job file: -o envs.LR=1e-3."),
    ] = None,
    json: Json = False,
) -> None:
    """Check job files and tell every mistake in them, without a server. The exit code is 1 if there is one.

    Whether a server would accept a job, and when it would start, says `muster submit --dry-run`.
    """
    overrides = parse_overrides(override or ())
    results = [_checked(name, overrides) for name in files]
    if len(files) > 1:
        check_circle([one for one in results if isinstance(one, Prepared)])
    if json:
        emit({"files": [_document(name, one) for name, one in zip(files, results, strict=True)]})
    else:
        for one in results:
            if isinstance(one, Prepared):
                out().print(Text(f"{one.source} is in order: {one.spec.name}"))
            else:
                show_error(one.to_dict(), as_json=False)
    if not all(isinstance(one, Prepared) for one in results):
        raise typer.Exit(1)


def _checked(name: str, overrides: dict[str, Any]) -> Prepared | MusterError:
    try:
        return from_file(name, overrides, local=False)
    except MusterError as error:
        return error


def _document(name: str, one: Prepared | MusterError) -> dict[str, Any]:
    if isinstance(one, Prepared):
        return {"file": name, "ok": True, "name": one.spec.name}
    return {"file": name, "ok": False, "error": one.to_dict()}
