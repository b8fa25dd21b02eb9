"""Parquet export: a table of runs, and for each run a table of its points. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from muster.core.errors import ConfigError
from muster.track.exporters.base import ExportedRun, Series, Written, columns_of, file_name
from muster.track.exporters.files import whole_file, write_media


class ParquetExporter:
    about = "runs.parquet, and RUN/metrics.parquet with a row for each point"

    def export(self, runs: Iterable[ExportedRun], folder: Path, superseded: bool = False) -> Iterator[Written]:
        arrow, parquet = _arrow()
        rows: list[dict[str, Any]] = []
        for run in runs:
            own = folder / file_name(run.facts.id)
            points = _write_points(arrow, parquet, run.series(superseded), own / "metrics.parquet")
            rows.append(columns_of(run.facts))
            yield Written(run.facts.id, own, points, write_media(run.media(), own))
        with whole_file(folder / "runs.parquet") as file:
            parquet.write_table(_runs_table(arrow, rows), file)


def _arrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed.", "Run `pip install 'muster-ml[frames]'`, or use csv."
        ) from None
    return pyarrow, parquet


def _write_points(arrow: ModuleType, parquet: ModuleType, series: Iterable[Series], path: Path) -> int:
    schema = arrow.schema(
        [
            ("name", arrow.dictionary(arrow.int32(), arrow.string())),
            ("rank", arrow.int32()),
            ("attempt", arrow.int32()),
            ("step", arrow.int64()),
            ("time", arrow.float64()),
            ("value", arrow.float64()),
            ("superseded", arrow.bool_()),
        ]
    )
    points = 0
    with whole_file(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for each in series:
            size = len(each.steps)
            names = arrow.DictionaryArray.from_arrays(np.zeros(size, np.int32), [each.name])
            rank = arrow.nulls(size, arrow.int32()) if each.rank is None else np.full(size, each.rank, np.int32)
            columns = [names, rank, each.attempts, each.steps, each.times, each.values]
            writer.write_table(arrow.table([*columns, np.full(size, each.superseded)], schema=schema))
            points += size
    return points


def _runs_table(arrow: ModuleType, rows: list[dict[str, Any]]) -> Any:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    numbers = ("created_at", "started_at", "ended_at")
    columns = {
        name: arrow.array(
            [row.get(name) for row in rows],
            arrow.float64() if name in numbers or name.startswith("metrics.") else arrow.string(),
        )
        for name in names
    }
    return arrow.table(columns)
