"""Reads and checks the settings of a Kubernetes engine: `[engines.NAME]` of the server's config.toml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from muster.core.config import Table
from muster.core.errors import Invalid
from muster.core.resources import Resources
from muster.core.spec_engines import KubernetesForm
from muster.core.units import parse_accelerators
from muster.engines.describe import Home
from muster.engines.kubernetes.adapter import KubeConfig, KubernetesAdapter
from muster.engines.kubernetes.allow import ANY_SETTINGS, LISTED_SETTINGS, LISTS, Allow, ProjectSettings
from muster.engines.kubernetes.machines import Growth
from muster.engines.kubernetes.settings import FORMS, GPU, PORT, TOPOLOGY, KubeSettings, PoolSettings
from muster.engines.kubernetes.toleration import toleration

_TEXTS: Final = (
    "image", "python", "package", "service_account", "checkpoints", "scratch", "shared_memory", "scheduler", "queue",
)  # fmt: skip
_NODE: Final = 'node = {cpus = 96, memory = "960GB", accelerators = "H100:8"}'


def read(name: str, settings: Mapping[str, Any], home: Home) -> KubernetesAdapter:
    """Builds the adapter. Raises ConfigError with every mistake. Connects to nothing."""
    return KubernetesAdapter(name, read_config(name, settings, home), home)


def read_config(name: str, given: Mapping[str, Any], home: Home) -> KubeConfig:
    table, usual = Table(f"engines.{name}", given), KubeSettings()
    growth: dict[str, Growth] = {}
    pools = {pool: _pool(pool, one, growth) for pool, one in table.tables("pools").items()}
    made = KubeSettings(
        installation=home.installation,
        key=home.key,
        namespaces=table.texts("namespaces"),
        allow=_allow(table.table("allow")),
        projects={project: _project(one) for project, one in table.tables("projects").items()},
        unlisted_projects=table.text("unlisted_projects", usual.unlisted_projects, among=("default", "refuse")),
        run_as_non_root=table.flag("run_as_non_root"),
        network_policy=table.flag("network_policy"),
        form=cast(KubernetesForm, table.text("form", usual.form, among=FORMS)),
        port=table.whole("port", PORT, 1024, 65535),
        pull_secrets=table.texts("pull_secrets"),
        priority_classes=table.by_priority("priority_classes"),
        labels=table.words("labels"),
        annotations=table.words("annotations"),
        pools=pools,
        topology={**TOPOLOGY, **table.words("topology")},
        **{key: table.text(key, getattr(usual, key)) for key in _TEXTS},
    )
    kept = made.checkpoints
    if kept and "://" not in kept and not kept.startswith(("pvc:", "hostPath:/")):
        table.wrong(
            "checkpoints", "a place", "Write `pvc:NAME`, `hostPath:/FOLDER`, or s3://bucket/x, gs://... or az://..."
        )
    values: dict[str, Any] = {key: table.text(key) for key in ("context", "namespace") if key in given}
    values |= {key: table.duration(key, 0.0) for key in ("refuse_after", "node_lost_after") if key in given}
    table.know("context", "namespace", "refuse_after", "node_lost_after")
    depth = table.number("depth", 2.0, 1.0, 1000.0)
    kubeconfig = table.text("kubeconfig")
    table.finish()
    if kubeconfig:
        kubeconfig = str(home.folder / Path(kubeconfig).expanduser())  # a relative path starts from the home folder
    return KubeConfig(made, kubeconfig, growth=growth, depth=depth, **values)


def _allow(table: Table) -> Allow:
    lists: dict[str, Any] = {key: table.texts(key) for key in LISTS}
    _check_tolerations(table, lists["tolerations"])
    for path in lists["host_paths"]:
        if not path.startswith("/"):
            table.mistakes.add(f"{table.where}.host_paths is {path!r}; a whole path is expected.")
    chosen = table.text("pod_settings", LISTED_SETTINGS, among=(LISTED_SETTINGS, ANY_SETTINGS))
    table.refuse_others()
    return Allow(**lists, pod_settings=chosen)


def _project(table: Table) -> ProjectSettings:
    return ProjectSettings(table.text("namespace"), _allow(table))


def _pool(name: str, table: Table, growth: dict[str, Growth]) -> PoolSettings:
    found = PoolSettings(
        selector=table.words("selector"),
        queue=table.text("queue"),
        accelerator=table.text("accelerator").upper(),
        resource=table.text("resource", GPU),
        tolerations=_check_tolerations(table, table.texts("tolerations")),
    )
    nodes = table.whole("max_nodes", 0, 1, 100_000)
    if ("node" in table.given) != ("max_nodes" in table.given):
        hint = "Say what a new node has, and how many there may be."
        table.mistakes.add(f"{table.where}: `node` and `max_nodes` go together.", hint)
    elif "node" in table.given:
        growth[name] = Growth(_node(table.table("node", _NODE)), nodes)
    table.know("node")
    table.refuse_others()
    return found


def _node(table: Table) -> Resources:
    kind, count, _ = table.parsed(
        "accelerators", ("", 0, 0), lambda raw: parse_accelerators(str(raw)), "a kind and a count", f"Write {_NODE}."
    )
    found = Resources(
        milli_cpus=int(1000 * table.number("cpus", 0, 0, 1e6)),
        memory=table.size("memory", 0),
        accelerators=count,
        accelerator=kind,
        accelerator_memory=table.size("accelerator_memory", 0),
    )
    table.refuse_others()
    return found


def _check_tolerations(table: Table, found: tuple[str, ...]) -> tuple[str, ...]:
    for text in found:
        try:
            toleration(text)
        except Invalid as error:
            table.mistakes.add(f"{table.where}.tolerations: {error.message}", error.hint or "")
    return found
