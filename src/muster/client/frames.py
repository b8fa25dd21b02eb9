"""Data frames of runs and of their curves, in pandas or Polars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from muster.api.cost_reports import CostReport
from muster.client.curves import FrameKind, Points
from muster.client.run import RunData
from muster.core.errors import ConfigError, Invalid
from muster.core.money import MICRO

_FACTS: Final = (
    "name", "project", "user", "kind", "source", "phase", "purpose", "valid", "attempts", "parent",
)  # fmt: skip


def of_points(points: Mapping[str, Points], kind: FrameKind) -> Any:
    """One row for each step of each attempt, and one more for each repetition of a step; NaN for missing values."""
    pandas_or_polars = library(kind)
    keys = [_keys(one) for one in points.values()]
    whole, places = _aligned(np.concatenate([*keys, np.empty((0, 3), np.int64)]))
    columns: dict[str, Any] = {"step": whole[:, 1], "attempt": whole[:, 0].astype(np.int32)}
    times = np.full(len(whole), np.inf)
    values: dict[str, NDArray[np.float64]] = {}
    at = 0
    for name, one in points.items():
        rows = places[at : at + len(one)]
        at += len(one)
        np.minimum.at(times, rows, np.asarray(one.time))
        values[name] = np.full(len(whole), np.nan)
        values[name][rows] = np.asarray(one.value)
    return pandas_or_polars.DataFrame({**columns, "time": times, **values})


def of_runs(runs: Sequence[RunData], kind: FrameKind) -> Any:
    """One row per run. A parameter's column is numeric if all its values are numbers; times are in UTC."""
    made = library(kind)
    columns: dict[str, Sequence[Any]] = {"run_id": [run.id for run in runs]}
    columns["experiment_id"] = [run.raw["experiment"] for run in runs]
    columns["start_time"] = [_moment(run.started_at) for run in runs]
    columns["end_time"] = [_moment(run.ended_at) for run in runs]
    columns["created"] = [_moment(run.created_at) for run in runs]
    columns |= {name: [getattr(run, name) for run in runs] for name in _FACTS}
    columns["data"] = [", ".join(run.data) for run in runs]
    columns["code.commit"] = [run.raw.get("code", {}).get("commit", "") for run in runs]
    for name in _names(run.metrics for run in runs):
        columns[f"metrics.{name}"] = [run.metrics.get(name, float("nan")) for run in runs]
    for name in _names(run.params for run in runs):
        columns[f"params.{name}"] = _numbers([run.params.get(name) for run in runs])
    for name in _names(run.tags for run in runs):
        columns[f"tags.{name}"] = [run.tags.get(name) for run in runs]
    return made.DataFrame(columns)


def of_costs(report: CostReport, kind: FrameKind) -> Any:
    """One row for each group and currency: a column for each dimension, amounts in units of the currency, and hours."""
    rows = report["rows"]
    columns: dict[str, Sequence[Any]] = {name: [row["group"][name] for row in rows] for name in report["by"]}
    columns["currency"] = [row["currency"] for row in rows]
    for amount in ("amount", "platform", "idle", "storage", "listed", "pending"):
        columns[amount] = [row[amount] / MICRO for row in rows]
    for hours in ("accelerator_hours", "worker_hours", "unpriced_hours", "entries"):
        columns[hours] = [row[hours] for row in rows]
    return library(kind).DataFrame(columns)


def library(kind: str) -> Any:
    """pandas or Polars. Raises ConfigError when it is not installed."""
    if kind not in ("pandas", "polars"):
        raise Invalid(f"A frame of kind {kind!r} was asked for.", "Give pandas or polars.")
    try:
        return import_module(kind)
    except ImportError as error:
        raise ConfigError(f"{kind} is not installed here.", f"pip install {kind}, or 'muster-ml[frames]'.") from error


def _keys(points: Points) -> NDArray[np.int64]:
    """(points, 3): attempt, step, and the number of earlier points with the same attempt and step."""
    attempt, step = np.asarray(points.attempt, np.int64), np.asarray(points.step, np.int64)
    order = np.lexsort((step, attempt))
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (np.diff(attempt[order]) != 0) | (np.diff(step[order]) != 0)
    starts = np.flatnonzero(fresh)
    counts = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    turn = np.empty(len(order), np.int64)
    turn[order] = counts
    return np.stack([attempt, step, turn], axis=1)


def _aligned(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The distinct rows in order, and the position of each given row among them."""
    order = np.lexsort(keys.T[::-1])
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (np.diff(keys[order], axis=0) != 0).any(axis=1)
    places = np.empty(len(order), np.intp)
    places[order] = np.cumsum(fresh) - 1
    return keys[order][fresh], places


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _names(maps: Any) -> list[str]:
    return sorted({name for one in maps for name in one})


def _numbers(values: Sequence[str | None]) -> Sequence[Any]:
    try:
        return [float("nan") if value is None else float(value) for value in values]
    except ValueError:
        return values
