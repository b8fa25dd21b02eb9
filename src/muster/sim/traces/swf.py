"""Reader for the Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job, comments after `;`.

The format counts processors. Here a processor counts as one accelerator. The number per node comes from the file's
MaxProcs and MaxNodes, or from `--procs-per-node`. -1 means that a value is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

from muster.sim.model import Cluster, PoolShape, TraceJob
from muster.sim.traces.base import (
    LATEST,
    BadRow,
    Ledger,
    LeftOut,
    Options,
    each,
    gang,
    quantity,
    unusable,
    whole,
)

FIELDS: Final = 18
STATUSES: Final = {"0": "failed", "1": "completed", "5": "cancelled"}
PARTIAL: Final = ("2", "3", "4")  # one burst of a job that also has its own line
_KILOBYTE: Final = 1024


class Swf:
    about = "Standard Workload Format: 18 numbers a line, comments after `;`"

    def sniff(self, head: str) -> bool:
        lines = [line.strip() for line in head.splitlines()[:-1] or [head] if line.strip()]
        if lines and lines[0].startswith(";"):
            return True
        words = lines[0].split() if lines else []
        return len(words) == FIELDS and all(_NUMBER.fullmatch(word) for word in words)

    def read(self, lines: Iterator[str], options: Options, ledger: Ledger) -> Iterator[tuple[int, TraceJob]]:
        numbered = enumerate(lines, 1)
        header: dict[str, str] = {}
        first: list[tuple[int, str]] = []
        for line, text in numbered:
            if not text.lstrip().startswith(";"):
                first = [(line, text)]
                break
            name, colon, value = text.lstrip("; \t").partition(":")
            if colon:
                header.setdefault(name.strip().lower(), value.strip())
        per_node = _per_node(header, options, ledger)

        def job(words: list[str]) -> TraceJob:
            return _job(words, per_node, ledger)

        yield from each(_rows(chain(first, numbered)), job, ledger)


def _per_node(header: dict[str, str], options: Options, ledger: Ledger) -> int:
    """Processors per node. Also sets `ledger.cluster` where the header gives the cluster's size."""
    processors, nodes = _count(header, "maxprocs"), _count(header, "maxnodes")
    per_node = options.procs_per_node or options.per_node
    if per_node is None:
        if not processors:
            given = "a header without MaxProcs"
            hint = "Give --procs-per-node and --cluster."
            raise unusable(ledger.source, "the `;` lines", given, "`; MaxProcs:` and `; MaxNodes:`", hint)
        per_node = max(1, -(-processors // (nodes or processors)))
    if processors:
        ledger.cluster = Cluster((PoolShape("nodes", -(-processors // per_node), per_node, "GPU"),))
    ledger.remark(f"A processor of the trace counts as one accelerator, {per_node} to a node", 0)
    return per_node


def _count(header: dict[str, str], name: str) -> int:
    found = _INTEGER.match(header.get(name, ""))
    return int(found[0]) if found else 0


def _rows(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    for line, text in lines:
        words = text.split()
        if words and not words[0].startswith(";"):
            yield line, words


def _job(words: list[str], per_node: int, ledger: Ledger) -> TraceJob:
    if len(words) != FIELDS:
        raise BadRow(f"it has {len(words)} fields and not {FIELDS}")
    name, submit, _, ran, held, _, used, asked, declared, memory, status, user, group, program, queue, part, *_ = words
    if status in PARTIAL:
        raise LeftOut("one burst of a job that has a line of its own")
    if ran == "-1" or (status == "5" and quantity(ran, "run time") == 0):
        raise LeftOut("it never ran")
    processors = whole(asked if held in ("-1", "0") else held, "the number of processors", "processors")
    if not processors:
        raise BadRow("the number of processors is 0")
    made = gang(processors, 0, per_node)
    ledger.remark(made.remark)
    size = max(_known(memory), _known(used)) * _KILOBYTE * made.accelerators
    return TraceJob(
        name,
        quantity(submit, "submit time", LATEST),
        quantity(ran, "run time"),
        made.nodes,
        made.accelerators,
        memory=int(size),
        user="" if user == "-1" else user,
        queue=ledger.queue(_line(queue, part)),
        project="" if group == "-1" else f"group-{group}",
        name="" if program == "-1" else f"program-{program}",
        declared=None if declared == "-1" else quantity(declared, "requested time", LATEST),
        status=STATUSES.get(status, ""),
    )


def _known(text: str) -> float:
    return 0.0 if text == "-1" else quantity(text, "memory", 1e15, "KB")


def _line(queue: str, partition: str) -> str:
    if queue != "-1":
        return f"queue-{queue}"
    return "" if partition == "-1" else f"partition-{partition}"


_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?")
_INTEGER: Final = re.compile(r"[0-9]{1,9}")
