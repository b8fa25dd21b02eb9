"""Reader for cluster files: pools in YAML, or the JSON file that accompanies a public trace.

    pools:
      a100: {nodes: 16, accelerators: "A100:8", cpus: 128, memory: 1TB, rack: 32, spot: false}
    queues: {research: a100}        # queues whose jobs may run only in this pool

The JSON has `virtual_cluster_nodes` (queue → nodes) or `nodes`, with `gpus_per_node` and `gpu_type`. Virtual clusters
are laid out in one of two ways. *Confined*: each is a separate pool that only its own jobs may use, as in the original
cluster. *Shared*: one pool of all nodes, in which each is a queue whose quota is the accelerators of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from muster.core import units
from muster.core.document import Sort, read_document
from muster.core.errors import Problem, SpecError
from muster.core.report import At, Report, Stop, is_null, shown
from muster.core.rules import Rules
from muster.core.suggest import closest, did_you_mean
from muster.sim.model import Cluster, PoolShape

Layout = Literal["plain", "confined", "shared"]
MOST_NODES: Final = 1_000_000
_SORT: Final = Sort("cluster", "a mapping with `pools`", 'pools: {a100: {nodes: 16, accelerators: "A100:8"}}')


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The contents of a cluster file. Without virtual clusters, `virtual` is empty and `cluster` is complete."""

    source: str
    cluster: Cluster
    virtual: dict[str, int] = field(default_factory=dict)  # queue → nodes
    origin: dict[str, str] = field(default_factory=dict)  # description and licence of the trace

    @property
    def per_node(self) -> int:
        """Accelerators of the largest node."""
        return max(pool.accelerators for pool in self.cluster.pools)

    def lay_out(self, layout: Layout) -> Cluster:
        if not self.virtual or layout == "plain":
            return self.cluster
        (pool,) = self.cluster.pools
        if layout == "shared":
            return Cluster((replace(pool, nodes=sum(self.virtual.values())),))
        pools = tuple(replace(pool, name=queue, nodes=nodes) for queue, nodes in self.virtual.items())
        return Cluster(pools, {queue: queue for queue in self.virtual})

    def with_quotas(self, rules: Rules, layout: Layout) -> Rules:
        """In a shared layout, gives each virtual cluster its own nodes as quota, unless the policy gives it one."""
        if layout != "shared" or not self.virtual:
            return rules
        (pool,) = self.cluster.pools
        queues = dict(rules.queues)
        for name, nodes in self.virtual.items():
            one = rules.queue(name)
            queues[name] = (
                one if one.quota else one.model_copy(update={"quota": {pool.name: nodes * pool.accelerators}})
            )
        return rules.model_copy(update={"queues": queues})


def read_cluster(path: Path) -> ClusterFile:
    """Reads a cluster file. SpecError with every mistake in it."""
    report = Report()
    found = None
    try:
        raw = read_document(_text(path), report, _SORT)
        found = _pools(raw, str(path), report) if "pools" in raw else _trace_cluster(raw, str(path), report)
    except Stop:
        pass
    if found is None or report.found:
        raise SpecError(report.problems(), str(path))
    return found


def cluster_file_of(trace: Path) -> Path | None:
    """The JSON or YAML file with the trace's name, in the trace's folder; None if there is none."""
    stem = trace.name.removesuffix(".gz")
    stem = stem.rpartition(".")[0] or stem
    found = (trace.with_name(f"{stem}{suffix}") for suffix in (".json", ".yaml", ".yml"))
    return next((path for path in found if path != trace and path.is_file()), None)


# --- the YAML form ----------------------------------------------------------------------------------------------------
def _pools(raw: Mapping[Any, Any], source: str, report: Report) -> ClusterFile | None:
    _known(raw, ("pools", "queues", "trace", "license"), (), report)
    pools = raw["pools"]
    if not isinstance(pools, Mapping) or not pools:
        report.add(("pools",), shown(pools), "at least one pool by name", "Write `pools: {a100: {nodes: 16}}`.")
        return None
    shapes = [_pool(str(name), fields, report) for name, fields in pools.items()]
    bound = raw.get("queues")
    if is_null(bound):
        bound = {}
    if not isinstance(bound, Mapping):
        report.add(("queues",), shown(bound), "a pool for each queue", "Write `queues: {research: a100}`.")
        return None
    for queue, pool in bound.items():
        if pool not in pools:
            near = closest(str(pool), pools) or next(iter(pools))
            report.add(("queues", str(queue)), shown(pool), "a pool of this file", f"Write, for example, `{near}`.")
    made = tuple(shape for shape in shapes if shape)
    cluster = Cluster(made, {str(queue): str(pool) for queue, pool in bound.items()})
    return ClusterFile(source, cluster, {}, _origin(raw)) if made else None


def _pool(name: str, fields: Any, report: Report) -> PoolShape | None:
    at: At = ("pools", name)
    if not isinstance(fields, Mapping):
        report.add(at, shown(fields), "what the pool is made of", 'Write `{nodes: 16, accelerators: "A100:8"}`.')
        return None
    _known(fields, _OF_A_POOL, at, report)
    given = {key: fields[key] for key in _OF_A_POOL if not is_null(fields.get(key))}
    values = {key: _value(key, raw, (*at, key), report) for key, raw in given.items()}
    if "nodes" not in given:
        report.add((*at, "nodes"), "nothing", *_FIELDS["nodes"][1:])
        return None
    if any(value is None for value in values.values()):
        return None
    kind, count, _ = values.pop("accelerators", ("GPU", 0, 1000))
    return PoolShape(name, accelerators=count, accelerator=kind or "GPU", **values)


def _value(key: str, raw: Any, at: At, report: Report) -> Any:
    """The parsed value; None where it is invalid, and then the report has a problem for it."""
    read, expected, hint = _FIELDS[key]
    try:
        return read(str(raw))
    except units.InvalidValue as unfit:
        report.add(at, shown(raw), expected, unfit.hint or hint)
        return None


def _known(raw: Mapping[Any, Any], names: tuple[str, ...], at: At, report: Report) -> None:
    for key in raw:
        if key not in names:
            hint = did_you_mean(str(key), names, "Remove it.")
            report.add((*at, str(key)), "a key that does not exist", f"one of {', '.join(names)}", hint)


# --- the JSON beside a trace ------------------------------------------------------------------------------------------
def _trace_cluster(raw: Mapping[Any, Any], source: str, report: Report) -> ClusterFile | None:
    virtual = raw.get("virtual_cluster_nodes")
    if virtual is None and "nodes" not in raw:
        hint = 'Write `pools: {a100: {nodes: 16, accelerators: "A100:8"}}`.'
        report.stop("the whole file", "neither of them", "`pools`, `nodes` or `virtual_cluster_nodes`", hint)
    per_node = _value("gpus_per_node", raw.get("gpus_per_node", ""), ("gpus_per_node",), report)
    kind = str(raw.get("gpu_type") or "GPU").upper()
    parts: dict[str, int | None] = {}
    if isinstance(virtual, Mapping) and virtual:
        parts = {str(k): _value("nodes", v, ("virtual_cluster_nodes", str(k)), report) for k, v in virtual.items()}
    elif virtual is not None:
        report.add(("virtual_cluster_nodes",), shown(virtual), "nodes of each virtual cluster", "Write `{vc1: 4}`.")
    nodes = sum(n or 0 for n in parts.values()) if parts else _value("nodes", raw.get("nodes", "1"), ("nodes",), report)
    if report.found:
        return None
    pool = PoolShape(kind.lower(), nodes, per_node, kind)
    return ClusterFile(source, Cluster((pool,)), {name: n for name, n in parts.items() if n}, _origin(raw))


def _origin(raw: Mapping[Any, Any]) -> dict[str, str]:
    return {name: str(raw[name]) for name in ("trace", "license") if isinstance(raw.get(name), str)}


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        given = error.strerror or str(error)
        raise SpecError([Problem("the path", given, "a cluster file", "Check the path.")], str(path)) from None


def _counted(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = units.parse_integer(text)
        if not least <= number <= most:
            raise units.InvalidValue
        return number

    return read


def _positive(text: str) -> float:
    number = units.parse_number(text)
    if not 0 < number < 1e9:
        raise units.InvalidValue
    return number


def _whole_accelerators(text: str) -> tuple[str, int, int]:
    found = units.parse_accelerators(text)
    if found[2] != 1000:
        raise units.InvalidValue("A node has whole accelerators.")
    return found


_FIELDS: Final[dict[str, tuple[Callable[[str], Any], str, str]]] = {
    "nodes": (
        _counted(1, MOST_NODES),
        f"a number of nodes from 1 to {MOST_NODES:,}",
        "Write, for example, `nodes: 16`.",
    ),
    "accelerators": (_whole_accelerators, "a kind and a count such as `A100:8`, of each node", "Write `A100:8`."),
    "cpus": (_positive, "CPUs of each node", "Write, for example, `cpus: 128`."),
    "memory": (units.parse_size, "memory of each node", "Write, for example, `memory: 1TB`."),
    "rack": (_counted(0, MOST_NODES), "nodes in a rack, 0 for no racks", "Write, for example, `rack: 32`."),
    "spot": (units.parse_flag, "`true` or `false`", "Write `spot: false`."),
    "gpus_per_node": (_counted(0, 1024), "accelerators of a node", "Write, for example, `gpus_per_node: 8`."),
}
_OF_A_POOL: Final = ("nodes", "accelerators", "cpus", "memory", "rack", "spot")
