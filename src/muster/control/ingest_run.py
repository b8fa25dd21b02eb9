"""What a batch changes in the run's document: progress and latest values.

Progress is what the program says with `progress`. A program that only reports metrics shows how far it is by the steps
of its reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.api.numbers import json_number
from muster.store.base import Column, Store, StreamWrite

_RATE_WINDOW = 30.0  # seconds over which progress is averaged

Doc = dict[str, Any]
ExpectedTotal = Callable[[str], int | None]  # of a unit: where the last succeeded run of the same name ended


@dataclass(slots=True)
class Pace:
    """The last points of an attempt's progress, for its rate."""

    points: list[tuple[float, int]] = field(default_factory=list)  # (time, step) of the last `_RATE_WINDOW` seconds
    stated: bool = False  # whether the points are from `progress`, and not from reports

    def rate(self, at: float, step: int, stated: bool) -> float | None:
        """Steps a second, with this point as the last one."""
        if stated != self.stated:
            self.points.clear()
            self.stated = stated
        self.points.append((at, step))
        while len(self.points) > 2 and at - self.points[0][0] > _RATE_WINDOW:
            self.points.pop(0)
        first_at, first_step = self.points[0]
        return (step - first_step) / (at - first_at) if at > first_at and step > first_step else None


def patch_of(
    run: Mapping[str, Any],
    pace: Pace,
    number: int,
    writes: Sequence[StreamWrite],
    docs: Sequence[tuple[int, Doc]],
    expected: ExpectedTotal,
) -> Doc:
    """The changes of the run's document: progress and latest values of the lowest rank that reports.

    `expected` is asked once in an attempt, if the program gives no total.
    """
    patch: Doc = {}
    reports = [write for write in writes if write.columns and write.stream == "spool"]
    for write in sorted(reports, key=lambda w: -w.rank):
        latest = dict(patch.get("latest", run.get("latest", {})))
        latest.update({name: json_number(column.values[-1]) for name, column in write.columns.items() if column.values})
        patch["latest"] = latest
    if run.get("listens") != number and any(doc.get("type") == "listens" for _, doc in docs):
        patch["listens"] = number  # the newest attempt that looks for requests to save
    shown: Doc | None = run.get("progress")
    stated = [(rank, doc) for rank, doc in docs if doc.get("type") == "progress" and isinstance(doc.get("step"), int)]
    for rank, doc in stated:
        if shown is None or shown["attempt"] != number or not _stated(shown) or rank <= shown["rank"]:
            shown = patch["progress"] = _progress(shown, pace, number, rank, doc, True, expected)
    if found := _furthest(shown, number, reports):
        rank, column = found
        if not pace.points:
            pace.points.append((column.times[0], column.steps[0]))
        doc = {"step": column.steps[-1], "time": column.times[-1]}
        patch["progress"] = _progress(shown, pace, number, rank, doc, False, expected)
    return patch


def reported_step(store: Store, job_id: str, number: int) -> int | None:
    """The last step that an attempt has reported."""
    shown = store.run(job_id).get("progress")
    return shown["step"] if shown is not None and shown["attempt"] == number else None


def _furthest(shown: Doc | None, number: int, reports: Sequence[StreamWrite]) -> tuple[int, Column] | None:
    """The rank and the metric that show how far a program is that gives no progress, if they are past what is shown."""
    first = min(reports, key=lambda write: write.rank, default=None)
    if first is None:
        return None
    column = max((one for one in first.columns.values() if one.steps), key=lambda one: one.steps[-1], default=None)
    if column is None:
        return None
    if shown is None or shown["attempt"] != number:
        return first.rank, column
    further = first.rank <= shown["rank"] and column.steps[-1] > shown["step"]
    return (first.rank, column) if further and not _stated(shown) else None


def _stated(shown: Doc) -> bool:
    return bool(shown.get("stated", True))  # earlier versions knew no other


def _progress(
    shown: Doc | None, pace: Pace, number: int, rank: int, doc: Doc, stated: bool, expected: ExpectedTotal
) -> Doc:
    step, at, total, unit = doc["step"], float(doc.get("time", 0.0)), doc.get("total"), doc.get("unit", "step")
    rate, guess = pace.rate(at, step, stated), None
    if total is None:
        known = shown is not None and shown["attempt"] == number and "expected" in shown and shown["unit"] == unit
        guess = shown["expected"] if shown is not None and known else expected(unit)
        guess = guess if guess is not None and step <= guess else None
    goal = guess if total is None else total
    return {
        "step": step,
        "total": total,
        "expected": guess,
        "unit": unit,
        "time": at,
        "rate": rate,
        "eta": (goal - step) / rate if rate and isinstance(goal, int | float) else None,
        "rank": rank,
        "attempt": number,
        "stated": stated,
    }
