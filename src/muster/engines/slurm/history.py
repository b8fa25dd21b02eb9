"""What attempts used, according to Slurm's accounting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.engines.base import Usage
from muster.engines.slurm.model import PastRow
from muster.engines.slurm.shared import Key


def usages(past: Sequence[PastRow], attempts: Iterable[tuple[str, int, Key]]) -> list[Usage]:
    """One entry for each run of a job that was an attempt of this Muster.
    A requeued job has one row per run, in order."""
    whose = {(slurm, restart): key for slurm, restart, key in attempts}
    runs: dict[str, list[PastRow]] = {}
    for row in past:
        runs.setdefault(row.id, []).append(row)
    found = []
    for id, rows in runs.items():
        # A run that has not begun has no start time; it is the last.
        for restart, row in enumerate(sorted(rows, key=lambda row: row.started_at or float("inf"))):
            key = whose.get((id, restart))
            if key is not None:
                found.append(_usage(key, row, restart))
    return found


def _usage(key: Key, row: PastRow, restart: int) -> Usage:
    return Usage(
        job=key[0],
        attempt=key[1],
        state=row.state,
        nodes=row.nodes,
        started_at=row.started_at,
        ended_at=row.ended_at,
        accelerator_seconds=row.elapsed * row.gpus,
        cpu_seconds=row.elapsed * row.cpus,
        about={"slurm_job": row.id, "restart": restart, "elapsed": row.elapsed},
    )
