"""Stacks of a run's ranks: one row a rank and order, checked and bounded, and the newest orders of each run kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, func, select

from muster.api.stacks import ProcessStack, Profile, RankStacks, StackFrame, StacksEntry, ThreadStack
from muster.store.codec import dumps, loads
from muster.store.insert import Row, put
from muster.store.record_tables import run_stacks as table
from muster.track.record_db import RecordDb

ORDERS_KEPT: Final = 24  # per run: what one diagnosis looks at
RANKS_KEPT: Final = 4096  # rows per run, if that is more than `ORDERS_LEAST` orders
ORDERS_LEAST: Final = 10
WORLD_MAX: Final = 100_000
DOC_BYTES: Final = 512 << 10  # of one rank; launchers send half of it at most
_TEXT: Final = 500  # characters of a name or a path


def stacks_row(run: str, attempt: int, rank: int, doc: Mapping[str, Any]) -> Row:
    """The row for a document of a launcher. Raises ValueError, TypeError or KeyError if it is none."""
    order, world = doc["order"], doc["world"]
    if not isinstance(order, int) or not 0 < order < 2**62:
        raise ValueError(f"{order!r} is no id of an order")
    if not isinstance(world, int) or not 0 < world <= WORLD_MAX:
        raise ValueError(f"{world!r} is no number of ranks")
    told = {"problem": _text(doc["problem"]), "processes": [_process(one) for one in doc["processes"]]}
    kept = dumps({**told, **({"profile": _profile(doc["profile"])} if "profile" in doc else {})})
    if len(kept) > DOC_BYTES:
        raise ValueError(f"the stacks of a rank have {len(kept)} bytes, of at most {DOC_BYTES}")
    moment = float(doc["time"])
    return {"run": run, "id": order, "rank": rank, "attempt": attempt, "time": moment, "world": world, "doc": kept}


def write_stacks(connection: Connection, run: str, rows: Sequence[Row]) -> None:
    """Writes the rows; older orders of the run than the newest few are removed."""
    if not rows:
        return
    put(connection, table, rows)
    orders = min(ORDERS_KEPT, max(ORDERS_LEAST, RANKS_KEPT // max(row["world"] for row in rows)))
    newest = select(table.c.id).where(table.c.run == run).distinct().order_by(table.c.id.desc()).limit(orders)
    kept = list(connection.scalars(newest))
    connection.execute(delete(table).where(table.c.run == run, table.c.id < min(kept)))


class Stacks:
    """The stacks that are kept of all runs."""

    def __init__(self, db: RecordDb) -> None:
        self._db = db

    def orders(self, run: str) -> list[StacksEntry]:
        """The orders that a rank answered, the newest first."""
        row = table.c
        found = (
            select(row.id, func.max(row.attempt), func.min(row.time), func.count(), func.max(row.world))
            .where(row.run == run)
            .group_by(row.id)
            .order_by(row.id.desc())
        )
        with self._db.reading() as connection:
            return [
                {"id": ident, "attempt": attempt, "time": time, "ranks": ranks, "world": world}
                for ident, attempt, time, ranks, world in connection.execute(found)
            ]

    def answered(self, run: str, order: int) -> list[int]:
        """The ranks whose stacks have arrived."""
        with self._db.reading() as connection:
            return list(connection.scalars(_of(run, order, table.c.rank)))

    def get(self, run: str, order: int) -> list[RankStacks]:
        """The stacks of all ranks that answered an order."""
        row = table.c
        with self._db.reading() as connection:
            rows = connection.execute(_of(run, order, row.rank, row.time, row.doc)).all()
        found: list[RankStacks] = []
        for rank, time, doc in rows:
            kept = loads(doc)
            one: RankStacks = {"rank": rank, "time": time, "problem": kept["problem"], "processes": kept["processes"]}
            found.append({**one, "profile": kept["profile"]} if "profile" in kept else one)
        return found


def _of(run: str, order: int, *columns: Any) -> Any:
    return select(*columns).where(table.c.run == run, table.c.id == order).order_by(table.c.rank)


def _process(raw: Mapping[str, Any]) -> ProcessStack:
    return {
        "pid": int(raw["pid"]),
        "name": _text(raw["name"]),
        "source": _text(raw["source"]),
        "problem": _text(raw["problem"]),
        "threads": [_thread(one) for one in raw["threads"]],
    }


def _thread(raw: Mapping[str, Any]) -> ThreadStack:
    return {
        "name": _text(raw["name"]),
        "main": raw["main"] is True,
        "state": _text(raw["state"]),
        "wait": _text(raw["wait"]),
        "frames": [_frame(one) for one in raw["frames"]],
    }


def _frame(raw: Mapping[str, Any]) -> StackFrame:
    frame: StackFrame = {"function": _text(raw["function"]), "file": _text(raw["file"]), "line": int(raw["line"])}
    return {**frame, "call": _text(raw["call"])} if "call" in raw else frame


def _profile(raw: Mapping[str, Any]) -> Profile:
    frames = [_frame(one) for one in raw["frames"]]
    stacks = [{"at": [int(at) for at in one["at"]], "count": int(one["count"])} for one in raw["stacks"]]
    if not all(one["count"] > 0 and all(0 <= at < len(frames) for at in one["at"]) for one in stacks):  # type: ignore[attr-defined, operator]
        raise ValueError("a stack of the profile has a frame that there is not")
    return {
        "seconds": float(raw["seconds"]),
        "samples": int(raw["samples"]),
        "left_out": int(raw["left_out"]),
        "source": _text(raw["source"]),
        "problem": _text(raw["problem"]),
        "frames": frames,
        "stacks": stacks,  # type: ignore[typeddict-item]
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value[:_TEXT]
