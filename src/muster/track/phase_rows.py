"""What the first rank of an attempt did, as it stated: entries in one row for each hour.

An entry is [time, name, {name: spent}] in microseconds: the rank is in the phase from then on, and spent so much of the
time since the entry before in other phases than the one which that entry names. An hour has at most `MOST` entries:
when there are more, neighbours are joined, which keeps all sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, select

from muster.store.codec import dumps, loads
from muster.store.insert import put
from muster.store.record_tables import run_phases
from muster.wire import PHASES

MOST: Final = 64
HOURS: Final = 20_000  # rows of an attempt that are read: more than two years
_SECOND: Final = 1_000_000
_LATEST: Final = 2**33  # seconds since 1970
_NAMES: Final = frozenset(("", *PHASES))

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


def write_phases(connection: Connection, run: str, attempt: int, entries: Sequence[Entry]) -> None:
    """Adds entries, in the order in which the rank wrote them."""
    columns = run_phases.c
    for hour, some in groupby(entries, lambda entry: entry[0] // _SECOND // 3600 * 3600):
        here = (columns.run == run) & (columns.attempt == attempt) & (columns.hour == hour)
        old = connection.execute(select(columns.entries).where(here)).scalar_one_or_none()
        known = [(time, name, spent) for time, name, spent in loads(old)] if old is not None else []
        kept = thinned([*known, *some])
        put(connection, run_phases, [{"run": run, "attempt": attempt, "hour": hour, "entries": dumps(kept)}])


def read_phases(connection: Connection, run: str, attempt: int) -> list[Entry]:
    """All entries of an attempt, in order."""
    columns = run_phases.c
    here = (columns.run == run) & (columns.attempt == attempt)
    rows = connection.execute(select(columns.entries).where(here).order_by(columns.hour).limit(HOURS)).scalars()
    return [(time, name, spent) for row in rows for time, name, spent in loads(row)]


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
