"""Reader for Muster's own history: finished jobs as the API shows them, from a server or `muster ls --all --json`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from muster.api.words import KINDS
from muster.core.resources import WHOLE
from muster.sim.model import Cluster, PoolShape, TraceJob
from muster.sim.traces.base import LATEST, WIDEST, BadRow, Ledger, LeftOut, Options, each, quantity, unusable, whole

NEEDED: Final = ("id", "submitted_at", "started_at", "finished_at", "num_nodes", "resources")
Doc = Mapping[str, Any]


class History:
    about = "Muster's own jobs: the output of `muster ls --all --json`, or one such job a line"

    def sniff(self, head: str) -> bool:
        return head.lstrip()[:1] == "{"

    def read(self, lines: Iterator[str], options: Options, ledger: Ledger) -> Iterator[tuple[int, TraceJob]]:
        yield from each(_documents(lines, ledger), lambda document: _job(document, ledger), ledger)


def from_server(jobs: Iterable[Doc], ledger: Ledger) -> Iterator[tuple[int, TraceJob]]:
    """Trace jobs from jobs as the API shows them, numbered in the given order."""
    yield from each(enumerate(jobs, 1), lambda document: _job(document, ledger), ledger)


def cluster_of(nodes: Iterable[Doc]) -> Cluster:
    """A cluster from the nodes of a server; a pool with different nodes becomes one pool per kind of node."""
    shapes = Counter((node["pool"], *(node["total"][name] for name in _TOTALS)) for node in nodes)
    names: Counter[str] = Counter()
    pools = []
    for (pool, accelerators, kind, cpus, memory), count in sorted(shapes.items(), key=lambda item: str(item[0])):
        names[pool] += 1
        name = pool if names[pool] == 1 else f"{pool}-{names[pool]}"
        pools.append(PoolShape(name, count, accelerators, kind or "GPU", cpus, memory))
    return Cluster(tuple(pools))


def _documents(lines: Iterator[str], ledger: Ledger) -> Iterator[tuple[int, object]]:
    """All jobs of the file: one per line, or all under `jobs`."""
    first = next(lines)
    try:
        begun: object = json.loads(first)
    except (ValueError, RecursionError):  # one document over several lines, or not JSON
        begun = _whole(first + "".join(lines), ledger)
        lines = iter(())
    if isinstance(begun, dict) and isinstance(begun.get("jobs"), list):
        yield from enumerate(begun["jobs"], 1)
        return
    yield 1, begun
    for line, text in enumerate(lines, 2):
        if text.strip():
            try:
                yield line, json.loads(text)
            except (ValueError, RecursionError):
                yield line, None


def _whole(text: str, ledger: Ledger) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "Export with `muster ls --all --json > jobs.json`."
        raise unusable(
            ledger.source, "the whole file", f"text that is no JSON ({error})", "JSON, one job a line", hint
        ) from None


def _job(job: object, ledger: Ledger) -> TraceJob:
    if not isinstance(job, Mapping):
        raise BadRow("it is no JSON object")
    for name in NEEDED:
        if name not in job:
            raise BadRow(f"{name} is missing")
    if job["finished_at"] is None:
        raise LeftOut("it has not ended")
    if job["started_at"] is None:
        raise LeftOut("it never ran")
    nodes = whole(str(job["num_nodes"]), "num_nodes", "nodes")
    if nodes == 0 or job.get("array"):
        raise LeftOut("it held no nodes")
    asked = job["resources"] if isinstance(job["resources"], Mapping) else {}
    started = quantity(str(job["started_at"]), "started_at", LATEST)
    duration = quantity(str(job["finished_at"]), "finished_at", LATEST) - started
    if job.get("attempt", 1) != 1:
        ledger.remark("started more than once; its run time is from its first start to its end")
    accelerators = whole(str(asked.get("accelerators", 0)), "resources.accelerators", "accelerators")
    if nodes < 1 or nodes * accelerators > WIDEST:
        raise BadRow(f"num_nodes is {nodes}")
    declared = job.get("max_duration")
    return TraceJob(
        str(job["id"]),
        quantity(str(job["submitted_at"]), "submitted_at", LATEST),
        quantity(str(duration), "finished_at after started_at"),
        nodes,
        accelerators,
        _kind(asked, accelerators),
        quantity(str(asked.get("cpus", 0)), "resources.cpus", 1e9, "CPUs"),
        int(quantity(str(asked.get("memory", 0)), "resources.memory", 1e18, "bytes")),
        str(job.get("user") or ""),
        ledger.queue(str(job.get("queue") or "")),
        str(job.get("project") or ""),
        str(job.get("name") or ""),
        job["kind"] if job.get("kind") in KINDS else "train",
        min(100, whole(str(job.get("priority", 50)), "priority", "points")),
        None if declared is None else quantity(str(declared), "max_duration"),
        str(job.get("phase") or ""),
        max(1, min(WHOLE, whole(str(asked.get("share", WHOLE)), "resources.share", "thousandths"))),
    )


def _kind(asked: Doc, accelerators: int) -> str:
    kind = str(asked.get("accelerator") or "").upper()
    return kind if accelerators and kind != "GPU" else ""


_TOTALS: Final = ("accelerators", "accelerator", "cpus", "memory")
