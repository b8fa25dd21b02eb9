"""A mirror of one kind of the cluster's objects, kept up to date by a list and a watch that continues from it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from muster.core.errors import EngineError, MusterError
from muster.engines.kubernetes.client import GONE, WATCH_SECONDS, KubeClient, KubeError, Object, Watching

AGAIN_FIRST: Final = 0.5  # seconds before a failed list or watch is tried again, doubled each time
AGAIN_LAST: Final = 5.0
REFUSED_LAST: Final = 30.0  # if the server answers with a refusal
Key = tuple[str, str]  # namespace, name
_log = logging.getLogger(__name__)


def _whole(item: Object) -> Object:
    return item


class Mirror:
    """Call `start` first. `snapshot` is the last known state. The mirror's own thread calls `changed` at every change.

    `keep` reduces an object to the needed part, or returns None to skip it. `removed` gets the last state of each
    object that went away. `back` is called when the server answers again.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        params: Mapping[str, str],
        changed: Callable[[], None],
        keep: Callable[[Object], Object | None] = _whole,
        removed: Callable[[Object], None] = lambda item: None,
        back: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.news = 0  # grows with every change
        self._client, self._params, self._changed, self._keep = client, dict(params), changed, keep
        self._removed, self._back = removed, back
        self._items: dict[Key, Object] = {}
        self._lock = threading.Lock()
        self._synced, self._closing = threading.Event(), threading.Event()
        self._again = threading.Event()  # retry at once
        self._watching: Watching | None = None
        self._version = ""  # from which a watch continues; "" requests a list
        self._trouble: EngineError | None = None
        self._away_since: float | None = None  # monotonic
        self._thread = threading.Thread(target=self._run, name=f"watch{path.replace('/', '-')}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Waits until everything has been listed once. Raises EngineError with what prevented that."""
        until = time.monotonic() + seconds
        while not self._synced.wait(0.05):
            if self._trouble is not None and not (isinstance(self._trouble, KubeError) and self._trouble.status >= 500):
                raise self._trouble
            if time.monotonic() > until:
                raise self._trouble or EngineError(f"The cluster did not list {self.path} within {seconds:g} s.")

    def is_synced(self) -> bool:
        return self._synced.is_set()

    def retry(self) -> None:
        """Ends the pause after a failure, if there is one, because another call was answered."""
        self._again.set()

    def away(self) -> tuple[float, EngineError | None]:
        """For how many seconds the mirror could not be updated, and why."""
        since = self._away_since
        return (time.monotonic() - since, self._trouble) if since is not None else (0.0, None)

    def snapshot(self) -> dict[Key, Object]:
        with self._lock:
            return dict(self._items)

    def get(self, namespace: str, name: str) -> Object | None:
        with self._lock:
            return self._items.get((namespace, name))

    def close(self, seconds: float = 5.0) -> None:
        """Waits that long for its thread, which may be in a call."""
        self._closing.set()
        self._again.set()
        watching = self._watching
        if watching is not None:
            watching.close()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    # --- the thread --------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        delay = AGAIN_FIRST
        while not self._closing.is_set():
            try:
                if not self._version:
                    self._version = self._list()
                self._follow()
                delay = AGAIN_FIRST
            except Exception as error:
                if self._closing.is_set():
                    return
                # A version that is too old leads to a new list at once; a broken stream continues where it was.
                if isinstance(error, KubeError):
                    self._version = ""
                if isinstance(error, KubeError) and error.status == GONE:
                    continue
                self._again.clear()
                self._fail(error)
                if not self._closing.is_set():
                    self._again.wait(delay * random.uniform(0.5, 1.0))
                refused = isinstance(error, KubeError) and error.status in (401, 403, 404)
                delay = min(2 * delay, REFUSED_LAST if refused else AGAIN_LAST)

    def _list(self) -> str:
        items, version = self._client.list(self.path, self._params)
        found = {_key(item): kept for item in items if (kept := self._keep(item)) is not None}
        with self._lock:
            before, self._items = self._items, found
        for key in before.keys() - found.keys():
            self._removed(before[key])
        self._fine()
        self._synced.set()
        self.news += 1
        self._changed()
        return version

    def _follow(self) -> None:
        seconds = int(WATCH_SECONDS * random.uniform(0.7, 1.0))  # so that not all restart at once
        watching = self._watching = self._client.watch(self.path, self._params, self._version, seconds)
        if self._closing.is_set():
            watching.close()
        self._fine()
        for event in watching:
            item = event["object"]
            if event["type"] == "ERROR":
                raise KubeError(int(item.get("code", 500)), str(item.get("reason", "")), str(item.get("message", "")))
            self._version = item["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._take(event["type"] == "DELETED", item)

    def _take(self, deleted: bool, item: Object) -> None:
        key, kept = _key(item), self._keep(item)
        with self._lock:
            before = self._items.get(key)
            if deleted or kept is None:
                self._items.pop(key, None)
            else:
                self._items[key] = kept
        # With a selector, an object that no longer matches is reported as deleted too.
        if deleted and before is not None:
            self._removed(kept or before)
        if before != kept or deleted:
            self.news += 1
            self._changed()

    def _fine(self) -> None:
        was_away, self._away_since, self._trouble = self._away_since is not None, None, None
        if was_away:
            self._back()
            self._changed()

    def _fail(self, error: Exception) -> None:
        known = isinstance(error, MusterError)
        if not known:
            _log.error("watch of %s: %r", self.path, error, exc_info=error)
        self._trouble = error if isinstance(error, EngineError) else EngineError(f"{self.path}: {error!r}")
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._changed()


def _key(item: Object) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
