"""Writes the trials of a study, as the API has them, into a storage of Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from muster.api.numbers import number
from muster.api.studies import StudyHead, TrialRow
from muster.core.entities.study import Rung, Trial, TrialPhase
from muster.core.errors import Invalid, NotFound
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView

_PHASES: Final[Mapping[str, TrialPhase]] = {
    "queued": "running", "running": "running", "leaving": "leaving", "paused": "paused",
}  # fmt: skip


def write(doc: Mapping[str, Any], head: StudyHead, rows: Sequence[TrialRow], to: str) -> dict[str, str]:
    """`to`: a database (`x.db`), a journal (any other file), or an address of a storage. Raises Invalid if it has a
    study of that name already."""
    try:
        import optuna  # noqa: PLC0415  (it takes a third of a second)
    except ImportError as error:
        raise NotFound(f"Optuna can't be imported: {error}.", "Install it: `pip install optuna`.") from error
    from muster.tune.optuna_study import to_optuna  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    view = StudyView(
        head["id"], StudySpec.of(doc), head["seed"], {one["number"]: trial_of(head["id"], one) for one in rows}
    )
    made, storage = to_optuna(view), _storage(to)
    try:
        optuna.copy_study(
            from_study_name=made.study_name, from_storage=made._storage, to_storage=storage, to_study_name=head["id"]
        )
    except optuna.exceptions.DuplicatedStudyError as error:
        raise Invalid(f"{to} has a study {head['id']} already.", "Choose another file, or delete it there.") from error
    return {"storage": to, "name": head["id"]}


def trial_of(study: str, row: TrialRow) -> Trial:
    """The trial that a row of the API shows. Of the levels that it passed, the last one is known."""
    phase = _PHASES.get(row["state"], "ended")
    outcome: Any = "" if phase != "ended" else row["state"]
    values = tuple(map(number, row["values"])) if row["values"] is not None else None
    rungs = (Rung(row["levels"], row["step"], values),) if values is not None and not row["final"] else ()
    origin: Any = row["origin"]
    return Trial(
        study, row["number"], dict(row["params"]), row["job"], phase, outcome, values if row["final"] else None,
        {name: number(value) for name, value in row["extra"].items()}, tuple(row["violated"]), rungs, row["step"],
        origin=origin, by=row["by"], of=row["of"], seed=row["seed"], bracket=row["bracket"], note=row["note"],
        created_at=row["began"], ended_at=row["ended"], cost=row["cost"], seconds=row["seconds"], starts=row["starts"],
    )  # fmt: skip


def _storage(to: str) -> Any:
    """As `optuna` names them on its command line: a bare file that is no database is a journal."""
    import optuna  # noqa: PLC0415
    from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415

    if "://" in to:
        return to
    path = Path(to).expanduser()
    if not path.absolute().parent.is_dir():
        raise Invalid(f"{path.parent} is no folder.", "Choose another place.")
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        return f"sqlite:///{path}"
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))
