"""What job files may ask of a cluster: allow-lists in an engine's settings, empty by default."""

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
    """Names and patterns (`team-a-*`), except `host_paths` and `tolerations`. An empty `images` allows any image."""

    secrets: tuple[str, ...] = ()  # to mount, or to take variables from
    config_maps: tuple[str, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()  # PersistentVolumeClaims
    host_paths: tuple[str, ...] = ()  # folders of the nodes, including their subfolders
    service_accounts: tuple[str, ...] = ()  # also for mounting its token
    priority_classes: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # of Kueue, Volcano or KAI
    tolerations: tuple[str, ...] = ()  # in the job file's syntax
    resources: tuple[str, ...] = ()  # container resources besides those of the job's `resources`, such as rdma/hca
    capabilities: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # by key
    annotations: tuple[str, ...] = ()  # by key
    images: tuple[str, ...] = ()
    pod_settings: str = LISTED_SETTINGS  # `any`: whatever the cluster itself accepts

    def __or__(self, other: Allow) -> Allow:
        """The union of both."""
        lists = {name: (*getattr(self, name), *getattr(other, name)) for name in LISTS}
        return Allow(**lists, pod_settings=ANY_SETTINGS if self.any or other.any else LISTED_SETTINGS)

    @property
    def any(self) -> bool:
        return self.pod_settings == ANY_SETTINGS

    def has(self, kind: str, asked: Any) -> bool:
        """Whether the list of this name allows what is asked for."""
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
    """Additional settings for the jobs of one project."""

    namespace: str = ""  # for its objects; "": the engine's own
    allow: Allow = Allow()


def _below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it. A path with `..` never is, because only the node can resolve it."""
    return ".." not in PurePosixPath(path).parts and PurePosixPath(path).is_relative_to(folder)


def _covers(allowed: Mapping[str, str], asked: Mapping[str, Any]) -> bool:
    """Whether a toleration equals the allowed one or is narrower."""
    same_key = bool(asked.get("key")) and asked.get("key") == allowed["key"]
    whole = allowed["operator"] == "Exists"
    same_value = whole or (asked.get("operator", "Equal") == "Equal" and asked.get("value", "") == allowed["value"])
    return same_key and same_value and allowed.get("effect") in (None, asked.get("effect"))
