"""Checks addresses in requests to MLflow's server, which would read and write there with this server's rights.

Artifacts must be in Muster (`mlflow-artifacts:/`). A model version may also refer to a run's files or another version,
which are resolved with the caller's rights. Any other address is refused, in any field or tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from muster.track.mlflow.faults import Fault

# Names of fields and tags without dots, dashes and underscores: protobuf's JSON has two spellings of them.
_FIELDS: Final = frozenset({
    "artifactlocation", "artifacturi", "archivedartifacturi", "artifactroot", "defaultartifactroot", "rooturi",
    "tracearchivallocation", "localmodelpath",
})  # fmt: skip
_TAG: Final = re.compile(r"mlflow.*(location|uri|root|path)")
_OURS: Final = re.compile(r"mlflow-artifacts:/(?!/)")
_SOURCE: Final = re.compile(r"mlflow-artifacts:/(?!/)|runs:/|models:/|(dummy-source|prompt-template)\Z")
_PLACE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:|[/\\~.]|.*[/\\]", re.DOTALL)
_WORDS: Final = frozenset({"mlflow.trace.spansLocation"})  # a tag that names a table, never an address


def check_addresses(path: str, given: Any) -> None:
    """Raises Fault if a body, or the parameters of a query, contains an address outside Muster."""
    versions = "/model-versions/" in path
    left: list[Any] = [given]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, Mapping):
            for name, inner in (*value.items(), *_tag(value)):
                left.append(inner)
                _check(str(name), inner, versions)


def check_address(name: str, value: str) -> None:
    """Checks one address in the field `name`."""
    if value and not _OURS.match(value):
        raise _refused(name, value)


def _tag(entry: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """The tag in a {key, value} entry."""
    return [(entry["key"], entry["value"])] if isinstance(entry.get("key"), str) and "value" in entry else []


def _check(name: str, value: Any, versions: bool) -> None:
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, str) or not one or name in _WORDS:
            continue
        plain = re.sub(r"[^a-z0-9]", "", name.lower())
        if versions and plain == "source":
            if not _SOURCE.match(one):
                raise _refused(name, one)
        elif plain in _FIELDS or (_TAG.fullmatch(plain) and _PLACE.match(one)):
            check_address(name, one)


def _refused(name: str, value: str) -> Fault:
    return Fault(
        f"'{name[:100]}' is '{value[:200]}', a place that this server neither reads nor writes. Leave it out: "
        "artifacts are kept by Muster, under 'mlflow-artifacts:/'."
    )
