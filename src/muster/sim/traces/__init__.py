"""The trace readers by name. To add one: a file here and a line below; `tests/sim/test_traces.py` covers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster.core.errors import SpecError
from muster.core.registry import Registry
from muster.core.report import cut
from muster.sim.model import TraceJob
from muster.sim.traces.base import Ledger, Options, Reader, unusable
from muster.sim.traces.columns import Columns
from muster.sim.traces.history import History, from_server
from muster.sim.traces.sacct import Sacct
from muster.sim.traces.source import open_trace
from muster.sim.traces.swf import Swf

# In the order in which they are asked to recognise a text: the least specific one last.
READERS: Registry[Reader] = Registry(
    "trace format", {"history": History(), "swf": Swf(), "sacct": Sacct(), "columns": Columns()}
)
EPOCH: Final = 1e9  # seconds: later submit times are dates, and are made relative to the first job


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace: its jobs in the order of submission; jobs of the same time are in the order of the file."""

    format: str
    jobs: list[TraceJob]
    ledger: Ledger


def read_trace(path: Path, options: Options, format: str | None = None) -> Trace:
    """Reads a trace. SpecError where it can't be read, or more of its rows are bad than `options` allow."""
    head, lines = open_trace(path)
    name = format or next((name for name in READERS if READERS.get(name).sniff(head)), None)
    if name is None:
        formats = "; ".join(READERS.get(name).about for name in READERS)
        given = f"a first line that reads {cut(head.lstrip().partition(chr(10))[0])!r}"
        raise unusable(
            str(path), "line 1", given, f"one of: {formats}", "Convert it, or name its format with --format."
        )
    ledger = Ledger(str(path))
    return _trace(name, READERS.get(name).read(lines, options, ledger), ledger, options.max_bad)


def read_history(jobs: Iterable[Mapping[str, Any]], source: str, max_bad: float) -> Trace:
    """A trace from the jobs of a server, as its API shows them."""
    ledger = Ledger(source)
    return _trace("history", from_server(jobs, ledger), ledger, max_bad)


def _trace(name: str, found: Iterator[tuple[int, TraceJob]], ledger: Ledger, max_bad: float) -> Trace:
    jobs: dict[str, TraceJob] = {}
    for line, job in found:
        if job.id in jobs:
            ledger.reject(line, "its id was there before")
        else:
            jobs[job.id] = job
    bad = ledger.bad_rows
    if bad > max_bad * ledger.rows:
        share = f"{bad:,} of {ledger.rows:,} rows are bad"
        error = SpecError(ledger.problems(), ledger.source)
        error.message = (
            f"{ledger.source} is refused: {share}, more than the {max_bad * 100:.4g}% that --max-bad allows."
        )
        raise error
    if not jobs:
        left = "; ".join(f"{count} left out: {why}" for why, count in ledger.left_out.items())
        given = f"no job ({left})" if left else "no job"
        hint = "Check the export." if ledger.rows else "Check that it holds jobs, and that you may see them."
        raise unusable(ledger.source, "all of it", given, "at least one job that ran and ended", hint)
    ordered = sorted(jobs.values(), key=lambda job: job.submit)
    return Trace(name, _from_the_first(ordered), ledger)


def _from_the_first(jobs: list[TraceJob]) -> list[TraceJob]:
    first = jobs[0].submit
    return jobs if first < EPOCH else [replace(job, submit=job.submit - first) for job in jobs]
