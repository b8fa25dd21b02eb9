"""Reads and checks the settings of a Kubernetes engine: `[engines.NAME]` of the server's config.toml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from muster.core.errors import ConfigError, Invalid
from muster.core.resources import Resources
from muster.core.suggest import did_you_mean
from muster.core.units import PRIORITIES, InvalidValue, parse_accelerators, parse_duration, parse_size
from muster.engines.describe import Home
from muster.engines.kubernetes.adapter import KubeConfig, KubernetesAdapter
from muster.engines.kubernetes.allow import ANY_SETTINGS, LISTED_SETTINGS, LISTS, Allow, ProjectSettings
from muster.engines.kubernetes.machines import Growth
from muster.engines.kubernetes.settings import FORMS, PORT, TOPOLOGY, KubeSettings, PoolSettings
from muster.engines.kubernetes.toleration import toleration

_TEXTS: Final = (
    "kubeconfig", "context", "namespace", "form", "image", "python", "package", "service_account", "checkpoints",
    "scratch", "shared_memory", "scheduler", "queue", "unlisted_projects",
)  # fmt: skip
_LISTS: Final = ("namespaces", "pull_secrets")
_WORDS: Final = ("labels", "annotations", "topology", "priority_classes")
_TABLES: Final = ("pools", "allow", "projects")
_FLAGS: Final = ("run_as_non_root", "network_policy")
_NUMBERS: Final = ("port", "depth")
_TIMES: Final = ("refuse_after", "node_lost_after")
KEYS: Final = (*_TEXTS, *_LISTS, *_WORDS, *_TABLES, *_FLAGS, *_NUMBERS, *_TIMES)
ALLOW_KEYS: Final = (*LISTS, "pod_settings")
POOL_KEYS: Final = ("selector", "queue", "accelerator", "resource", "tolerations", "node", "max_nodes")
NODE_KEYS: Final = ("cpus", "memory", "accelerators", "accelerator_memory")


def read(name: str, settings: Mapping[str, Any], home: Home) -> KubernetesAdapter:
    """Builds the adapter. Raises ConfigError. Connects to nothing."""
    return KubernetesAdapter(name, read_config(name, settings, home), home)


def read_config(name: str, given: Mapping[str, Any], home: Home) -> KubeConfig:
    where = f"engines.{name}"
    _known(where, given, KEYS)
    values: dict[str, Any] = {key: _text(where, key, given[key]) for key in _TEXTS if key in given}
    values |= {key: _texts(where, key, given[key]) for key in _LISTS if key in given}
    values |= {key: _words(where, key, given[key]) for key in _WORDS if key in given}
    values |= {key: _flag(where, key, given[key]) for key in _FLAGS if key in given}
    values |= {key: _duration(where, key, given[key]) for key in _TIMES if key in given}
    values["topology"] = {**TOPOLOGY, **values.get("topology", {})}
    _check(where, values)
    port = _number(where, "port", given.get("port", PORT), 1024, 65535)
    depth = float(_number(where, "depth", given.get("depth", 2.0), 1.0, 1000.0))
    pools, growth = _pools(where, given.get("pools", {}))
    own = {field.name for field in fields(KubeSettings)}
    kept = {key: values.pop(key) for key in list(values) if key in own and key != "namespace"}
    allow = _allow(f"{where}.allow", given.get("allow", {}))
    projects = _projects(where, given.get("projects", {}))
    made = KubeSettings(
        installation=home.installation,
        key=home.key,
        port=int(port),
        pools=pools,
        allow=allow,
        projects=projects,
        **kept,
    )
    kubeconfig = values.pop("kubeconfig", "")
    if kubeconfig:
        kubeconfig = str(home.folder / Path(kubeconfig).expanduser())  # a relative path starts from the home folder
    return KubeConfig(made, kubeconfig, growth=growth, depth=depth, **values)


def _check(where: str, values: Mapping[str, Any]) -> None:
    form, kept = values.get("form", "job"), values.get("checkpoints", "")
    for level in values.get("priority_classes", {}):
        if level not in PRIORITIES and not (level.isdigit() and int(level) <= 100):
            raise ConfigError(
                f"{where}.priority_classes: {level!r} is no priority.",
                f"Use {', '.join(PRIORITIES)} or a number to 100.",
            )
    others = values.get("unlisted_projects", "default")
    _refuse(where, "unlisted_projects", others, others in ("default", "refuse"), "`default` or `refuse`")
    if form not in FORMS:
        raise ConfigError(f"{where}.form is {form!r}.", f"There are: {', '.join(FORMS)}.")
    if kept and "://" not in kept and not kept.startswith(("pvc:", "hostPath:/")):
        raise ConfigError(
            f"{where}.checkpoints is {kept!r}.", "Write `pvc:NAME`, `hostPath:/FOLDER` or a URL such as s3://bucket/x."
        )


def _allow(where: str, given: Any) -> Allow:
    _refuse(where, "", given, isinstance(given, Mapping), "a table of lists")
    _known(where, given, ALLOW_KEYS)
    values: dict[str, Any] = {key: _texts(where, key, given[key]) for key in LISTS if key in given}
    _tolerations(where, list(values.get("tolerations", ())))
    for path in values.get("host_paths", ()):
        _refuse(where, "host_paths", path, path.startswith("/"), "a whole path")
    chosen = given.get("pod_settings", LISTED_SETTINGS)
    _refuse(where, "pod_settings", chosen, chosen in (LISTED_SETTINGS, ANY_SETTINGS), "`listed` or `any`")
    return Allow(**values, pod_settings=chosen)


def _projects(where: str, given: Any) -> dict[str, ProjectSettings]:
    _refuse(where, "projects", given, isinstance(given, Mapping), f"tables such as [{where}.projects.language]")
    found = {}
    for project, raw in given.items():
        place = f"{where}.projects.{project}"
        _refuse(where, f"projects.{project}", raw, isinstance(raw, Mapping), "a table")
        _known(place, raw, ("namespace", *ALLOW_KEYS))
        namespace = _text(place, "namespace", raw.get("namespace", ""))
        allow = _allow(place, {key: value for key, value in raw.items() if key != "namespace"})
        found[str(project)] = ProjectSettings(namespace, allow)
    return found


def _pools(where: str, given: Any) -> tuple[dict[str, PoolSettings], dict[str, Growth]]:
    pools: dict[str, PoolSettings] = {}
    growth: dict[str, Growth] = {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}.pools is {given!r}.", f"Write tables such as [{where}.pools.h100].")
    for name, raw in given.items():
        place = f"{where}.pools.{name}"
        if not isinstance(raw, Mapping):
            raise ConfigError(f"{place} is {raw!r}; a table is expected.", f"Write [{place}].")
        _known(place, raw, POOL_KEYS)
        values: dict[str, Any] = {
            key: _text(place, key, raw[key]) for key in ("queue", "accelerator", "resource") if key in raw
        }
        values["accelerator"] = values.get("accelerator", "").upper()
        values["selector"] = _words(place, "selector", raw.get("selector", {}))
        values["tolerations"] = _tolerations(place, raw.get("tolerations", []))
        pools[str(name)] = PoolSettings(**values)
        if "node" in raw or "max_nodes" in raw:
            growth[str(name)] = _growth(place, raw)
    return pools, growth


def _growth(where: str, raw: Mapping[str, Any]) -> Growth:
    if "node" not in raw or "max_nodes" not in raw:
        raise ConfigError(
            f"{where}: `node` and `max_nodes` go together.", "Say what a new node has, and how many there may be."
        )
    node = raw["node"]
    if not isinstance(node, Mapping):
        raise ConfigError(
            f"{where}.node is {node!r}.", 'Write node = {cpus = 96, memory = "960GB", accelerators = "H100:8"}.'
        )
    _known(f"{where}.node", node, NODE_KEYS)
    try:
        kind, count, _ = parse_accelerators(str(node.get("accelerators", "0")))
        made = Resources(
            milli_cpus=int(1000 * float(node.get("cpus", 0))),
            memory=parse_size(str(node["memory"])) if "memory" in node else 0,
            accelerators=count,
            accelerator=kind,
            accelerator_memory=parse_size(str(node["accelerator_memory"])) if "accelerator_memory" in node else 0,
        )
    except (InvalidValue, ValueError) as error:
        raise ConfigError(f"{where}.node is {dict(node)!r}: {error}.", 'Write cpus = 96, memory = "960GB".') from error
    return Growth(made, int(_number(where, "max_nodes", raw["max_nodes"], 1, 100_000)))


def _known(where: str, given: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in given:
        if key not in keys:
            raise ConfigError(f"{where}: `{key}` is not a setting.", did_you_mean(str(key), keys))


def _text(where: str, key: str, value: Any) -> str:
    _refuse(where, key, value, isinstance(value, str), "a text")
    return str(value)


def _texts(where: str, key: str, value: Any) -> tuple[str, ...]:
    fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
    _refuse(where, key, value, fits, 'a list such as ["a", "b"]')
    return tuple(value)


def _words(where: str, key: str, value: Any) -> dict[str, str]:
    fits = isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values())
    _refuse(where, key, value, fits, 'a table such as {"key" = "value"}')
    return dict(value)


def _flag(where: str, key: str, value: Any) -> bool:
    _refuse(where, key, value, isinstance(value, bool), "`true` or `false`")
    return bool(value)


def _number(where: str, key: str, value: Any, least: float, most: float) -> float:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
    _refuse(where, key, value, fits, f"a number from {least:g} to {most:g}")
    return float(value)


def _duration(where: str, key: str, value: Any) -> float:
    try:
        return parse_duration(str(value))
    except InvalidValue:
        raise ConfigError(
            f"{where}.{key} is {value!r}; a duration is expected.", "Write it like `90s` or `5m`."
        ) from None


def _tolerations(where: str, value: Any) -> tuple[str, ...]:
    found = _texts(where, "tolerations", value)
    for text in found:
        try:
            toleration(text)
        except Invalid as error:
            raise ConfigError(f"{where}.tolerations: {error.message}", error.hint) from error
    return found


def _refuse(where: str, key: str, value: Any, fits: bool, wanted: str) -> None:
    if not fits:
        place = f"{where}.{key}" if key else where
        raise ConfigError(f"{place} is {value!r}; {wanted} is expected.", "Correct it in config.toml.")
