"""Reader for comma-separated traces with one row per job, in the columns to which public GPU traces were converted.

    job_id,user,vc,submit_s,duration_s,gpus,cpus,memory,nodes,gpu_type,status

The first line names the columns, in any order; only the four in `NEEDED` are required. A field is empty where the
source does not give it. `gpus`, `cpus` and `memory` (in bytes) are totals of the whole job; a row with no GPUs is a
CPU-only job. `gpus` under 1 is a part of one GPU, rounded to thousandths.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, Final

from muster.core.errors import Problem, SpecError
from muster.core.report import cut
from muster.core.suggest import closest
from muster.sim.model import TraceJob
from muster.sim.traces.base import (
    LATEST,
    WIDEST,
    BadRow,
    Ledger,
    Options,
    TraceGang,
    accelerators,
    each,
    gang,
    quantity,
    unusable,
    whole,
)

NEEDED: Final = ("job_id", "submit_s", "duration_s", "gpus")
OPTIONAL: Final = ("user", "vc", "cpus", "nodes", "gpu_type", "status", "memory")
PER_NODE: Final = 8  # accelerators of a node where no cluster is given


class Columns:
    about = "comma-separated columns: job_id,user,vc,submit_s,duration_s,gpus,cpus,memory,nodes,gpu_type,status"

    def sniff(self, head: str) -> bool:
        """Accepts any line of several names: an error about wrong columns is clearer than "unknown format"."""
        first = head.lstrip().partition("\n")[0]
        return first.count(",") >= 2 and first[:1] not in "{;"

    def read(self, lines: Iterator[str], options: Options, ledger: Ledger) -> Iterator[tuple[int, TraceJob]]:
        rows = csv.reader(lines)
        header = next(rows)
        maker = _Maker(_places(header, ledger), len(header), options.per_node or PER_NODE, ledger)
        yield from each(_numbered(rows, ledger.source), maker.job, ledger)


class _Maker:
    """Turns a row into a job. Column positions are looked up once, because a trace may have millions of rows."""

    def __init__(self, places: dict[str, int], width: int, per_node: int, ledger: Ledger) -> None:
        self._places = tuple(places.get(name, width) for name in (*NEEDED, *OPTIONAL))
        self._width, self._per_node, self._ledger = width, per_node, ledger
        self._shapes: dict[tuple[str, str, str], tuple[TraceGang, int, float]] = {}

    def job(self, row: list[str]) -> TraceJob:
        if len(row) != self._width:
            raise BadRow(f"it has {len(row)} fields and not {self._width}")
        row.append("")  # the value of absent columns
        name, submit, duration, gpus, user, vc, cpus, nodes, kind, status, memory = [
            row[place] for place in self._places
        ]
        if not name:
            raise BadRow("job_id is missing")
        made, share, cpus_each = self._shapes.get((gpus, nodes, cpus)) or self._shape(gpus, nodes, cpus)
        if made.remark:
            self._ledger.remark(made.remark)
        return TraceJob(
            name,
            quantity(submit, "submit_s", LATEST),
            quantity(duration, "duration_s"),
            made.nodes,
            made.accelerators,
            kind.upper() if made.accelerators else "",
            cpus_each,
            int(quantity(memory, "memory", 1e18, "bytes") / made.nodes) if memory else 0,
            user,
            self._ledger.queue(vc) if vc else "",
            status=status,
            share=share,
        )

    def _shape(self, gpus: str, nodes: str, cpus: str) -> tuple[TraceGang, int, float]:
        """The gang, the thousandths of each accelerator, and the CPUs of each node.

        A trace has few different shapes, so each is computed once."""
        total, share = accelerators(gpus, "gpus")
        made = gang(total, whole(nodes, "nodes", "nodes") if nodes else 0, self._per_node)
        cpus_each = quantity(cpus, "cpus", 1000 * WIDEST, "CPUs") / made.nodes if cpus else 0.0
        self._shapes[gpus, nodes, cpus] = made, share, cpus_each
        return made, share, cpus_each


def _places(header: list[str], ledger: Ledger) -> dict[str, int]:
    """Column → its position. SpecError with every missing column and the present column that may be meant."""
    names = [name.strip().lower() for name in header]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise unusable(ledger.source, "line 1", f"column {twice[0]!r} twice", "each column once", "Remove one of them.")
    places = {name: place for place, name in enumerate(names)}
    unknown = [name for name in names if name not in (*NEEDED, *OPTIONAL)]
    missing = [_missing(name, unknown) for name in NEEDED if name not in places]
    if missing:
        raise SpecError(missing, ledger.source)
    if unknown:
        ledger.remark(f"columns that were not used: {cut(', '.join(unknown))}", 0)
    return {name: place for name, place in places.items() if name not in unknown}


def _missing(name: str, unknown: list[str]) -> Problem:
    stem = name.partition("_")[0]
    near = closest(name, unknown, 0.5) or next((one for one in unknown if stem in one), None)
    hint = f"Rename the column {near!r} to {name!r}." if near else f"Add a column {name!r}."
    given = f"columns {cut(', '.join(unknown))!r}" if unknown else "too few columns"
    return Problem("line 1", given, f"a column {name!r}", hint)


def _numbered(rows: Iterator[list[str]], source: str) -> Iterator[tuple[int, list[str]]]:
    reader: Any = rows
    try:
        for row in rows:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        where, given = f"line {reader.line_num}", f"text that is no CSV ({error})"
        raise unusable(source, where, given, "comma-separated fields", "Check the quotes there.") from None
