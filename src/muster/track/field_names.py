"""Names of parameters, metrics and tags that visible runs have: for completion of queries, and for what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, func, select

from muster.api.search import FieldKind, FieldList, FieldView
from muster.store.record_tables import metric_series, run_params, run_tags, runs
from muster.track.query.fields import PLAIN
from muster.track.query.nodes import Field

NAMES: Final[dict[FieldKind, ColumnElement[str]]] = {
    "metric": metric_series.c.name, "param": run_params.c.key, "tag": run_tags.c.key,
}  # fmt: skip
SCANNED: Final = 2000  # names among which a part of one is looked for
_SPACES: Final[dict[str, FieldKind]] = {"metrics": "metric", "params": "param", "tags": "tag"}
END: Final = chr(0x10FFFF)


def fields(connection: Connection, text: str, within: Sequence[ColumnElement[bool]], most: int) -> FieldList:
    """Fields whose name has the text, those that begin with it first; at most so many of each space.

    `metrics.lo` asks for metrics alone. `within`: conditions on the runs that may be seen.
    """
    space, dot, rest = text.partition(".")
    kind = _SPACES.get(space.lower()) if dot else None
    found: list[FieldView] = [
        {"field": name, "kind": of}
        for name, (of, _) in PLAIN.items()
        if kind is None and text.lower() in name and name != "owner"  # the same as `user`
    ]
    more = False
    for of, column in NAMES.items():
        if kind in (None, of):
            names = _containing(connection, column, rest if kind else text, most)
            seen = [name for name in names if is_known(connection, column, name, within)]
            more = more or len(names) == most
            found += [{"field": str(Field(of, name)), "kind": of} for name in _own_first(seen)]
    return {"fields": found, "more": more}


def names_from(connection: Connection, column: ColumnElement[str], start: str, end: str, most: int) -> list[str]:
    """Distinct names from `start` on and before `end`, in order: one step of the index for each, not one a row."""
    begin = select(func.min(column).label("name")).where(column >= start).cte("names", recursive=True)
    further = select(func.min(column)).where(column > begin.c.name).scalar_subquery()
    names = begin.union_all(select(further).where(begin.c.name.is_not(None), begin.c.name < end))
    wanted = select(names.c.name).where(names.c.name.is_not(None), names.c.name < end)
    return list(connection.execute(wanted.limit(most)).scalars().all())


def is_known(
    connection: Connection, column: ColumnElement[str], name: str, within: Sequence[ColumnElement[bool]]
) -> bool:
    """Whether a run that may be seen has it."""
    table: Any = column.table
    having = select(column).join(runs, runs.c.id == table.c.run).where(column == name, *within)
    return connection.execute(having.limit(1)).first() is not None


def _containing(connection: Connection, column: ColumnElement[str], text: str, most: int) -> list[str]:
    begun = names_from(connection, column, text, text + END, most)
    if not text or len(begun) >= most:
        return begun
    wanted = text.lower()
    inside = [one for one in names_from(connection, column, "", END, SCANNED) if wanted in one.lower()]
    return list(dict.fromkeys([*begun, *inside]))[:most]


def _own_first(names: Sequence[str]) -> list[str]:
    """Samples of the hardware come after what the program reports."""
    return sorted(names, key=lambda name: name.startswith("system/"))
