"""Records that write parameters and tags: the old value is stored as a change, in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, select

from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import loads
from muster.store.insert import Row, add, put
from muster.track.facts import number_of, same_value
from muster.track.rows import Doc, chunks, note_row

PURGED: Final = "purged:"  # prefix of a run's id in track_marks: nothing of it may come back
OPENED: Final = "opened:"  # prefix of a run's id and the digest of a script's key: the attempt that the key opened
RequiredCheck = Callable[[str, str], Record]  # for a run and its project
_SHOWN: Final = 200  # characters of a value in a logbook note


def params_record(run: str, given: Mapping[str, str], *, attempt: int, actor: str, now: float) -> Record:
    """Sets parameters. A change within an attempt gets a logbook note; one between two attempts is in their diff."""

    def record(connection: Connection) -> None:
        project = project_of(connection, run)
        if project is None or not given:
            return
        known = _known_params(connection, run, list(given))
        rows = [
            {"run": run, "key": key, "value": value, "number": number_of(value), "attempt": attempt}
            for key, value in given.items()
        ]
        put(connection, tables.run_params, rows)
        changed = {key: known[key] for key, value in given.items() if _differs(known.get(key), value)}
        old = {key: value for key, (value, _) in changed.items()}
        _keep(connection, run, "params", old, given, attempt=attempt, actor=actor, now=now)
        replaced = {key: value for key, (value, by) in changed.items() if by == attempt or not attempt}
        if replaced:
            add(connection, tables.notes, [_change_note(project, run, replaced, given, attempt, actor, now)])

    return record


def tags_record(run: str, given: Mapping[str, str | None], *, actor: str, now: float, attempt: int = 0) -> Record:
    """Sets tags; a value of None removes one."""

    def record(connection: Connection) -> None:
        if not given or project_of(connection, run) is None:
            return
        table = tables.run_tags
        known: dict[str, str] = {}
        for part in chunks(list(given)):
            query = select(table.c.key, table.c.value).where(table.c.run == run, table.c.key.in_(part))
            known |= pairs(connection.execute(query))
        put(connection, table, [{"run": run, "key": k, "value": v} for k, v in given.items() if v is not None])
        for key in (key for key, value in given.items() if value is None and key in known):
            connection.execute(delete(table).where(table.c.run == run, table.c.key == key))
        old = {key: value for key, value in known.items() if given[key] != value}
        _keep(connection, run, "tags", old, given, attempt=attempt, actor=actor, now=now)

    return record


def project_of(connection: Connection, run: str) -> str | None:
    """The run's project; None if the run doesn't exist: then nothing is written for it."""
    return connection.execute(select(tables.runs.c.project).where(tables.runs.c.id == run)).scalar_one_or_none()


def purged(connection: Connection, run: str) -> bool:
    marks = tables.track_marks.c
    return connection.execute(select(marks.value).where(marks.name == PURGED + run)).first() is not None


def loaded(text: str) -> Doc:
    found: Doc = loads(text)
    return found


def pairs(rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """The result of a query for two text columns, as a mapping."""
    return {row[0]: row[1] for row in rows}


def void(_: object) -> None:
    """Discards a statement's result: a record returns nothing."""


def _known_params(connection: Connection, run: str, keys: list[str]) -> dict[str, tuple[str, int]]:
    table = tables.run_params.c
    known: dict[str, tuple[str, int]] = {}
    for part in chunks(keys):
        query = select(table.key, table.value, table.attempt).where(table.run == run, table.key.in_(part))
        known |= {key: (value, attempt) for key, value, attempt in connection.execute(query)}
    return known


def _differs(known: tuple[str, int] | None, value: str) -> bool:
    return known is not None and not same_value(known[0], value)


def _keep(
    connection: Connection,
    run: str,
    space: str,
    old: Mapping[str, str],
    new: Mapping[str, Any],
    *,
    attempt: int,
    actor: str,
    now: float,
) -> None:
    common: Row = {"run": run, "time": now, "actor": actor, "attempt": attempt, "space": space}
    add(
        connection,
        tables.run_changes,
        [{**common, "key": key, "old": value, "new": new[key]} for key, value in old.items()],
    )


def _change_note(
    project: str, run: str, old: Mapping[str, str], new: Mapping[str, str], attempt: int, actor: str, now: float
) -> Row:
    lines = [f"`{key}`: `{value[:_SHOWN]}` → `{new[key][:_SHOWN]}`" for key, value in old.items()]
    what = "Parameter changed" if len(lines) == 1 else "Parameters changed"
    text = f"{what}: {lines[0]}" if len(lines) == 1 else "\n".join([f"{what}:", "", *(f"- {one}" for one in lines)])
    doc = {"params": {key: [value, new[key]] for key, value in old.items()}, "attempt": attempt}
    return note_row(project, run, now, actor, "change", text, doc)
