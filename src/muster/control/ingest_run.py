"""What a batch changes in the run's document: progress and latest values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.api.numbers import json_number
from muster.store.base import StreamWrite

_RATE_WINDOW = 30.0  # seconds over which progress is averaged

Doc = dict[str, Any]
Pace = list[tuple[float, int]]  # (time, step) of the last `_RATE_WINDOW` seconds


def patch_of(
    run: Mapping[str, Any], pace: Pace, number: int, writes: Sequence[StreamWrite], docs: Sequence[tuple[int, Doc]]
) -> Doc:
    """The changes of the run's document: progress and latest values of the lowest rank that reports."""
    patch: Doc = {}
    for write in sorted(writes, key=lambda w: -w.rank):
        if write.columns and write.stream == "spool":
            latest = dict(patch.get("latest", run.get("latest", {})))
            latest.update(
                {name: json_number(column.values[-1]) for name, column in write.columns.items() if column.values}
            )
            patch["latest"] = latest
    for rank, doc in docs:
        if doc.get("type") == "progress" and isinstance(doc.get("step"), int):
            shown = patch.get("progress", run.get("progress"))
            if shown is None or rank <= shown["rank"] or shown["attempt"] != number:
                patch["progress"] = _progress(pace, number, rank, doc)
    return patch


def _progress(pace: Pace, number: int, rank: int, doc: Doc) -> Doc:
    step, at, total = doc["step"], float(doc.get("time", 0.0)), doc.get("total")
    pace.append((at, step))
    while len(pace) > 2 and at - pace[0][0] > _RATE_WINDOW:
        pace.pop(0)
    first_at, first_step = pace[0]
    rate = (step - first_step) / (at - first_at) if at > first_at and step > first_step else None
    eta = (total - step) / rate if rate and isinstance(total, int | float) else None
    return {
        "step": step,
        "total": total,
        "unit": doc.get("unit", "step"),
        "time": at,
        "rate": rate,
        "eta": eta,
        "rank": rank,
        "attempt": number,
    }
