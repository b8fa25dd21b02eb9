"""CSV export: a table of runs, and for each run a table of its points."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from muster.track.exporters.base import ExportedRun, Series, Written, columns_of, file_name
from muster.track.exporters.files import whole_file, write_media

COLUMNS: Final = ("name", "rank", "attempt", "step", "time", "value", "superseded")
_CHUNK: Final = 65_536  # points converted to Python objects at a time


class CsvExporter:
    about = "runs.csv, and RUN/metrics.csv with a row for each point"

    def export(self, runs: Iterable[ExportedRun], folder: Path, superseded: bool = False) -> Iterator[Written]:
        rows: list[dict[str, Any]] = []
        for run in runs:
            own = folder / file_name(run.facts.id)
            points = _write_points(run.series(superseded), own / "metrics.csv")
            rows.append(columns_of(run.facts))
            yield Written(run.facts.id, own, points, write_media(run.media(), own))
        _write_runs(rows, folder / "runs.csv")


def _write_points(series: Iterable[Series], path: Path) -> int:
    points = 0
    with whole_file(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for each in series:
            rank = "" if each.rank is None else each.rank
            flag = int(each.superseded)
            for start in range(0, len(each.steps), _CHUNK):
                part = slice(start, start + _CHUNK)
                columns = (column[part].tolist() for column in (each.attempts, each.steps, each.times, each.values))
                writer.writerows(
                    (each.name, rank, attempt, step, time, value, flag)
                    for attempt, step, time, value in zip(*columns, strict=True)
                )
            points += len(each.steps)
    return points


def _write_runs(rows: list[dict[str, Any]], path: Path) -> None:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    with whole_file(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(names))
        writer.writeheader()
        writer.writerows(rows)
