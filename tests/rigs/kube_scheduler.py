"""A stand-in for the scheduler: filters nodes as the real one does, and takes the one with most CPUs left."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from muster.engines.kubernetes.machines import pod_requests, quantity
from rigs.kube_edit import condition, edit, mark
from rigs.kube_select import matches_labels
from rigs.kube_store import Object, Store

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def schedule(store: Store) -> None:
    pods = store.list("Pod")
    pending = [p for p in pods if not p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")]
    if not pending:  # as in most rounds: there is one whenever anything has changed
        return
    nodes = store.list("Node")
    free = {node["metadata"]["name"]: _room(node) for node in nodes}
    placed = [p for p in pods if p["spec"].get("nodeName") and p["status"].get("phase") not in ("Succeeded", "Failed")]
    for pod in placed:
        _take(free.get(pod["spec"]["nodeName"], {}), pod)
    for pod in sorted(pending, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"])):
        why: dict[str, int] = {}
        fit = [
            n
            for n in nodes
            if not (said := _unfit(n, pod, free, placed, nodes)) or why.update({said: why.get(said, 0) + 1})
        ]
        if fit:
            best = max(fit, key=lambda n: (free[n["metadata"]["name"]].get("cpu", Decimal(0)), n["metadata"]["name"]))
            name = best["metadata"]["name"]
            _take(free[name], pod)
            placed.append({**pod, "spec": {**pod["spec"], "nodeName": name}})
            edit(
                store,
                pod,
                lambda p, name=name: (p["spec"].update(nodeName=name), mark(p, condition("PodScheduled", "", ""))),
            )
        else:
            told = ", ".join(f"{number} {said}" for said, number in sorted(why.items()))
            message = f"0/{len(nodes)} nodes are available: {told}."
            edit(store, pod, lambda p, m=message: mark(p, condition("PodScheduled", "Unschedulable", m, "False")))


def _unfit(node: Object, pod: Object, free: dict[str, Any], placed: list[Object], nodes: list[Object]) -> str:
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if node["spec"].get("unschedulable") and not _tolerates(spec.get("tolerations") or [], UNSCHEDULABLE):
        return "node(s) were unschedulable"
    if not _named(spec, node["metadata"]["name"]):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] != "PreferNoSchedule" and not _tolerates(spec.get("tolerations") or [], taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return "node(s) didn't match Pod's node affinity/selector"
    for name, amount in pod_requests(spec).items():
        if Decimal(amount) > free[node["metadata"]["name"]].get(name, Decimal(0)):
            return f"Insufficient {name}"
    where = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in nodes}
    anti = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in anti or []:
        selector = ",".join(f"{k}={v}" for k, v in term["labelSelector"]["matchLabels"].items())
        key = term["topologyKey"]
        near = [p for p in placed if where.get(p["spec"]["nodeName"], {}).get(key) == labels.get(key)]
        if any(matches_labels(p, selector) for p in near):
            return "node(s) didn't match pod anti-affinity rules"
    return ""


def _named(spec: Object, name: str) -> bool:
    """Whether a required affinity for the names of nodes, if there is one, has this one."""
    wanted = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = wanted["nodeSelectorTerms"] if wanted else []
    fields = [field for term in terms for field in term.get("matchFields") or []]
    return all(name in field["values"] for field in fields if field["key"] == "metadata.name")


def _tolerates(tolerations: list[Object], taint: Object) -> bool:
    return any(
        (not t.get("key") or t["key"] == taint["key"])
        and (t.get("operator") == "Exists" or t.get("value", "") == taint.get("value", ""))
        and t.get("effect") in (None, "", taint["effect"])
        for t in tolerations
    )


def _room(node: Object) -> dict[str, Decimal]:
    return {name: quantity(amount) for name, amount in node["status"]["allocatable"].items()}


def _take(free: dict[str, Decimal], pod: Object) -> None:
    for name, amount in pod_requests(pod["spec"]).items():
        free[name] = free.get(name, Decimal(0)) - Decimal(amount)
