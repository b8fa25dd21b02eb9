"""Renders the pod of one worker: its input, its resources and where it may run; the same for every worker of a gang."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from muster.core.errors import Invalid
from muster.core.resources import WHOLE
from muster.engines.base import GangLaunch
from muster.engines.kubernetes.render_options import KAI, VOLCANO, Options
from muster.engines.kubernetes.settings import (
    CHECKPOINTS_FOLDER,
    CONTAINER,
    GANG_FOLDER,
    PACKAGE_FILE,
    PACKAGE_FOLDER,
    SCRATCH_FOLDER,
    KubeSettings,
)

Doc = dict[str, Any]

GRACE: Final = 15  # seconds beyond the job's own grace, for the launcher's final report to the server
KUEUE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_NEAR: Final = "kueue.x-k8s.io/podset-preferred-topology"
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
KAI_QUEUE: Final = "kai.scheduler/queue"
KAI_FRACTION: Final = "gpu-fraction"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  (where it is in every Linux container)
_READABLE: Final = 0o444  # by whatever user the image runs as; no other user is in the container
# The key by which a list of the pod is merged, as in the API's strategic merge; other lists are replaced.
MERGE_KEYS: Final = {
    "containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath",
    "imagePullSecrets": "name", "ports": "containerPort",
}  # fmt: skip


def pod_template(
    gang: GangLaunch, settings: KubeSettings, options: Options, name: str, secret: str, package: str,
    labels: Mapping[str, str], env: Sequence[Doc],
) -> Doc:  # fmt: skip
    """`name`, `secret`, `package`: names of PodGroup, Secret, ConfigMap.
    `env`: the variables with the worker number."""
    spec = {
        "restartPolicy": "Never",  # a restart is a new attempt, with its own objects
        "terminationGracePeriodSeconds": math.ceil(gang.stop_grace) + GRACE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            **({"runAsNonRoot": True} if settings.run_as_non_root else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **_where(gang, options, labels),
        **({"serviceAccountName": options.service_account} if options.service_account else {}),
        **({"priorityClassName": options.priority_class} if options.priority_class else {}),
        **({"imagePullSecrets": [{"name": one} for one in options.pull_secrets]} if options.pull_secrets else {}),
        "containers": [_container(gang, settings, options, env)],
        "volumes": _volumes(settings, options, secret, package),
    }
    annotations = {**options.annotations, **_annotations(gang, options, name)}
    own = {KAI_QUEUE: options.queue} if options.scheduler == KAI and options.queue else {}
    metadata = {"labels": {**options.labels, **own, **labels}, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": merged(spec, options.pod)}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Doc:
    """`over` merged into `base`: mappings are merged, lists of named items by their names, the rest is replaced."""
    made = dict(base)
    for key, value in over.items():
        old = made.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            made[key] = merged(old, value)
        elif isinstance(old, Mapping) or (isinstance(old, list) and not isinstance(value, (list, tuple))):
            kind = "a list" if isinstance(old, list) else "a mapping"
            raise Invalid(f"kubernetes.pod: {key} is {value!r}, {kind} is expected.", "Correct it, or leave it out.")
        elif key in MERGE_KEYS and isinstance(old, list):
            made[key] = _merged_list(old, value, MERGE_KEYS[key])
        else:
            made[key] = value
    return made


def resources_of(gang: GangLaunch, options: Options) -> Doc:
    """Requests and limits of one worker. Idle CPUs are shared; memory and accelerators are exclusive."""
    ask = gang.ask
    own = {"memory": str(ask.memory)} if ask.memory else {}
    if ask.accelerators and ask.share == WHOLE:
        own[options.resource] = str(ask.accelerators)
    cpus = f"{ask.milli_cpus // 1000}" if ask.milli_cpus % 1000 == 0 else f"{ask.milli_cpus}m"
    asked = {**({"cpu": cpus} if ask.milli_cpus else {}), **own}
    return {**({"requests": asked} if asked else {}), **({"limits": own} if own else {})}


def _container(gang: GangLaunch, settings: KubeSettings, options: Options, env: Sequence[Doc]) -> Doc:
    made: Doc = {
        "name": CONTAINER,
        "image": options.image,
        # The user's command is in the Secret: it is never part of a command line, whatever it contains.
        "command": [settings.python, f"{PACKAGE_FOLDER}/{PACKAGE_FILE}", "kubernetes", GANG_FOLDER],
        "env": [{"name": "MUSTER_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, *env],
        "volumeMounts": _mounts(settings, options),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    wants = resources_of(gang, options)
    return {**made, "resources": wants} if wants else made


def _where(gang: GangLaunch, options: Options, labels: Mapping[str, str]) -> Doc:
    tolerations = [dict(one) for one in options.tolerations]
    if gang.ask.accelerators and not any(one["key"] == options.resource for one in tolerations):
        tolerations.append({"key": options.resource, "operator": "Exists", "effect": "NoSchedule"})
    made: Doc = {}
    if options.scheduler:
        made["schedulerName"] = options.scheduler
    if options.node_selector:
        made["nodeSelector"] = dict(options.node_selector)
    if tolerations:
        made["tolerations"] = tolerations
    own = {"labelSelector": {"matchLabels": dict(labels)}}
    affinity: Doc = {}
    if (options.topology or options.near) and not options.kueue:
        affinity["podAffinity"] = _together(own, options)
    if len(gang.seats) > 1:
        # Prefers one node per pod; not required, because two small pods on one node work too.
        apart = {"weight": 100, "podAffinityTerm": {**own, "topologyKey": "kubernetes.io/hostname"}}
        affinity["podAntiAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}
    return {**made, "affinity": affinity} if affinity else made


def _together(own: Doc, options: Options) -> Doc:
    made: Doc = {}
    if options.topology:
        made["requiredDuringSchedulingIgnoredDuringExecution"] = [{**own, "topologyKey": options.topology}]
    if options.near:
        wish = {"weight": 100, "podAffinityTerm": {**own, "topologyKey": options.near}}
        made["preferredDuringSchedulingIgnoredDuringExecution"] = [wish]
    return made


def _annotations(gang: GangLaunch, options: Options, name: str) -> dict[str, str]:
    made = {}
    if options.kueue and options.topology:  # Kueue accepts only one of the two
        made[KUEUE_TOPOLOGY] = options.topology
    elif options.kueue and options.near:
        made[KUEUE_NEAR] = options.near
    if options.scheduler == VOLCANO:
        made[VOLCANO_GROUP] = name
    if options.scheduler == KAI and gang.ask.accelerators and gang.ask.share < WHOLE:
        made[KAI_FRACTION] = f"{gang.ask.share / WHOLE:g}"
    return made


def _mounts(settings: KubeSettings, options: Options) -> list[Doc]:
    made: list[Doc] = [
        {"name": "gang", "mountPath": GANG_FOLDER, "readOnly": True},
        {"name": "package", "mountPath": PACKAGE_FOLDER, "readOnly": True},
        {"name": "scratch", "mountPath": SCRATCH_FOLDER},
        {"name": "shared-memory", "mountPath": SHARED_MEMORY},
    ]
    if _kept_in_volume(settings):
        made.append({"name": "checkpoints", "mountPath": CHECKPOINTS_FOLDER})
    return made + [{"name": f"mount-{i}", "mountPath": path} for i, path in enumerate(options.volumes)]


def _volumes(settings: KubeSettings, options: Options, secret: str, package: str) -> list[Doc]:
    memory = {"medium": "Memory", **({"sizeLimit": options.shared_memory} if options.shared_memory else {})}
    made: list[Doc] = [
        {"name": "gang", "secret": {"secretName": secret, "defaultMode": _READABLE}},
        {"name": "package", "configMap": {"name": package, "defaultMode": _READABLE}},
        {"name": "scratch", "emptyDir": {"sizeLimit": settings.scratch} if settings.scratch else {}},
        {"name": "shared-memory", "emptyDir": memory},
    ]
    if _kept_in_volume(settings):
        made.append({"name": "checkpoints", **_source(settings.checkpoints, "checkpoints of the engine's settings")})
    return made + [
        {"name": f"mount-{i}", **_source(text, f"kubernetes.volumes at {path}")}
        for i, (path, text) in enumerate(options.volumes.items())
    ]


def _kept_in_volume(settings: KubeSettings) -> bool:
    return bool(settings.checkpoints) and "://" not in settings.checkpoints


def _source(text: str, where: str) -> Doc:
    kind, _, what = text.partition(":")
    if kind == "emptyDir" and not what:
        return {"emptyDir": {}}
    if kind == "pvc" and what:
        return {"persistentVolumeClaim": {"claimName": what}}
    if kind == "hostPath" and what.startswith("/"):
        return {"hostPath": {"path": what}}
    if kind == "secret" and what:
        return {"secret": {"secretName": what}}
    raise Invalid(f"{where}: got {text!r}.", "Write `pvc:NAME`, `hostPath:/FOLDER`, `secret:NAME` or `emptyDir`.")


def _merged_list(base: list[Any], over: Sequence[Any], key: str) -> list[Any]:
    named = {one[key]: one for one in base}
    for one in over:
        name = one.get(key) if isinstance(one, Mapping) else None
        if not isinstance(name, (str, int)):
            raise Invalid(f"kubernetes.pod: {one!r} has no `{key}`.", "Lists of the pod are merged by it.")
        named[name] = merged(named.get(name, {}), one)
    return list(named.values())
