"""Taking a gang's objects out of the cluster: several calls at once; what could not be deleted is tried again."""

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
from muster.engines.kubernetes.gangs import Gang, Memo
from muster.engines.kubernetes.handover import clear, path_of, sweep
from muster.engines.kubernetes.link import Link
from muster.engines.kubernetes.render import label_value, object_name
from muster.engines.kubernetes.settings import KubeSettings
from muster.engines.remote import Key

CALLERS: Final = 8  # calls that are under way at once
FORGOTTEN: Final = 3600.0  # seconds for which what is left of a forgotten gang is known not to count
SWEEP: Final = 600.0  # seconds between two sweeps of what belongs to no gang
DELETE_AGAIN: Final = 15.0  # seconds before what could not be deleted, or came after it was, is deleted again
_log = logging.getLogger(__name__)


class Removal:
    def __init__(self, settings: KubeSettings) -> None:
        self._settings = settings
        self._forgotten: dict[Key, float] = {}  # monotonic; when they were
        self._stuck: dict[Key, str] = {}  # what could not be deleted, and why
        self._tried: dict[Key, float] = {}  # monotonic; when it was last tried of what came late or stayed
        self._swept_at: float | None = None  # monotonic

    def present(self, found: Mapping[Key, Gang], now: float) -> dict[Key, Gang]:
        """Without what was forgotten: pods of a dead node stay in the books until the node is taken out of them."""
        self._forgotten = {key: at for key, at in self._forgotten.items() if now - at < FORGOTTEN}
        return {key: gang for key, gang in found.items() if key not in self._forgotten}

    def trouble(self) -> str:
        """Why something that should go can't be deleted."""
        return next(iter(self._stuck.values()), "")

    def remove(self, link: Link, gang: Gang, memo: Memo, grace: int | None) -> None:
        """`grace`: seconds of each pod; None leaves them what they were made with."""
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

    def forget(self, link: Link, gang: Gang, memo: Memo) -> None:
        self._forgotten[gang.key] = time.monotonic()
        deleted = self._delete_main(link, gang)
        # What it owned goes with it, unless somebody has deleted it alone, or it never came to own it.
        if deleted and (not memo.owned or (gang.main is None and not memo.removed)):
            if gang.main is None:
                self._tried_to(gang.key, lambda: _delete_pods(link, gang, None))
            for namespace in _spaces(link, gang):
                self._tried_to(gang.key, partial(clear, link.client, self._settings, namespace, *gang.key))

    def clear_late(self, link: Link, found: Mapping[Key, Gang], now: float) -> None:
        """Deletes again what is there though it was forgotten: it stayed, or a call whose answer was lost made it."""
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
        """Takes away what is left of gangs that are no more: Secrets and Services that nobody owns."""
        if self._swept_at is not None and now - self._swept_at < SWEEP:
            return
        self._swept_at = now
        jobs = {label_value(job) for job, _ in living}
        for namespace in link.namespaces:
            try:
                sweep(link.client, self._settings, namespace, jobs)
            except EngineError as error:
                _log.info("what is left of old gangs in %s stays there: %s", namespace, error)

    def _delete_main(self, link: Link, gang: Gang) -> bool:
        """Whether what starts the pods is on its way out. What no mirror has shown yet goes by its name."""
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
        """Whether the cluster let it happen. One that does not, for want of a right or with a webhook down, is shown as
        the engine's trouble and keeps nobody else waiting; what is left is swept up later."""
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
    """Several at once; every one is made before the first error of any is raised."""
    if not calls:
        return
    with ThreadPoolExecutor(CALLERS) as callers:
        made = [callers.submit(call) for call in calls]
    failed = next((error for one in made if (error := one.exception()) is not None), None)
    if failed is not None:
        raise failed


def _delete_pods(link: Link, gang: Gang, grace: int | None) -> None:
    for pod in gang.pods.values():
        about = pod["metadata"]
        link.client.delete(PODS.path(about["namespace"], about["name"]), grace=grace, uid=about["uid"])


def _spaces(link: Link, gang: Gang) -> Sequence[str]:
    """Where a gang may be."""
    found = {item["metadata"]["namespace"] for item in (gang.main, *gang.pods.values()) if item is not None}
    return tuple(found) or link.namespaces
