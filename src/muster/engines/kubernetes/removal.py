"""Removes a gang's objects from the cluster, with several calls at a time; failed deletions are repeated."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from muster.core.errors import EngineError
from muster.engines.kubernetes.client import PODS
from muster.engines.kubernetes.faults import fault_of
from muster.engines.kubernetes.gangs import KubernetesGang, Memo
from muster.engines.kubernetes.handover import clear, path_of, sweep
from muster.engines.kubernetes.link import Link
from muster.engines.kubernetes.render import label_value, object_name
from muster.engines.kubernetes.settings import KubeSettings
from muster.engines.remote import Key

CALLERS: Final = 8  # concurrent calls
FORGOTTEN: Final = 3600.0  # seconds for which the remains of a forgotten gang are ignored
SWEEP: Final = 600.0  # seconds between two sweeps for objects that belong to no gang
DELETE_AGAIN: Final = 15.0  # seconds before an object that could not be deleted, or appeared later, is deleted again
_log = logging.getLogger(__name__)


class Removal:
    def __init__(self, settings: KubeSettings) -> None:
        self._settings = settings
        self._forgotten: dict[Key, float] = {}  # monotonic; when they were forgotten
        self._stuck: dict[Key, str] = {}  # what could not be deleted, and why
        self._tried: dict[Key, float] = {}  # monotonic; when the last deletion of a leftover was tried
        self._swept_at: float | None = None  # monotonic

    def present(self, found: Mapping[Key, KubernetesGang], now: float) -> dict[Key, KubernetesGang]:
        """The gangs without the forgotten ones: pods of a dead node remain in the API until the node is removed."""
        self._forgotten = {key: at for key, at in self._forgotten.items() if now - at < FORGOTTEN}
        return {key: gang for key, gang in found.items() if key not in self._forgotten}

    def trouble(self) -> str:
        """Why something can't be deleted."""
        return next(iter(self._stuck.values()), "")

    def remove(self, link: Link, gang: KubernetesGang, memo: Memo, grace: int | None) -> None:
        """Deletes a gang. `grace`: seconds for each pod; None keeps the pods' own grace."""
        memo.removed, memo.delete_at = True, None
        try:
            if not self._delete_main(link, gang):
                memo.removed, memo.delete_at = False, time.monotonic() + DELETE_AGAIN
                return
            if gang.main is None:
                memo.owned = False  # it may have been deleted alone
            if grace is not None:
                self._tried_to(gang.key, lambda: _delete_pods(link, gang, grace))
        except EngineError:
            memo.removed, memo.delete_at = False, time.monotonic()
            raise

    def forget(self, link: Link, gang: KubernetesGang, memo: Memo) -> None:
        self._forgotten[gang.key] = time.monotonic()
        deleted = self._delete_main(link, gang)
        # What the main object owned is deleted with it, unless it was deleted alone or never became the owner.
        if deleted and (not memo.owned or (gang.main is None and not memo.removed)):
            if gang.main is None:
                self._tried_to(gang.key, lambda: _delete_pods(link, gang, None))
            for namespace in _spaces(link, gang):
                self._tried_to(gang.key, partial(clear, link.client, self._settings, namespace, *gang.key))

    def clear_late(self, link: Link, found: Mapping[Key, KubernetesGang], now: float) -> None:
        """Deletes forgotten gangs' objects that still exist, or that a call with a lost answer created later."""
        self._stuck = {key: why for key, why in self._stuck.items() if key in found}
        self._tried = {key: at for key, at in self._tried.items() if key in found}
        due: list[Callable[[], object]] = []
        for key in found.keys() & self._forgotten.keys():
            main = found[key].main
            last = self._tried.get(key, self._forgotten[key])
            if main is not None and not main["metadata"].get("deletionTimestamp") and now - last >= DELETE_AGAIN:
                self._tried[key] = now
                due.append(partial(self._delete_main, link, found[key]))
        each(due)

    def sweep(self, link: Link, living: Iterable[Key], now: float) -> None:
        """Deletes the remains of gangs that no longer exist: Secrets and Services without an owner."""
        if self._swept_at is not None and now - self._swept_at < SWEEP:
            return
        self._swept_at = now
        jobs = {label_value(job) for job, _ in living}
        for namespace in link.namespaces:
            try:
                sweep(link.client, self._settings, namespace, jobs)
            except EngineError as error:
                _log.info("what is left of old gangs in %s stays there: %s", namespace, error)

    def _delete_main(self, link: Link, gang: KubernetesGang) -> bool:
        """Deletes the main object and returns whether it will go.
        One that no mirror has shown yet is deleted by its name."""
        if gang.main is not None:
            targets = [(path_of(link.client, gang.main), gang.main["metadata"]["uid"])]
        else:
            name = object_name(self._settings.installation, *gang.key)
            targets = [(kind.path(space, name), "") for kind in link.starters() for space in _spaces(link, gang)]

        def delete() -> None:
            for path, uid in targets:
                link.client.delete(path, uid=uid)

        if not self._tried_to(gang.key, delete):
            return False
        self._stuck.pop(gang.key, None)
        return True

    def _tried_to(self, key: Key, call: Callable[[], None]) -> bool:
        """Makes a call and returns whether the cluster allowed it. A denied call, for a missing right or with a webhook
        down, is shown as the engine's trouble and does not block other gangs; leftovers are swept later."""
        try:
            call()
        except EngineError as error:
            fault = fault_of(error)
            if fault is None or fault.kind == "away":
                raise
            self._stuck[key] = fault.message
            return False
        return True


def each(calls: Sequence[Callable[[], object]]) -> None:
    """Makes several calls at a time. All are made before the first error is raised."""
    if not calls:
        return
    with ThreadPoolExecutor(CALLERS) as callers:
        made = [callers.submit(call) for call in calls]
    failed = next((error for one in made if (error := one.exception()) is not None), None)
    if failed is not None:
        raise failed


def _delete_pods(link: Link, gang: KubernetesGang, grace: int | None) -> None:
    for pod in gang.pods.values():
        about = pod["metadata"]
        link.client.delete(PODS.path(about["namespace"], about["name"]), grace=grace, uid=about["uid"])


def _spaces(link: Link, gang: KubernetesGang) -> Sequence[str]:
    """The namespaces that a gang may be in."""
    found = {item["metadata"]["namespace"] for item in (gang.main, *gang.pods.values()) if item is not None}
    return tuple(found) or link.namespaces
