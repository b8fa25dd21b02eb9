"""Child runs: what a program said of runs below its own (see `muster.runtime.child_runs`), written as runs.

A child has the project, the experiment and the user of its parent, and the parent's id, a dot and its own as its id.
What makes no sense becomes a problem of the parent, as with other documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, update

from muster.api.words import FINAL
from muster.store import record_tables as tables
from muster.store.base import Column, Record
from muster.store.insert import add
from muster.track.facts import NAME_MAX, fitted, flat
from muster.track.rows import Doc, Run, patch_run, read_run, run_row
from muster.track.values import params_record, tags_record
from muster.wire import CHILD_DETAIL, CHILD_ID, OUTCOMES
from muster.wire import NAME_MAX as METRIC_NAME_MAX

SOURCE: Final = "child"
_ID: Final = re.compile(CHILD_ID)
_STEP_MAX: Final = 2**63

Docs = list[tuple[int, Doc]]  # each with the rank that it comes from
Points = Callable[[str, int, int, Mapping[str, Column]], Record]  # of a run, its attempt and rank


@dataclass(slots=True)
class Child:
    """What a batch says of one child."""

    begun: float | None = None  # when it began, if it did
    name: str = ""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str | None] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    first: float = 0.0  # when it was first heard of
    ended: tuple[str, float, str] | None = None  # outcome, time, detail

    def take(self, doc: Doc) -> None:
        """Raises ValueError and the like for a document that makes no sense; then none of it is taken."""
        time = float(doc["time"])
        params, tags = fitted(flat(doc.get("params") or {})), fitted(doc.get("tags") or {})
        points = _points(doc)
        outcome = doc.get("outcome")
        if outcome is not None and outcome not in OUTCOMES:
            raise ValueError(f"there is no outcome {str(outcome)[:40]!r}")
        if doc.get("begin"):
            self.begun, self.name, self.ended = time, str(doc.get("name") or "")[:NAME_MAX], None
        self.first = self.first or time
        self.params |= params
        self.tags |= tags
        for name, (step, value) in points.items():
            column = self.columns.setdefault(name, Column())
            column.steps.append(step)
            column.times.append(time)
            column.values.append(value)
        if outcome is not None:
            self.ended = str(outcome), time, str(doc.get("detail") or "")[-CHILD_DETAIL:]


def take_children(docs: Sequence[tuple[int, Doc]]) -> tuple[dict[str, Child], Docs]:
    """Children by their ids, and the other documents. A document that makes no sense becomes one that tells of it."""
    found: dict[str, Child] = {}
    others: Docs = []
    for rank, doc in docs:
        if doc["type"] != "child":
            others.append((rank, doc))
            continue
        try:
            ident = doc["id"]
            if not isinstance(ident, str) or not _ID.fullmatch(ident):
                raise ValueError(f"{str(ident)[:80]!r} is no id of a child run")
            child = found.get(ident) or Child()
            child.take(doc)
            found[ident] = child
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            others.append((rank, {"type": "dropped", "time": doc["time"], "why": f"a child run: {error}"}))
    return found, others


def children_records(run: str, attempt: int, children: Mapping[str, Child], points: Points, now: float) -> list[Record]:
    made = []
    for ident, child in children.items():
        own = f"{run}.{ident}"
        written = points(own, attempt, 0, child.columns) if child.columns else None
        made.append(_child_record(run, own, attempt, child, written, now))
    return made


def close_children(connection: Connection, run: str, phase: str, ended_at: float | None) -> None:
    """Ends those that a program left open: with its run, which has ended."""
    runs = tables.runs.c
    left = (runs.parent == run) & (runs.source == SOURCE) & runs.phase.not_in(FINAL)
    outcome = "stopped" if phase == "succeeded" else phase
    connection.execute(update(tables.runs).where(left).values(phase=outcome, ended_at=ended_at))


def _child_record(run: str, own: str, attempt: int, child: Child, points: Record | None, now: float) -> Record:
    def record(connection: Connection) -> None:
        parent, known = read_run(connection, run), read_run(connection, own)
        if parent is None:
            return
        if known is None:
            add(connection, tables.runs, [run_row(_new(parent, own, attempt, child))])
        elif known.parent != run or known.source != SOURCE or known.attempts > attempt:
            return  # anybody may have made a run of this id; or another attempt goes on with the child
        else:
            columns: dict[str, Any] = {"attempts": attempt}
            if child.begun is not None and known.phase in FINAL:  # it goes on, as after a restart
                columns |= {"phase": "running", "ended_at": None}
            patch_run(connection, own, **columns)
        if points is not None:
            points(connection)
        params_record(own, child.params, attempt=attempt, actor=parent.user, now=now)(connection)
        tags_record(own, child.tags, actor=parent.user, now=now, attempt=attempt)(connection)
        if child.ended is not None:
            outcome, time, detail = child.ended
            reason = {"code": "", "message": detail, "hint": "", "data": {}} if detail else None
            patch_run(connection, own, {"reason": reason}, phase=outcome, ended_at=time)

    return record


def _new(parent: Run, own: str, attempt: int, child: Child) -> Run:
    began = child.begun if child.begun is not None else child.first
    name = child.name or own.rpartition(".")[2]
    code = (parent.code_commit, parent.code_branch, parent.code_dirty, parent.code_tree)
    return Run(
        own, parent.project, parent.experiment, name, parent.user, parent.kind, SOURCE, "running", began, began, None,
        parent.id, None, True, (), "", attempt, *code,
    )  # fmt: skip


def _points(doc: Doc) -> dict[str, tuple[int, float]]:
    values: Mapping[str, Any] = doc.get("values") or {}
    if not values:
        return {}
    step = doc["step"]
    if not isinstance(step, int) or isinstance(step, bool) or not -_STEP_MAX <= step < _STEP_MAX:
        raise ValueError(f"step {str(step)[:40]!r} is no number of 64 bits")
    for name in values:
        if not 0 < len(name) <= METRIC_NAME_MAX:
            raise ValueError(f"a metric's name of {len(name)} characters")
    return {name: (step, float(value)) for name, value in values.items()}
