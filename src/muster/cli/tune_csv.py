"""Trials as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from muster.api.numbers import number
from muster.api.studies import StudyHead, TrialRow
from muster.cli.terminal import Writer

_COLUMNS: Final = (
    "number", "state", "rank", "origin", "by", "of", "seed", "step", "levels", "violated", "note", "began", "ended",
    "seconds", "cost", "starts", "job", "pool",
)  # fmt: skip


def write_csv(target: Writer, head: StudyHead, rows: Sequence[TrialRow]) -> None:
    """Parameters are columns `params.NAME`, objectives and other metrics `metrics.NAME`; costs are in whole units."""
    params = list(dict.fromkeys(name for one in rows for name in one["params"]))
    goals = [one["metric"] for one in head["objectives"]]
    extra = sorted({name for one in rows for name in one["extra"]} - {*goals})
    written = csv.writer(target, lineterminator="\n")
    metrics = [f"metrics.{name}" for name in (*goals, *extra)]
    written.writerow([*_COLUMNS, *metrics, *(f"params.{name}" for name in params), "currency"])
    for one in rows:
        row: Mapping[str, Any] = one
        own = [_cell(name, row[name]) for name in _COLUMNS]
        values = [_number(value) for value in (one["values"] or [])] or [""] * len(goals)
        values += [_number(one["extra"].get(name)) for name in extra]
        written.writerow([*own, *values, *(one["params"].get(name, "") for name in params), head["currency"]])


def _cell(name: str, value: Any) -> Any:
    if name == "cost":
        return f"{value / 1e6:.6f}"
    return "; ".join(value) if name == "violated" else "" if value is None else value


def _number(value: Any) -> Any:
    made = number(value)
    return "" if value is None else made if math.isfinite(made) else value
