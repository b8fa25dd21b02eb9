"""The checks of `muster doctor --engine` for Kubernetes, each with a hint."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from muster.core.errors import EngineError
from muster.engines.base import Finding
from muster.engines.describe import Home
from muster.engines.kubernetes import machines
from muster.engines.kubernetes.access import Access, find_access
from muster.engines.kubernetes.client import NAMESPACES, NODES, REVIEWS, KubeClient, KubeError
from muster.engines.kubernetes.faults import ROLES
from muster.engines.kubernetes.link import KUEUE
from muster.engines.kubernetes.settings import KubeSettings
from muster.engines.package import worker_archive

MAP_BYTES: Final = 1 << 20  # the size limit of a ConfigMap
# The rights that the engine needs in a namespace: group, kind, verbs. docs/kubernetes.md has the same list.
NEEDED: Final = (
    ("", "pods", ("list", "watch", "delete")),
    ("", "secrets", ("create", "patch", "delete")),
    ("", "configmaps", ("create", "patch")),
    ("", "services", ("create", "patch", "delete")),
    ("batch", "jobs", ("get", "list", "watch", "create", "patch", "delete")),
)
FENCING: Final = (("networking.k8s.io", "networkpolicies", ("create", "patch", "delete")),)  # with `network_policy`
WIDE: Final = (("", "nodes", ("list", "watch")),)
USEFUL: Final = (
    ("", "nodes", "patch", "`muster nodes drain` can't cordon"),
    ("", "pods", "list", "what others use of a node is not shown"),
)
_SEE: Final = ROLES


def diagnose(
    kubeconfig: str, context: str, settings: KubeSettings, namespaces: Sequence[str], home: Home
) -> Iterator[Finding]:
    """Runs the checks. The first of `namespaces` is the engine's own, "" for the context's."""
    try:
        access = find_access(kubeconfig, context)
    except EngineError as error:
        yield Finding("fail", "credentials", error.message, error.hint)
        return
    yield Finding("ok", "credentials", f"{access.where}, for {access.server}")
    client = KubeClient(access)
    try:
        yield from _cluster(client, access, settings, namespaces)
    except EngineError as error:
        yield Finding("fail", "the API", error.message, error.hint)
        return
    finally:
        client.close()
    yield from _worker_side(home)


def _cluster(
    client: KubeClient, access: Access, settings: KubeSettings, namespaces: Sequence[str]
) -> Iterator[Finding]:
    version = client.get("/version").get("gitVersion", "?")
    yield Finding("ok", "the API", f"answers, Kubernetes {version}")
    own = [name or access.namespace for name in namespaces]
    for namespace in dict.fromkeys(own):
        yield _namespace(client, namespace)
        yield from _rights(client, namespace, (*NEEDED, *(FENCING if settings.network_policy else ())))
    yield from _wide_rights(client)
    yield from _nodes(client, settings)
    yield from _queues(client, settings, own[0])


def _namespace(client: KubeClient, name: str) -> Finding:
    try:
        client.get(NAMESPACES.path(name=name))
    except KubeError as error:
        if error.status == 404:
            return Finding("fail", "namespace", f"there is no namespace {name}", f"`kubectl create namespace {name}`.")
        if error.status != 403:
            raise
        return Finding("ok", "namespace", f"{name} (which we may not look at, and need not)")
    return Finding("ok", "namespace", name)


def _rights(
    client: KubeClient, namespace: str, needed: Sequence[tuple[str, str, tuple[str, ...]]]
) -> Iterator[Finding]:
    missing = [
        f"{verb} {kind}"
        for group, kind, verbs in needed
        for verb in verbs
        if not _may(client, namespace, group, kind, verb)
    ]
    if missing:
        yield Finding("fail", "rights", f"in {namespace} it may not {', '.join(missing)}", _SEE)
    else:
        yield Finding("ok", "rights", f"all that is needed in {namespace}")
    for kind in ("secrets", "services"):
        if not _may(client, namespace, "", kind, "deletecollection"):
            without = f"in {namespace} it may not deletecollection {kind}: what a broken hand-over left is not swept up"
            yield Finding("warn", "rights", without, _SEE)


def _wide_rights(client: KubeClient) -> Iterator[Finding]:
    missing = [
        f"{verb} {kind}" for group, kind, verbs in WIDE for verb in verbs if not _may(client, "", group, kind, verb)
    ]
    if missing:
        yield Finding("fail", "rights", f"in the cluster it may not {', '.join(missing)}", _SEE)
    for group, kind, verb, without in USEFUL:
        if not _may(client, "", group, kind, verb):
            yield Finding("warn", "rights", f"in the cluster it may not {verb} {kind}: {without}", _SEE)


def _may(client: KubeClient, namespace: str, group: str, kind: str, verb: str) -> bool:
    asked = {"verb": verb, "group": group, "resource": kind, **({"namespace": namespace} if namespace else {})}
    body = {
        "apiVersion": REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool(client.create(REVIEWS.path(), body).get("status", {}).get("allowed"))


def _nodes(client: KubeClient, settings: KubeSettings) -> Iterator[Finding]:
    nodes, _ = client.list(NODES.path(), {})
    pools = settings.pools or machines.discover(nodes)
    for pool, wanted in pools.items():
        own = [node for node in nodes if machines.suits(node, wanted)]
        ready = sum(not machines.is_lost(node) for node in own)
        detail = f"{pool}: {len(own)} nodes, {ready} ready" + (f", {wanted.accelerator}" if wanted.accelerator else "")
        if ready:
            yield Finding("ok", "pool", detail)
        else:
            yield Finding("warn", "pool", detail, f"See its selector {dict(wanted.selector)} and `kubectl get nodes`.")
    if not pools:
        yield Finding("fail", "pool", "no node takes pods of ours", "Set [engines.NAME.pools.POOL] with tolerations.")


def _queues(client: KubeClient, settings: KubeSettings, namespace: str) -> Iterator[Finding]:
    queues = {settings.queue, *(pool.queue for pool in settings.pools.values())} - {""}
    if not queues or settings.scheduler in ("volcano", "kai-scheduler"):
        return
    version = client.served(KUEUE)
    if not version:
        hint = "Install Kueue, or leave `queue` out."
        yield Finding("fail", "Kueue", "queues are set, and the cluster has no Kueue", hint)
        return
    for queue in sorted(queues):
        try:
            client.get(f"/apis/{version}/namespaces/{namespace}/localqueues/{queue}")
            yield Finding("ok", "Kueue", f"{version}, LocalQueue {queue}")
        except KubeError as error:
            there = error.status == 404
            hint = "Make the LocalQueue, or correct `queue`." if there else _SEE
            said = f"there is no LocalQueue {queue} in {namespace}" if there else error.message
            yield Finding("fail" if there else "warn", "Kueue", said, hint)


def _worker_side(home: Home) -> Iterator[Finding]:
    size = len(worker_archive()) * 4 // 3  # as base64
    if size < MAP_BYTES:
        yield Finding("ok", "package", f"the launcher takes {size // 1024} KiB of a ConfigMap's 1024")
    else:
        yield Finding(
            "fail", "package", f"the launcher takes {size} bytes, a ConfigMap holds {MAP_BYTES}", "Report it."
        )
    urls = list(home.urls())
    if not urls:
        yield Finding("warn", "address", "the server is not running: where pods reach it is not known yet")
    for url in urls:
        if _is_here_only(url):
            hint = 'Set advertise = "http://HOST:PORT" in config.toml to what pods reach the server by.'
            yield Finding("warn", "address", f"pods are told {url}, which is the pod itself", hint)
        else:
            yield Finding("ok", "address", f"pods are told {url}")


def _is_here_only(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
