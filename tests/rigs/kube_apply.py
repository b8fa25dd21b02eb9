"""Server-side apply and who owns which field, as the API server keeps them; lists count as one value."""

from __future__ import annotations

import pickle
from typing import Any, TypeVar

Object = dict[str, Any]
Path = tuple[str, ...]
T = TypeVar("T")
_NOT_OWNED = {
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "managedFields"),
}


def copied(item: T) -> T:
    """A copy, in a fifth of the time of `copy.deepcopy`."""
    made: T = pickle.loads(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))
    return made


class FieldConflict(Exception):
    """Other managers own fields that were to be set to something else."""

    def __init__(self, owners: list[tuple[str, Path]]) -> None:
        super().__init__(owners)
        self.owners = owners


def leaves(item: Any, at: Path = ()) -> dict[Path, Any]:
    """Path → value of everything that is no mapping; an empty mapping is a value."""
    if isinstance(item, dict) and item:
        found: dict[Path, Any] = {}
        for name, value in item.items():
            found.update(leaves(value, (*at, name)))
        return {path: value for path, value in found.items() if path not in _NOT_OWNED}
    return {at: item} if at and at not in _NOT_OWNED else {}


def apply(live: Object | None, wanted: Object, manager: str, force: bool, now: str) -> Object:
    """The object as it is after `manager` has applied `wanted`. Raises FieldConflict."""
    made = copied(live) if live is not None else copied(wanted)
    new = leaves(wanted)
    owned = _owned(made if live is not None else {})
    if live is None:
        return _with_fields(made, {(manager, "Apply"): set(new)}, now)
    current = leaves(live)
    mine = owned.get((manager, "Apply"), set())
    conflicts = []
    for (owner, kind), paths in owned.items():
        for path in [p for p in new if p in paths and current.get(p) != new[p]]:
            if (owner, kind) == (manager, "Apply"):
                continue
            if not force:
                conflicts.append((owner, path))
            else:
                paths.discard(path)
    if conflicts:
        raise FieldConflict(conflicts)
    others = set().union(*(paths for who, paths in owned.items() if who != (manager, "Apply")), set())
    for path in mine - set(new) - others:
        _remove(made, path)
    for path, value in new.items():
        _set(made, path, copied(value))
    owned[manager, "Apply"] = set(new)
    return _with_fields(made, owned, now)


def changed_by(before: Object | None, after: Object, manager: str, now: str) -> Object:
    """After a plain write: what it changed is its writer's."""
    old, new = leaves(before or {}), leaves(after)
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    owned = _owned(before or {})
    if not changed:
        return _with_fields(after, owned, now)
    for who, paths in owned.items():
        if who != (manager, "Update"):
            paths -= changed
    owned.setdefault((manager, "Update"), set()).update(changed)
    return _with_fields(after, owned, now)


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copied(patch)
    made = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merge_patch(made.get(name), value)
    return made


def _owned(item: Object) -> dict[tuple[str, str], set[Path]]:
    found = {}
    for entry in item.get("metadata", {}).get("managedFields") or []:
        found[entry["manager"], entry["operation"]] = set(_paths(entry["fieldsV1"]))
    return found


def _with_fields(item: Object, owned: dict[tuple[str, str], set[Path]], now: str) -> Object:
    entries = []
    for (manager, operation), paths in sorted(owned.items()):
        if paths:
            tree: Object = {}
            for path in paths:
                at = tree
                for name in path:
                    at = at.setdefault(f"f:{name}", {})
            entries.append({
                "manager": manager, "operation": operation, "apiVersion": item.get("apiVersion", "v1"),
                "time": now, "fieldsType": "FieldsV1", "fieldsV1": tree,
            })  # fmt: skip
    return {**item, "metadata": {**item["metadata"], "managedFields": entries}}


def _paths(tree: Object, at: Path = ()) -> list[Path]:
    if not tree:
        return [at] if at else []
    return [path for name, below in tree.items() for path in _paths(below, (*at, name.removeprefix("f:")))]


def _remove(item: Object, path: Path) -> None:
    *parents, last = path
    for name in parents:
        if not isinstance(item.get(name), dict):
            return
        item = item[name]
    item.pop(last, None)


def _set(item: Object, path: Path, value: Any) -> None:
    *parents, last = path
    for name in parents:
        if not isinstance(item.get(name), dict):
            item[name] = {}
        item = item[name]
    item[last] = value
