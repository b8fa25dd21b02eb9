"""Checks of nodes on Kubernetes: a Job with one pod on the node, which leaves its result as its termination message.

The pod is made as those of gangs are, from the engine's settings, but without a Secret. It is bound to the node by its
name and tolerates every taint, as a DaemonSet's pod does, so that nodes that are drained can be checked too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from muster.core.errors import EngineError, Invalid
from muster.core.resources import Resources
from muster.engines.base import GangLaunch, Seat
from muster.engines.kubernetes import machines, reasons
from muster.engines.kubernetes.client import KubeClient
from muster.engines.kubernetes.link import JOBS, Link
from muster.engines.kubernetes.render import package_name
from muster.engines.kubernetes.render_forms import QUEUE_LABEL
from muster.engines.kubernetes.render_options import Options, options_of
from muster.engines.kubernetes.render_pod import VOLCANO_GROUP, Doc, pod_template
from muster.engines.kubernetes.settings import (
    CHECK,
    INSTALLATION,
    MANAGED_BY,
    MANAGER,
    PACKAGE_FILE,
    PACKAGE_FOLDER,
    SCRATCH_FOLDER,
    KubeSettings,
)
from muster.engines.node_check import LONGEST, Progress, memory_of, options, run_check
from muster.engines.package import worker_archive

MILLI_CPUS: Final = 100
KEPT: Final = 60  # seconds after which the cluster removes one that has ended, if the server was killed
TERMINATION: Final = "/dev/termination-log"
NODE_NOTE: Final = "muster.dev/node"  # annotation
_VOLUMES: Final = ("package", "scratch", "shared-memory")


class KubernetesChecks:
    """`run` is called by threads of the server's, `clear` by the engine's."""

    def __init__(self) -> None:
        self._names: set[str] = set()  # of Jobs that somebody waits for

    def run(self, link: Link, settings: KubeSettings, node: str) -> Sequence[Mapping[str, Any]]:
        machine = link.node(node)
        if machine is None:
            raise EngineError(f"The cluster has no node {node!r} now.", "See `muster nodes`.")
        if why := machines.is_lost(machine):
            raise EngineError(f"{node} can't be checked: {why}.", f"See `kubectl describe node {node}`.")
        pool = next((name for name, one in settings.pools.items() if machines.suits(machine, one)), "")
        resource = settings.pools[pool].resource if pool else ""
        devices = int(machines.quantity(machine["status"]["allocatable"].get(resource, 0)))
        use = link.use()
        held = use[node].all.get(resource, 0) if use is not None and node in use else 0

        def start(asked: int) -> _KubernetesCheck:
            body = check_job(f"muster-check-{os.urandom(8).hex()}", node, settings, pool, asked, devices)
            return _KubernetesCheck(link, body, self._names)

        return run_check(node, start, max(0, devices - int(held)))

    def clear(self, link: Link) -> None:
        """Deletes checks that nobody waits for: those of a server that was killed."""
        for item in link.checks():
            about = item["metadata"]
            if about["name"] not in self._names and not about.get("deletionTimestamp"):
                _delete(link.client, about["namespace"], about["name"])


class _KubernetesCheck:
    """See `muster.engines.node_check.PlacedCheck`. Its Job is created when it is made. `names`: of the living ones."""

    def __init__(self, link: Link, body: Doc, names: set[str]) -> None:
        self._link, self._names = link, names
        self._name, self._namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        names.add(self._name)
        try:
            link.client.apply(body)
        except BaseException:
            self.remove()
            raise

    def progress(self) -> Progress:
        pod = self._link.check_pod(self._name)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return Progress("waiting")
        if reasons.has_ended(pod):
            return Progress("ended", reasons.last_message(pod))
        if reasons.is_up(pod):
            return Progress("running")
        waits = reasons.pod_wait(pod) or (reasons.start_trouble(pod) or ("", ""))[:2]
        return Progress("waiting", waits[1])

    def remove(self) -> None:
        _delete(self._link.client, self._namespace, self._name)
        self._names.discard(self._name)


def check_job(name: str, node: str, settings: KubeSettings, pool: str, asked: int, devices: int) -> Doc:
    """The Job. The cluster itself ends and removes it if nobody else does."""
    kind = settings.pools[pool].accelerator if pool else ""
    gang = GangLaunch(
        job=name, attempt=1, seats=[Seat(node)], nproc=1, run="", workdir="", envs={}, secrets=(), token="",
        checkpoint_keep=0, checkpoint_every=None, max_duration=None, memory=None, stop_grace=0.0, pool=pool,
        ask=Resources(MILLI_CPUS, memory_of(asked), asked, kind if asked else ""),
    )  # fmt: skip
    try:
        chosen = options_of(gang, settings)
    except Invalid as error:
        raise EngineError(f"{node} can't be checked: {error.message}", error.hint) from error
    labels = {MANAGED_BY: MANAGER, INSTALLATION: settings.installation, CHECK: name}
    package = package_name(settings, worker_archive())
    template = pod_template(gang, settings, chosen, name, "", package, labels, [])
    _pin(template, node, settings, chosen, options(asked, devices))
    queue = {QUEUE_LABEL: chosen.queue} if chosen.kueue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": chosen.namespace,
            "labels": {**chosen.labels, **labels, **queue},
            "annotations": {NODE_NOTE: node},
        },
        "spec": {
            **({"suspend": True} if chosen.kueue else {}),
            "completionMode": "Indexed",
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(LONGEST),
            "ttlSecondsAfterFinished": KEPT,
            "template": template,
        },
    }


def _pin(template: Doc, node: str, settings: KubeSettings, chosen: Options, words: Sequence[str]) -> None:
    """Binds the pod to the node, and has it run the checks alone."""
    spec = template["spec"]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spec["tolerations"] = [{"operator": "Exists"}]
    spec.pop("nodeSelector", None)
    spec["volumes"] = [one for one in spec["volumes"] if one["name"] in _VOLUMES]
    (container,) = spec["containers"]
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] in _VOLUMES]
    program = [settings.python, f"{PACKAGE_FOLDER}/{PACKAGE_FILE}", "check", SCRATCH_FOLDER]
    container["command"] = [*program, f"--result={TERMINATION}", *words]
    template["metadata"].get("annotations", {}).pop(VOLCANO_GROUP, None)  # there is no such PodGroup


def _delete(client: KubeClient, namespace: str, name: str) -> None:
    with suppress(EngineError):  # then the next look deletes it, or the cluster itself
        client.delete(JOBS.path(namespace, name))
