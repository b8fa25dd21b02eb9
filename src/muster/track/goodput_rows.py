"""Rows of the goodput ledger: the time that ended attempts held, by attempt, day and class, and their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, select, update

from muster.store.base import Record
from muster.store.codec import dumps, loads
from muster.store.insert import put
from muster.store.record_tables import goodput, goodput_nodes

_PAGE: Final = 5_000  # rows that are read at a time


@dataclass(frozen=True, slots=True)
class DayTime:
    """The time that one attempt held on one day, in microseconds. It counts for each of its units."""

    day: int  # seconds since 1970
    parts: dict[str, int]  # by class
    waited: int = 0  # between the end of the attempt before and this one's seats, on the day on which it got them
    steps: int = 0  # of the whole attempt
    repeats: int = 0  # of these
    pool: str = ""  # empty: not known, in rows of releases that did not say
    seats: int = 0  # workers, each on a node; 0: not known


@dataclass(frozen=True, slots=True)
class AttemptTime:
    """The time that one attempt held."""

    run: str
    attempt: int
    project: str
    queue: str
    unit: str  # accelerator or cpu
    nodes: dict[str, int]  # thousandths of units by node
    days: tuple[DayTime, ...]

    @property
    def units(self) -> int:
        return sum(self.nodes.values())


class HeldDay(NamedTuple):
    """A day of an attempt. `units`: thousandths, of all its nodes or of the one that was asked for."""

    run: str
    attempt: int
    unit: str
    units: int
    time: DayTime
    stale: bool = False  # it has to be computed again
    project: str = ""


@dataclass(frozen=True, slots=True)
class GoodputFilter:
    """Which attempts count; None: all. `since`: the first day, in seconds since 1970; `until`: after the last."""

    since: int = 0
    run: str | None = None
    projects: Sequence[str] | None = None
    queue: str | None = None
    node: str | None = None
    until: int | None = None


def goodput_record(times: Sequence[AttemptTime]) -> Record:
    """Writes the rows of these attempts. The days and nodes of an attempt are those of its seats: they don't change."""
    days, nodes = [], []
    for one in times:
        key = {"run": one.run, "attempt": one.attempt}
        facts = {"project": one.project, "queue": one.queue, "unit": one.unit, "units": one.units, "stale": False}
        days += [{**key, "day": each.day, **facts, "doc": _doc(each)} for each in one.days]
        nodes += [{**key, "node": node, "units": held} for node, held in one.nodes.items()]

    def record(connection: Connection) -> None:
        put(connection, goodput, days)
        put(connection, goodput_nodes, nodes)

    return record


def stale_record(run: str, attempt: int) -> Record:
    """Marks the rows of an attempt, if there are any: reports of it arrived after they were written."""

    def record(connection: Connection) -> None:
        mine = (goodput.c.run == run) & (goodput.c.attempt == attempt)
        connection.execute(update(goodput).where(mine).values(stale=True))

    return record


def read_goodput(connection: Connection, want: GoodputFilter) -> Iterator[HeldDay]:
    """The days of attempts that count."""
    columns = goodput.c
    units = columns.units if want.node is None else goodput_nodes.c.units
    time = (columns.day, columns.doc, columns.stale)
    chosen = (columns.run, columns.attempt, columns.unit, units, *time, columns.project)
    query = select(*chosen).where(*_conditions(want))
    if want.node is not None:
        both = (columns.run == goodput_nodes.c.run) & (columns.attempt == goodput_nodes.c.attempt)
        query = query.join(goodput_nodes, both).where(goodput_nodes.c.node == want.node)
    for part in connection.execute(query).partitions(_PAGE):  # row by row takes half as long again
        for run, attempt, unit, held, day, doc, stale, project in part:
            yield HeldDay(run, attempt, unit, held, DayTime(day, **loads(doc)), bool(stale), project)


def _conditions(want: GoodputFilter) -> Iterator[ColumnElement[bool]]:
    yield goodput.c.day >= want.since
    if want.until is not None:
        yield goodput.c.day < want.until
    if want.run is not None:
        yield goodput.c.run == want.run
    if want.projects is not None:
        yield goodput.c.project.in_(list(want.projects))
    if want.queue is not None:
        yield goodput.c.queue == want.queue


def _doc(time: DayTime) -> str:
    return dumps({name: value for name, value in asdict(time).items() if name != "day"})
