"""What the first rank of an attempt did, as it stated: entries in one row for each hour.

An entry is [time, name, {name: spent}] in microseconds: the rank is in the phase from then on, and spent so much of the
time since the entry before in other phases than the one which that entry names. An hour has at most `MOST` entries:
when there are more, neighbours are joined, which keeps all sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from muster.store.base import Record
from muster.store.codec import dumps, loads
from muster.store.insert import put
from muster.store.record_tables import run_phases
from muster.track.rows import chunks
from muster.wire import PHASES

MOST: Final = 16
_SECOND: Final = 1_000_000
_LATEST: Final = 2**33  # seconds since 1970
_NAMES: Final = frozenset(("", *PHASES))

_ONE: Final = select(run_phases.c.entries).where(
    run_phases.c.run == bindparam("run"),
    run_phases.c.attempt == bindparam("attempt"),
    run_phases.c.hour == bindparam("hour"),
)
_ALL: Final = (
    select(run_phases.c.run, run_phases.c.attempt, run_phases.c.entries)
    .where(run_phases.c.run.in_(bindparam("runs", expanding=True)))
    .order_by(run_phases.c.run, run_phases.c.attempt, run_phases.c.hour)
)

Entry = tuple[int, str, dict[str, int]]


def read_entry(doc: dict[str, Any]) -> Entry:
    """The entry of a document. Raises ValueError for one that makes no sense."""
    time, name, spent = float(doc["time"]), doc["name"], doc.get("spent") or {}
    if not 0 <= time < _LATEST:
        raise ValueError(f"{time} is no time")
    for one in (name, *spent):
        if one not in _NAMES:
            raise ValueError(f"there is no phase {str(one)[:40]!r}")
    if not all(0 <= float(seconds) < _LATEST for seconds in spent.values()):
        raise ValueError("the seconds of a phase are no numbers from 0 on")
    return round(time * _SECOND), name, {part: round(float(value) * _SECOND) for part, value in spent.items()}


def take_phases(docs: Sequence[tuple[int, dict[str, Any]]]) -> tuple[list[Entry], list[tuple[int, dict[str, Any]]]]:
    """The entries among a batch's documents, and the other documents. A gang counts by its first rank.

    A phase that makes no sense stays among the others.
    """
    entries: list[Entry] = []
    others = []
    for rank, doc in docs:
        if doc["type"] != "phase":
            others.append((rank, doc))
        elif rank == 0:
            try:
                entries.append(read_entry(doc))
            except (ValueError, TypeError, KeyError, AttributeError):
                others.append((rank, doc))
    return entries, others


def phases_record(run: str, attempt: int, entries: Sequence[Entry]) -> Record:
    """Adds entries, in the order in which the rank wrote them."""

    def record(connection: Connection) -> None:
        for hour, some in groupby(entries, lambda entry: entry[0] // _SECOND // 3600 * 3600):
            key = {"run": run, "attempt": attempt, "hour": hour}
            old = connection.execute(_ONE, key).scalar_one_or_none()
            kept = thinned([*(loads(old) if old is not None else ()), *some])
            put(connection, run_phases, [{**key, "entries": dumps(kept)}])

    return record


def read_phases(connection: Connection, runs: Sequence[str]) -> dict[tuple[str, int], list[Entry]]:
    """All entries of the attempts of these runs, in order."""
    found: dict[tuple[str, int], list[Entry]] = {}
    for part in chunks(runs):
        for run, attempt, entries in connection.execute(_ALL, {"runs": part}):
            found.setdefault((run, attempt), []).extend(loads(entries))
    return found


def thinned(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The same sums in at most `MOST` entries."""
    while len(entries) > MOST:
        pairs = [entries[at : at + 2] for at in range(0, len(entries), 2)]
        entries = [_joined(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return entries


def _joined(before: Entry, after: Entry) -> Entry:
    sums = dict(before[2])
    rest = max(0, after[0] - before[0] - sum(after[2].values()))
    for name, spent in (*after[2].items(), (before[1], rest)):
        sums[name] = sums.get(name, 0) + spent
    return after[0], after[1], sums
