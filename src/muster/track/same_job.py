"""Runs of the same job: those that differ in their seed alone, and those that ran at another scale.

They are found by what the server accepted, so that nobody chooses which of them count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import select

from muster.store.record_tables import runs as table
from muster.track.facts import number_of
from muster.track.record_db import RecordDb
from muster.track.replicates import SEEDS
from muster.track.rows import Run, run_of
from muster.track.runs import Runs

MOST: Final = 500  # newest runs of a name that are looked at
# What a job computes. Its scale, its place in the queue and its purpose are not part of it.
_PARTS: Final = ("kind", "data", "image", "start_from", "secrets")
_SEED_ARGUMENT: Final = re.compile(r"((?:^|\s)-{0,2}(?:[\w.]+[._-])?seed)(?:=|\s+)\S+", re.IGNORECASE)


class SameJob:
    def __init__(self, db: RecordDb, runs: Runs) -> None:
        self._db, self._runs = db, runs

    def of(self, run: Run) -> list[Run]:
        """The runs of the same job in its project, at any scale and with any seed, with it; oldest first."""
        if not isinstance(run.doc.get("spec"), Mapping):
            return [run]
        # Hidden runs count too: otherwise a run that did badly could be hidden.
        query = select(table).where(table.c.project == run.project, table.c.name == run.name, table.c.source == "job")
        with self._db.reading() as connection:
            rows = connection.execute(query.order_by(table.c.created_at.desc()).limit(MOST)).all()
        wanted = key_of(run)
        found = {one.id: one for row in rows if key_of(one := run_of(row)) == wanted}
        return sorted({**found, run.id: run}.values(), key=lambda one: one.created_at)

    def replicates(self, run: Run) -> list[Run]:
        """Those at the same scale and with the same parameters but for seeds, whatever became of them."""
        alike = [one for one in self.of(run) if devices_of(one) == devices_of(run)]
        params = self._runs.params([one.id for one in alike])
        wanted = _without_seeds(params.get(run.id, {}))
        return [one for one in alike if one.id == run.id or _without_seeds(params.get(one.id, {})) == wanted]


def key_of(run: Run) -> tuple[Any, ...]:
    """Equal for runs of the same job: code, command, variables, data and environment, but for seeds and scale."""
    spec: Mapping[str, Any] = run.doc.get("spec") or {}
    code: Mapping[str, Any] = run.doc.get("code") or {}
    envs = spec.get("envs") or {}
    kept = tuple(sorted((str(name), str(value)) for name, value in envs.items() if not _passed_over(str(name))))
    # A snapshot is the whole of the code; without one, the commit and the folder are all that is known.
    version = code.get("tree") or (code.get("commit"), code.get("diff"), spec.get("workdir"))
    command = _SEED_ARGUMENT.sub(r"\1=SEED", str(spec.get("run", "")))
    return (command, kept, version, *(repr(spec.get(name)) for name in _PARTS))


def devices_of(run: Run) -> int:
    """Accelerators of the whole job; processes, of one that has none."""
    spec: Mapping[str, Any] = run.doc.get("spec") or {}
    resources: Mapping[str, Any] = spec.get("resources") or {}
    each = int(resources.get("accelerators") or 0) or int(spec.get("nproc") or 1)
    return int(spec.get("num_nodes") or 1) * each


def is_seed(name: str) -> bool:
    return name.lower() in SEEDS or name.lower().rpartition(".")[2] in SEEDS


def _passed_over(name: str) -> bool:
    """`PATH` is that of the shell which submitted."""
    return name == "PATH" or is_seed(name)


def _without_seeds(params: Mapping[str, str]) -> frozenset[tuple[str, float | str]]:
    return frozenset(_pairs(params.items()))


def _pairs(items: Iterable[tuple[str, str]]) -> Iterable[tuple[str, float | str]]:
    for name, text in items:
        if not is_seed(name):
            number = number_of(text)
            yield name, text if number is None else number
