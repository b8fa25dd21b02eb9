"""What the stand-ins of controllers do to objects: conditions, finalizers, deletions."""

from __future__ import annotations

from typing import Any

from rigs.kube_store import ApiError, Object, Store, now_text


def condition(kind: str, reason: str, message: str, status: str = "True") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now_text()}


def has(item: Object, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in (item.get("status") or {}).get("conditions") or [])


def mark(item: Object, told: Object) -> None:
    """Sets a condition; its time changes when its status does."""
    found = item["status"].setdefault("conditions", [])
    for index, before in enumerate(found):
        if before["type"] == told["type"]:
            same = before["status"] == told["status"]
            found[index] = {**told, "lastTransitionTime": before.get("lastTransitionTime")} if same else told
            return
    found.append(told)


def set_conditions(store: Store, item: Object, *conditions: Object) -> None:
    edit(store, item, lambda i: [mark(i, one) for one in conditions])


def edit(store: Store, item: Object, change: Any, manager: str = "kube-controller-manager") -> None:
    about = item["metadata"]
    store.edit(item["kind"], about.get("namespace", ""), about["name"], change, manager)


def delete(store: Store, item: Object, options: Object | None = None) -> None:
    about = item["metadata"]
    if about.get("deletionTimestamp") and not options:
        return
    try:
        store.delete(
            item["kind"],
            about.get("namespace", ""),
            about["name"],
            {"preconditions": {"uid": about["uid"]}, **(options or {})},
        )
    except ApiError:
        pass  # it has gone by itself


def unfinalize(store: Store, item: Object, name: str) -> None:
    def change(found: Object) -> None:
        left = [one for one in found["metadata"].get("finalizers") or [] if one != name]
        found["metadata"]["finalizers"] = left
        if not left:
            del found["metadata"]["finalizers"]

    if name in (item["metadata"].get("finalizers") or []):
        edit(store, item, change)
