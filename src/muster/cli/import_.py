"""`muster import`: converts an sbatch script into a job file, and reports everything that is not the same there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from muster.cli.call import Json, Usage
from muster.cli.output import emit, note
from muster.cli.terminal import stdout
from muster.core.errors import Invalid, NotFound
from muster.core.parse import parse_job
from muster.core.spec import dump_job
from muster.core.units import mended_name
from muster.foreign.sbatch_job import Imported, read_job
from muster.foreign.sbatch_shape import Message


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A script for sbatch; - reads it from standard input.")],
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write the job file there.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file that -o names.")] = False,
    json: Json = False,
) -> None:
    """Turn an sbatch script into a job file, and list what could not be carried over, with what to do instead."""
    target = _target(output, force)
    text, name = _read(file)
    try:
        found = read_job(text, name)
    except RecursionError:
        raise Invalid(
            f"{file} nests brackets too deeply to be read.", "Write its commands on lines of their own."
        ) from None
    except ValueError:
        hint = "Name a script with a command in it; `#SBATCH` lines alone run nothing."
        raise Invalid(f"{file} has no command to run.", hint) from None
    job, renamed = _named(found.job)
    written = _commented(dump_job(parse_job(job, source=file)), name, found)
    notes = [*renamed, *found.notes]
    if target:
        target.write_text(written, encoding="utf-8")
    if json:
        emit(_document(written, found, notes, output))
        return
    if not target:
        stdout().write(written)
    _print_notes(found, notes)
    if target:
        note(("wrote ", "green"), f"{output}; try it with `muster submit {output} --dry-run`.")


def _target(output: str | None, force: bool) -> Path | None:
    """The output path, checked before the work."""
    path = Path(output) if output else None
    if path and path.exists() and not force:
        raise Usage(f"-o: {output} exists.", "Name another file, or give --force to overwrite it.")
    if path and not path.absolute().parent.is_dir():
        raise Usage(f"-o: {output} can't be written.", "Name a file in a folder that exists.")
    return path


def _read(file: str) -> tuple[str, str]:
    if file == "-":
        return sys.stdin.read(), "job.sbatch"
    path = Path(file)
    try:
        return path.read_text(encoding="utf-8"), path.name
    except FileNotFoundError:
        raise NotFound(f"There is no script {file}.", "Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} can't be read: {error}.", "Name a script for sbatch.") from None


def _named(job: Mapping[str, Any]) -> tuple[dict[str, Any], list[Message]]:
    """The job with a valid name."""
    given = job.get("name")
    if given is None or mended_name(given) == given:
        return dict(job), []
    name = mended_name(given)
    renamed = Message(0, f"the name {given}", f"is {name} here: lower case letters, digits and `-`.")
    return {**job, "name": name}, [renamed]


def _commented(text: str, name: str, found: Imported) -> str:
    """The job file with a comment above that lists what could not be carried over, for later readers."""
    head = [f"From {name}, by `muster import`.", *(f"Not carried: {_line(one)}" for one in found.lost)]
    return "".join(f"# {' '.join(line.split())}\n" for line in head) + text.rstrip("\n") + "\n"


def _print_notes(found: Imported, notes: Sequence[Message]) -> None:
    for one in found.carried:
        note(("carried: ", "dim"), f"{_where(one)}{one.what} is ", (one.became, "bold"))
    for one in found.lost:
        note(("not carried: ", "bold yellow"), _line(one))
    for one in notes:
        note(("note: ", "bold"), _line(one))


def _document(text: str, found: Imported, notes: Sequence[Message], output: str | None) -> dict[str, Any]:
    parts = {"carried": found.carried, "not_carried": found.lost, "notes": notes}
    return {
        "job": text,
        "wrote": output,
        **{name: [asdict(one) for one in messages] for name, messages in parts.items()},
    }


def _line(one: Message) -> str:
    return f"{_where(one)}{one.what} {one.became}"


def _where(one: Message) -> str:
    return f"line {one.line}: " if one.line else ""
