"""`muster tune export`: the trials of a study as CSV, as JSON, or as a study of Optuna."""

from __future__ import annotations

import json as json_lib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import typer

from muster.api.studies import StudyHead, TrialRow
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.lazy import load
from muster.cli.output import emit, note
from muster.cli.terminal import stdout
from muster.cli.tune_csv import write_csv
from muster.cli.tune_list import StudyRef
from muster.core.errors import Invalid


def export(
    ref: StudyRef,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to; else standard output.")] = None,
    format_: Annotated[
        Literal["csv", "json"] | None, typer.Option("--format", "-f", help="By the name of the file unless given.")
    ] = None,
    optuna: Annotated[
        str | None,
        typer.Option("--to", metavar="STORAGE", help="A storage of Optuna: study.db, journal.log, or its address."),
    ] = None,
    json: Json = False,
) -> None:
    """Write all trials of a study with their parameters and values as CSV, or with the study file as JSON.

    With --to it becomes a study of Optuna: `muster tune export lr --to lr.db && optuna-dashboard sqlite:///lr.db`.
    """
    if optuna is not None and (file is not None or format_ is not None):
        raise Usage("--to is given, and a file or a format too.", "Leave one of them out.")
    with client() as to:
        status, text = to.study_status(ref), to.study_file(ref)
        head = status["study"]
        found = to.trials(head["id"])
    if optuna is not None:
        told = load("muster.cli.tune_optuna:write")(text["study"], head, found, optuna)
        emit({"study": head["id"], **told}) if json else note(f"Wrote {len(found):,} trials to {told['storage']}.")
        return
    document = {"study": head, "file": text["text"], "canonical": text["study"], "trials": found}
    kind = format_ or ("json" if json or (file is not None and file.suffix == ".json") else "csv")
    if file is None:
        _print(kind, document, head, found)
        return
    try:
        with file.open("w", encoding="utf-8", newline="") as target:
            _write(target, kind, document, head, found)
    except OSError as error:
        raise Invalid(f"{file} can't be written: {error.strerror}.", "Choose another place.") from error
    note(f"Wrote {len(found):,} trials to {file}.")


def _print(kind: str, document: Any, head: StudyHead, rows: Sequence[TrialRow]) -> None:
    if kind == "json":
        emit(document)
    else:
        write_csv(stdout(), head, rows)


def _write(target: TextIO, kind: str, document: Any, head: StudyHead, rows: Sequence[TrialRow]) -> None:
    if kind == "json":
        json_lib.dump(document, target)
    else:
        write_csv(target, head, rows)
