"""Label and field selectors, as the API server reads them."""

from __future__ import annotations

import functools
import re
from typing import Any

Object = dict[str, Any]
_SET = re.compile(r"\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*\Z")
_EQUALS = re.compile(r"\s*([^!=\s]+)\s*(==|=|!=)\s*([^\s]*)\s*\Z")
# Besides metadata.name and metadata.namespace, which every kind has.
FIELDS = {
    "Pod": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"),
    "Event": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "reason",
        "type",
    ),
    "Node": ("spec.unschedulable",),
    "Secret": ("type",),
    "Job": ("status.successful",),
    "Namespace": ("status.phase",),
}


class BadSelector(ValueError):
    """A selector that the server would refuse."""


def matches_labels(item: Object, selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    return all(_matches(labels, part) for part in _split(selector))


def matches_fields(item: Object, selector: str) -> bool:
    known = ("metadata.name", "metadata.namespace", *FIELDS.get(item["kind"], ()))
    for part in _split(selector):
        found = _EQUALS.match(part)
        if found is None or found[1] not in known:
            raise BadSelector(f"field label not supported: {part}")
        value: Any = item
        for name in found[1].split("."):
            value = value.get(name, "") if isinstance(value, dict) else ""
        if (str(value) == found[3]) == (found[2] == "!="):
            return False
    return True


def _matches(labels: dict[str, str], part: str) -> bool:
    if found := _SET.match(part):
        values = [value.strip() for value in found[3].split(",")]
        return (labels.get(found[1]) in values) == (found[2] == "in")
    if found := _EQUALS.match(part):
        return (labels.get(found[1]) == found[3]) == (found[2] != "!=")
    name = part.strip()
    return name[1:] not in labels if name.startswith("!") else name in labels


@functools.cache  # asked for every object of every list
def _split(selector: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r",(?![^(]*\))", selector) if part.strip())
