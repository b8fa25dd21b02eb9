"""The objects of a stand-in API server and the real one's rules for them: versions, conflicts, finalizers, grace."""

from __future__ import annotations

import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rigs import kube_apply
from rigs.kube_apply import copied
from rigs.kube_select import matches_fields, matches_labels

Object = dict[str, Any]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")


@dataclass(frozen=True)
class Kind:
    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    custom: bool = False  # within a list, custom ones say what they are
    status: bool = True  # has a status of its own

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


KINDS = [
    Kind("v1", "Namespace", "namespaces", namespaced=False),
    Kind("v1", "Node", "nodes", namespaced=False),
    Kind("v1", "Pod", "pods"),
    Kind("v1", "Service", "services"),
    Kind("v1", "Secret", "secrets", status=False),
    Kind("v1", "ConfigMap", "configmaps", status=False),
    Kind("v1", "Event", "events", status=False),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", status=False),
    Kind("v1", "ResourceQuota", "resourcequotas"),
    Kind("batch/v1", "Job", "jobs"),
    Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", custom=True),
    Kind("kueue.x-k8s.io/v1beta1", "Workload", "workloads", custom=True),
    Kind("kueue.x-k8s.io/v1beta1", "LocalQueue", "localqueues", custom=True),
]
BY_NAME = {kind.kind: kind for kind in KINDS}
# What may not be changed once it is there.
IMMUTABLE = {
    "Job": [("spec", "template"), ("spec", "completions"), ("spec", "selector"), ("spec", "completionMode")],
}


class ApiError(Exception):
    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> Object:
        """The server leaves out what it has nothing to say of."""
        more = {"reason": self.reason, "details": self.details}
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            **{name: value for name, value in more.items() if value}, "code": self.code,
        }  # fmt: skip


@dataclass
class Change:
    version: int
    type: str
    kind: str
    item: Object
    before: Object | None


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """All methods may be called from any thread. What they give is not to be changed: what is stored never is."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 1
        self.oldest = 1  # versions before this are gone
        self.items: dict[str, dict[tuple[str, str], Object]] = {kind.kind: {} for kind in KINDS}
        self.changes: list[Change] = []
        self.admit: list[Callable[[Object], None]] = []  # may raise ApiError for what is to be made

    def get(self, kind: str, namespace: str, name: str) -> Object:
        with self.lock:
            found = self.items[kind].get((namespace, name))
            if found is None:
                raise ApiError(404, "NotFound", f'{BY_NAME[kind].plural} "{name}" not found')
            return found

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        with self.lock:
            return self.items[kind].get((namespace, name))

    def list(self, kind: str, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        with self.lock:
            return [
                item
                for (space, _), item in sorted(self.items[kind].items())
                if (not namespace or space == namespace)
                and matches_labels(item, labels)
                and matches_fields(item, fields)
            ]

    def create(self, item: Object, manager: str = "unknown", dry: bool = False, fields: bool = True) -> Object:
        item = copied(item)
        kind, about = BY_NAME[item["kind"]], item.setdefault("metadata", {})
        with self.lock:
            if kind.namespaced and ("", about.get("namespace", "")) not in self.items["Namespace"]:
                raise ApiError(404, "NotFound", f'namespaces "{about.get("namespace", "")}" not found')
            if not about.get("name") and about.get("generateName"):
                about["name"] = about["generateName"][:58] + secrets.token_hex(3)[:5]
            if not _NAME.match(about.get("name", "")) or len(about["name"]) > 253:
                raise ApiError(422, "Invalid", f'metadata.name: Invalid value: "{about.get("name")}"')
            key = (about.get("namespace", ""), about["name"])
            if key in self.items[kind.kind]:
                raise ApiError(409, "AlreadyExists", f'{kind.plural} "{about["name"]}" already exists')
            for check in self.admit:
                check(item)
            if fields:
                item = kube_apply.changed_by(None, item, manager, now_text())
                about = item["metadata"]
            about.update(uid=str(uuid.uuid4()), creationTimestamp=now_text(), generation=1)
            for name in ("deletionTimestamp", "resourceVersion"):
                about.pop(name, None)
            if kind.status and kind.kind not in ("Node",):
                item["status"] = {"phase": "Pending"} if kind.kind == "Pod" else {}
            return self._store("ADDED", item, None, dry)

    def update(self, item: Object, manager: str = "unknown", subresource: str = "", dry: bool = False) -> Object:
        """A whole object, or its status alone. Conflicts where another has written meanwhile."""
        kind, about = BY_NAME[item["kind"]], item["metadata"]
        with self.lock:
            before = self.get(kind.kind, about.get("namespace", ""), about["name"])
            given = about.get("resourceVersion")
            if given and given != before["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", "the object has been modified; please apply your changes to the latest")
            return self._write(kind, before, copied(item), manager, subresource, dry)

    def edit(
        self, kind: str, namespace: str, name: str, change: Callable[[Object], None], manager: str = "cluster"
    ) -> None:
        """For controllers: whatever it is now, changed; nothing for one that has gone."""
        with self.lock:
            before = self.find(kind, namespace, name)
            if before is None:
                return
            after = copied(before)
            change(after)
            if after != before:
                self._write(BY_NAME[kind], before, after, manager, "all", False)

    def patch(
        self, kind: Kind, namespace: str, name: str, body: Object, manager: str, subresource: str, dry: bool
    ) -> Object:
        with self.lock:
            before = self.get(kind.kind, namespace, name)
            after = copied(kube_apply.merge_patch(before, body))
            given = body.get("metadata", {}).get("resourceVersion")
            if given and given != before["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", "the object has been modified")
            return self._write(kind, before, after, manager, subresource, dry)

    def apply(
        self, kind: Kind, namespace: str, name: str, body: Object, manager: str, force: bool, dry: bool
    ) -> Object:
        with self.lock:
            before = self.find(kind.kind, namespace, name)
            if body.get("metadata", {}).get("managedFields"):
                raise ApiError(400, "BadRequest", "metadata.managedFields must be nil")
            try:
                after = kube_apply.apply(before, body, manager, force, now_text())
            except kube_apply.FieldConflict as conflict:
                told = "; ".join(f'conflict with "{who}": .{".".join(path)}' for who, path in conflict.owners)
                raise ApiError(409, "Conflict", f"Apply failed with {len(conflict.owners)} conflicts: {told}") from None
            if before is None:
                after["metadata"].setdefault("name", name)
                if kind.namespaced:
                    after["metadata"]["namespace"] = namespace
                return self.create(after, manager, dry, fields=False)
            return self._write(kind, before, after, "", "", dry)

    def delete(self, kind: str, namespace: str, name: str, options: Object | None = None, dry: bool = False) -> Object:
        options = options or {}
        with self.lock:
            item = copied(self.get(kind, namespace, name))
            about = item["metadata"]
            wanted = options.get("preconditions") or {}
            for field in ("uid", "resourceVersion"):
                if field in wanted and wanted[field] != about[field]:
                    raise ApiError(409, "Conflict", f"Precondition failed: {field} in precondition: {wanted[field]}")
            finalizers = set(about.get("finalizers") or [])
            policy = options.get("propagationPolicy", "Background")
            finalizers |= {"Foreground": {"foregroundDeletion"}, "Orphan": {"orphan"}}.get(policy, set())
            grace = self._grace(item, options.get("gracePeriodSeconds"))
            if dry:
                return item
            if not finalizers and not grace:
                return self._drop(item)
            about["finalizers"] = sorted(finalizers)
            if not finalizers:
                del about["finalizers"]
            about["deletionTimestamp"] = about.get("deletionTimestamp") or now_text()
            about["deletionGracePeriodSeconds"] = grace
            return self._store("MODIFIED", item, self.items[kind][namespace, name])

    def compact(self) -> None:
        """Forgets the history: who watches from before must list again."""
        with self.changed:
            self.oldest = self.version + 1
            self.version += 1
            self.changes.clear()
            self.changed.notify_all()

    def wait(self, version: int, seconds: float) -> int:
        """The present version, once it is past that one, or after this long."""
        with self.changed:
            self.changed.wait_for(lambda: self.version > version, seconds)
            return self.version

    def _grace(self, item: Object, asked: int | None) -> int:
        """Only pods on a node have any; a later deletion may shorten it."""
        placed = item["kind"] == "Pod" and item["spec"].get("nodeName")
        if not placed or item.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        own = item["spec"].get("terminationGracePeriodSeconds", 30)
        grace = int(own if asked is None else asked)
        before = item["metadata"].get("deletionGracePeriodSeconds")
        return min(grace, before) if before is not None else grace

    def _write(self, kind: Kind, before: Object, after: Object, manager: str, subresource: str, dry: bool) -> Object:
        if subresource == "status":
            after = {**copied(before), "status": after.get("status", {})}
        elif kind.status and subresource != "all":
            after["status"] = before.get("status", {})
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            if name in before["metadata"]:
                after["metadata"][name] = before["metadata"][name]
        for path in IMMUTABLE.get(kind.kind, []):
            if _at(before, path) != _at(after, path):
                raise ApiError(422, "Invalid", f"{kind.kind}: {'.'.join(path)}: field is immutable")
        if before.get("immutable") and (before.get("data"), before.get("binaryData")) != (
            after.get("data"), after.get("binaryData"),
        ):  # fmt: skip
            raise ApiError(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set")
        if manager:
            after = kube_apply.changed_by(before, after, manager, now_text())
        if _without_version(before) == _without_version(after):
            return before
        if before.get("spec") != after.get("spec"):
            after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
        gone = before["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers")
        if gone and not before["metadata"].get("deletionGracePeriodSeconds") and not dry:
            self._store("MODIFIED", after, before)
            return self._drop(after)
        return self._store("MODIFIED", after, before, dry)

    def _store(self, type: str, item: Object, before: Object | None, dry: bool = False) -> Object:
        if dry:
            return item
        with self.changed:
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
            self.items[item["kind"]][key] = item
            self.changes.append(Change(self.version, type, item["kind"], item, before))
            self.changed.notify_all()
            return item

    def _drop(self, item: Object) -> Object:
        with self.changed:
            key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
            before = self.items[item["kind"]].pop(key, None)
            if before is not None:
                self.version += 1
                item = copied(item)
                item["metadata"]["resourceVersion"] = str(self.version)
                self.changes.append(Change(self.version, "DELETED", item["kind"], item, before))
                self.changed.notify_all()
            return item


def event(store: Store, about: Object, reason: str, message: str) -> None:
    """A warning, as controllers leave them."""
    meta = about["metadata"]
    known = {"kind": about["kind"], "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    name = f"{meta['name'][:200]}.{time.monotonic_ns():x}"
    store.create({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": meta["namespace"]},
        "involvedObject": known, "reason": reason, "message": message, "type": "Warning", "count": 1,
        "firstTimestamp": now_text(), "lastTimestamp": now_text(),
    })  # fmt: skip


def _at(item: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        item = (item or {}).get(name)
    return item


def _without_version(item: Object) -> Object:
    dropped = ("resourceVersion", "managedFields")
    return {**item, "metadata": {name: value for name, value in item["metadata"].items() if name not in dropped}}
