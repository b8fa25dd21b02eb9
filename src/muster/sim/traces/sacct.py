r"""Reader for the output of `sacct -P`: fields separated by `|`, named on the first line; one line per job or step.

    sacct -aXP -S 2024-01-01 \
      -o JobID,JobName,User,Account,Partition,Submit,Start,End,Elapsed,Timelimit,State,NNodes,ReqTRES,AllocTRES

Times are the cluster's local time, as Slurm writes it, so a change to or from summer time shifts later jobs by an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from muster.core.errors import Problem, SpecError
from muster.core.report import cut
from muster.sim.model import TraceJob
from muster.sim.traces.base import LATEST, LONGEST, BadRow, Ledger, LeftOut, Options, each, gang, quantity, whole

COMMAND: Final = "sacct -aXP -o JobID,User,Account,Partition,Submit,Start,End,Elapsed,Timelimit,State,NNodes,AllocTRES"
PER_NODE: Final = 8  # accelerators of a node where no cluster is given
WAITING: Final = ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING")
UNKNOWN: Final = ("", "unknown", "none", "n/a", "invalid")
NO_LIMIT: Final = (*UNKNOWN, "unlimited", "partition_limit")
Record = dict[str, str]  # column in lower case → text


class Sacct:
    about = "the output of `sacct -P`: fields between `|`"

    def sniff(self, head: str) -> bool:
        first = head.lstrip().partition("\n")[0].lower()
        return first.count("|") >= 2 and "jobid" in first

    def read(self, lines: Iterator[str], options: Options, ledger: Ledger) -> Iterator[tuple[int, TraceJob]]:
        names = [name.strip().lower() for name in next(lines).rstrip("\n").split("|")]
        if names[-1] == "":  # `sacct -p` ends every line with the separator
            names.pop()
        _check(names, ledger)
        per_node = options.per_node or PER_NODE

        def job(fields: list[str]) -> TraceJob:
            if len(fields) != len(names):
                raise BadRow(f"it has {len(fields)} fields and not {len(names)}")
            return _job(dict(zip(names, fields, strict=True)), per_node, ledger)

        yield from each(_rows(lines, len(names), ledger), job, ledger)


def _check(names: list[str], ledger: Ledger) -> None:
    needs = (
        ("JobID", ("jobid", "jobidraw")),
        ("Submit", ("submit",)),
        ("Elapsed", ("elapsed", "elapsedraw")),
        ("AllocTRES", ("alloctres", "reqtres", "nnodes", "allocnodes", "reqnodes")),
    )
    given = f"columns {cut(', '.join(names))!r}"
    missing = [
        Problem("line 1", given, f"a column {name}", f"Export with `{COMMAND}`.")
        for name, any_of in needs
        if not set(any_of) & set(names)
    ]
    if missing:
        raise SpecError(missing, ledger.source)


def _rows(lines: Iterator[str], width: int, ledger: Ledger) -> Iterator[tuple[int, list[str]]]:
    steps = 0
    for line, text in enumerate(lines, 2):
        fields = text.rstrip("\n").split("|")
        if len(fields) == width + 1 and not fields[-1]:
            fields.pop()
        if "." in fields[0]:  # `1234.batch` and `1234.0` are steps of 1234
            steps += 1
        elif text.strip():
            yield line, fields
    if steps:
        ledger.left_out["steps, which their jobs contain"] = steps


def _job(record: Record, per_node: int, ledger: Ledger) -> TraceJob:
    name = record.get("jobid") or record.get("jobidraw") or ""
    if not name:
        raise BadRow("JobID is missing")
    state = record.get("state", "").partition(" ")[0].upper()
    if state in WAITING:
        raise LeftOut("it has not ended")
    if record.get("start", "known").lower() in UNKNOWN or "[" in name:
        raise LeftOut("it never ran")
    held = _tres(record.get("alloctres") or record.get("reqtres") or "")
    total, kind = _accelerators(held)
    nodes = _first(record, "nnodes", "allocnodes", "reqnodes") or held.get("node", "")
    made = gang(total, whole(nodes, "NNodes", "nodes") if nodes else 0, per_node)
    ledger.remark(made.remark)
    return TraceJob(
        name,
        _moment(record["submit"], "Submit"),
        _elapsed(record),
        made.nodes,
        made.accelerators,
        kind,
        quantity(_first(record, "alloccpus", "ncpus", "reqcpus") or held.get("cpu", "0"), "CPUs", 1e9, "CPUs")
        / made.nodes,
        int(_size(held.get("mem", "0")) / made.nodes),
        record.get("user", ""),
        ledger.queue(record.get("partition", "").partition(",")[0]),
        record.get("account", ""),
        record.get("jobname", ""),
        declared=_limit(record),
        status=state.lower(),
    )


def _tres(text: str) -> Record:
    """Parses `cpu=64,gres/gpu:a100=8,mem=512G,node=2` into name → value."""
    return {name.strip().lower(): value for name, _, value in (part.partition("=") for part in text.split(","))}


def _accelerators(held: Record) -> tuple[int, str]:
    """The number of accelerators of the whole job, and their kind if there is only one."""
    kinds = {name.partition(":")[2]: value for name, value in held.items() if name.startswith("gres/gpu:")}
    total = held.get("gres/gpu")
    count = whole(total, "gres/gpu", "accelerators") if total else sum(whole(n, "gres/gpu", "") for n in kinds.values())
    return count, next(iter(kinds)).upper() if count and len(kinds) == 1 else ""


def _elapsed(record: Record) -> float:
    """Run time in seconds."""
    if raw := record.get("elapsedraw"):
        return quantity(raw, "ElapsedRaw")
    seconds = _clock(record.get("elapsed", ""), "Elapsed")
    if seconds > LONGEST:
        raise BadRow(f"Elapsed is over {LONGEST:,.0f} seconds")
    return seconds


def _limit(record: Record) -> float | None:
    """The requested time limit in seconds; None without a limit."""
    if (raw := record.get("timelimitraw", "").lower()) not in NO_LIMIT:
        return quantity(raw, "TimelimitRaw", LONGEST, "minutes") * 60
    text = record.get("timelimit", "")
    return None if text.lower() in NO_LIMIT else _clock(text, "Timelimit")


def _clock(text: str, name: str) -> float:
    """Seconds of `1-02:03:04`, `02:03:04` or `03:04`; the last form is minutes and seconds in Slurm."""
    match = _CLOCK.fullmatch(text.strip())
    if not match:
        raise BadRow(f"{name} is no time such as 1-02:03:04" if text.strip() else f"{name} is missing")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return days * 86_400 + hours * 3_600 + minutes * 60 + seconds


def _moment(text: str, name: str) -> float:
    """Seconds since 1970, from an ISO time or from a number of seconds."""
    if _INTEGER.fullmatch(text):
        return quantity(text, name, LATEST)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadRow(f"{name} is missing" if text.lower() in UNKNOWN else f"{name} is no ISO time") from None
    return quantity(str((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()), name, LATEST)


def _size(text: str) -> float:
    """Bytes. Slurm's units are powers of 1024; without a unit it means megabytes."""
    match = _SIZE.fullmatch(text.strip().upper())
    if not match:
        raise BadRow("mem is no size such as 512G")
    power = "KMGTP".index(match[2] or "M") + 1
    return float(match[1]) * float(1024**power)


def _first(record: Record, *names: str) -> str:
    return next((record[name] for name in names if record.get(name)), "")


_CLOCK: Final = re.compile(r"(?:(?:([0-9]{1,5})-)?([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,2}(?:\.[0-9]+)?)")
_INTEGER: Final = re.compile("[0-9]{1,20}")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP])?")
