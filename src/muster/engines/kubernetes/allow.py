"""What job files may ask of a cluster: lists in an engine's settings, empty unless somebody writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Final

from muster.engines.kubernetes.toleration import toleration

ANY_SETTINGS: Final = "any"
LISTED_SETTINGS: Final = "listed"


@dataclass(frozen=True, slots=True)
class Allow:
    """Names and patterns (`team-a-*`), but for `host_paths` and `tolerations`. Any image while `images` is empty."""

    secrets: tuple[str, ...] = ()  # to mount, or to take variables from
    config_maps: tuple[str, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()  # PersistentVolumeClaims
    host_paths: tuple[str, ...] = ()  # folders of the nodes, with what is below them
    service_accounts: tuple[str, ...] = ()  # also for having its token mounted
    priority_classes: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # of Kueue, Volcano or KAI
    tolerations: tuple[str, ...] = ()  # as in a job file
    resources: tuple[str, ...] = ()  # of the container, beside what the job's `resources` ask for: rdma/hca
    capabilities: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # by key
    annotations: tuple[str, ...] = ()  # by key
    images: tuple[str, ...] = ()
    pod_settings: str = LISTED_SETTINGS  # `any`: whatever the cluster itself takes

    def __or__(self, other: Allow) -> Allow:
        """What either allows."""
        lists = {name: (*getattr(self, name), *getattr(other, name)) for name in LISTS}
        return Allow(**lists, pod_settings=ANY_SETTINGS if self.any or other.any else LISTED_SETTINGS)

    @property
    def any(self) -> bool:
        return self.pod_settings == ANY_SETTINGS

    def has(self, kind: str, asked: Any) -> bool:
        """Whether a list of this name has what was asked for."""
        listed: tuple[str, ...] = getattr(self, kind)
        if kind == "images" and not listed:
            return True
        if kind == "tolerations":
            return isinstance(asked, Mapping) and any(_covers(toleration(text), asked) for text in listed)
        if not isinstance(asked, str):
            return False
        if kind == "host_paths":
            return any(_below(asked, folder) for folder in listed)
        return any(fnmatchcase(asked, pattern) for pattern in listed)


LISTS: Final = tuple(field.name for field in fields(Allow) if field.name != "pod_settings")


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """What holds for the jobs of one project beside what holds for all."""

    namespace: str = ""  # of its objects; the engine's own when empty
    allow: Allow = Allow()


def _below(path: str, folder: str) -> bool:
    """`..` is never below anything: what it leads to is the node's to say."""
    return ".." not in PurePosixPath(path).parts and PurePosixPath(path).is_relative_to(folder)


def _covers(allowed: Mapping[str, str], asked: Mapping[str, Any]) -> bool:
    """Whether a toleration is the one that is allowed, or narrower."""
    same_key = bool(asked.get("key")) and asked.get("key") == allowed["key"]
    whole = allowed["operator"] == "Exists"
    same_value = whole or (asked.get("operator", "Equal") == "Equal" and asked.get("value", "") == allowed["value"])
    return same_key and same_value and allowed.get("effect") in (None, asked.get("effect"))
