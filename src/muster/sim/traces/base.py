"""Common code of the trace readers: their options, the shape of a gang, and the list of bad rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from muster.core.errors import Problem, SpecError
from muster.core.report import cut
from muster.core.resources import WHOLE
from muster.sim.model import Cluster, TraceJob

LONGEST: Final = 10 * 365 * 86_400.0  # maximum run time of a job in seconds: ten years
WIDEST: Final = 1_000_000  # accelerators, processors or nodes of one job
LATEST: Final = 1e11  # seconds: a submit time after the year 5000 is a mistake, such as milliseconds
SHOWN: Final = 5  # line numbers that are kept for each kind of bad row
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a reader in addition to the file."""

    per_node: int | None = None  # accelerators of a node; None where the cluster is not known
    procs_per_node: int | None = None  # for SWF, which only counts processors
    max_bad: float = 0.01  # fraction of the rows that may be bad


class Reader(Protocol):
    """A trace format. `sniff` gets the beginning of the text; `read` yields jobs with their line numbers."""

    about: str

    def sniff(self, head: str) -> bool: ...

    def read(self, lines: Iterator[str], options: Options, ledger: Ledger) -> Iterator[tuple[int, TraceJob]]: ...


class BadRow(ValueError):
    """A row that is invalid, with the reason."""


class LeftOut(ValueError):
    """A valid row that is not a job to replay, with the reason."""


@dataclass(slots=True)
class Tally:
    """Bad rows of one kind."""

    count: int = 0
    lines: list[int] = field(default_factory=list)  # the first few


@dataclass(slots=True)
class Ledger:
    """What was found in a file in addition to its jobs."""

    source: str
    rows: int = 0
    bad: dict[str, Tally] = field(default_factory=dict)  # reason → count and lines
    left_out: dict[str, int] = field(default_factory=dict)  # reason → rows
    remarks: dict[str, int] = field(default_factory=dict)  # remark → number of jobs; 0: the whole file
    cluster: Cluster | None = None  # where the trace itself names its cluster
    names: dict[str, str] = field(default_factory=dict)  # queue name in the trace → valid name in Muster

    @property
    def bad_rows(self) -> int:
        return sum(tally.count for tally in self.bad.values())

    def reject(self, line: int, reason: str) -> None:
        tally = self.bad.setdefault(reason, Tally())
        tally.count += 1
        if len(tally.lines) < SHOWN:
            tally.lines.append(line)

    def leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def remark(self, words: str, jobs: int = 1) -> None:
        if words:
            self.remarks[words] = self.remarks.get(words, 0) + jobs

    def queue(self, written: str) -> str:
        """A valid queue name for a policy; different names stay different."""
        found = self.names.get(written)
        if found is None:
            found = plain = _UNFIT.sub("-", written).strip("-._")[:56] or ("queue" if written else "")
            taken, number = set(self.names.values()), 2
            while found in taken:
                found, number = f"{plain}-{number}", number + 1
            self.names[written] = found
        return found

    def notes(self) -> list[str]:
        """The whole ledger, one sentence per entry."""
        said = [f"{_rows(t.count)} bad: {reason} ({_lines(t)})." for reason, t in self.bad.items()]
        said += [f"{_rows(count)} left out: {reason}." for reason, count in self.left_out.items()]
        for words, count in self.remarks.items():
            said.append(f"{count:,} job{'' if count == 1 else 's'}: {words}." if count else f"{words}.")
        renamed = [f"{cut(written)!r} is called {name!r}" for written, name in self.names.items() if written != name]
        if renamed:
            more = f", and {len(renamed) - SHOWN} more are renamed" if len(renamed) > SHOWN else ""
            said.append(f"Queues whose names a policy can't hold: {', '.join(renamed[:SHOWN])}{more}.")
        return said

    def problems(self) -> list[Problem]:
        """The bad rows as problems, for a file that is rejected because of them."""
        return [
            Problem(_lines(tally), f"{_rows(tally.count)} where {reason}", "a job in every row", "Mend or remove them.")
            for reason, tally in self.bad.items()
        ]


def each(
    rows: Iterable[tuple[int, Row]], make: Callable[[Row], TraceJob], ledger: Ledger
) -> Iterator[tuple[int, TraceJob]]:
    """The jobs that `make` returns; rows that it rejects go to the ledger."""
    for line, row in rows:
        ledger.rows += 1
        try:
            job = make(row)
        except BadRow as bad:
            ledger.reject(line, str(bad))
        except LeftOut as why:
            ledger.leave_out(str(why))
        else:
            yield line, job


def quantity(text: str, name: str, most: float = LONGEST, unit: str = "seconds") -> float:
    """A number from 0 to `most`."""
    try:
        value = float(text)
    except ValueError:
        raise BadRow(f"{name} is not a number" if text.strip() else f"{name} is missing") from None
    if 0 <= value <= most:
        return value
    if not math.isfinite(value):
        raise BadRow(f"{name} is not a finite number")
    raise BadRow(f"{name} is negative" if value < 0 else f"{name} is over {most:,.0f} {unit}")


def whole(text: str, name: str, unit: str) -> int:
    """A whole number from 0 to `WIDEST`."""
    value = quantity(text, name, WIDEST, unit)
    if value != int(value):
        raise BadRow(f"{name} is not a whole number")
    return int(value)


def accelerators(text: str, name: str) -> tuple[int, int]:
    """How many, and thousandths of each: of one alone a part may be wanted."""
    value = quantity(text, name, WIDEST, "accelerators")
    if 0 < value < 1:
        return 1, max(1, round(value * WHOLE))
    if value != int(value):
        raise BadRow(f"{name} is neither a whole number nor a part of one")
    return int(value), WHOLE


@dataclass(frozen=True, slots=True)
class TraceGang:
    """Equal workers, one on each node."""

    nodes: int
    accelerators: int  # on each node
    remark: str = ""  # set where the trace does not determine the shape


def gang(total: int, nodes: int, per_node: int) -> TraceGang:
    """The gang of a job that held `total` accelerators; `nodes` is from the trace, 0 where it does not say.

    A job that is larger than a node takes the fewest nodes that hold it, with the same number of accelerators on each.
    If that leaves a remainder, it takes one more on each node.
    """
    if not total:
        return TraceGang(max(nodes, 1), 0)
    fewest = max(nodes, -(-total // per_node))
    on_each, rest = divmod(total, fewest)
    if rest:
        words = f"accelerators that do not divide evenly over nodes of {per_node}, so each of its nodes gives one more"
        return TraceGang(fewest, on_each + 1, words)
    if fewest > 1 and on_each != per_node and not nodes:
        return TraceGang(
            fewest, on_each, f"wider than a node and no multiple of {per_node}, split evenly over the fewest nodes"
        )
    return TraceGang(fewest, on_each)


def unusable(source: str, where: str, given: str, expected: str, hint: str) -> SpecError:
    """The error that rejects the whole file."""
    return SpecError([Problem(where, given, expected, hint)], source)


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _lines(tally: Tally) -> str:
    more = ", ..." if tally.count > len(tally.lines) else ""
    return f"line{'' if tally.count == 1 else 's'} {', '.join(map(str, tally.lines))}{more}"


_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
