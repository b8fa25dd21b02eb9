"""The leader's lease: of several servers on one store, one acts, and another takes over within seconds of its death.

No wall clock is trusted. The holder increments a counter. A server that has seen the counter unchanged for `TTL`
seconds of its own monotonic clock takes the lease. The holder stops acting when it could not renew for `RENEW_LIMIT`
seconds, which is shorter, so two servers never act at once. A holder that was frozen meanwhile can't write either:
taking the lease appends an event, and an append on an old version is refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from muster.core.errors import MusterError
from muster.store.base import Lease, Store

log = logging.getLogger("muster.lease")

TTL = 4.0  # seconds
RENEW_EVERY = 1.0
RENEW_LIMIT = 3.0


class Leadership:
    """Competes for the lease in a thread; calls `on_lead` when it is won and `on_lose` when it is lost."""

    def __init__(
        self,
        store: Store,
        holder: str,
        urls: Sequence[str],
        on_lead: Callable[[Lease], None],
        on_lose: Callable[[], None],
    ) -> None:
        self._store, self._holder, self._urls = store, holder, urls
        self._on_lead, self._on_lose = on_lead, on_lose
        self._mine: Lease | None = None
        self._renewed = float("-inf")  # on the monotonic clock
        self._seen: tuple[Lease | None, float] = (None, time.monotonic())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stops competing and releases the lease, so that the next server need not wait."""
        self._stopped.set()
        self._thread.join()
        if self._mine is not None:
            try:
                self._store.drop_lease(self._mine)
            except MusterError as error:
                log.warning("the lease could not be given up: %s", error)
            self._mine = None

    @property
    def leads(self) -> bool:
        return self._mine is not None and time.monotonic() - self._renewed < RENEW_LIMIT

    @property
    def current(self) -> Lease | None:
        """The lease as last seen by this server."""
        return self._mine or self._seen[0]

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._renew() if self._mine is not None else self._compete()
            except MusterError as error:
                log.warning("the lease can't be reached: %s", error)
                self._step_down_when_stale()
            except Exception:
                log.exception("lease round failed")
                self._step_down_when_stale()
            self._stopped.wait(RENEW_EVERY if self._mine is not None else RENEW_EVERY / 2)

    def _compete(self) -> None:
        seen = self._store.lease()
        now = time.monotonic()
        if seen != self._seen[0]:
            self._seen = (seen, now)
        free = seen is None or not seen.holder
        if not free and now - self._seen[1] < TTL:
            return
        mine = self._store.take_lease(self._holder, self._urls, seen)
        if mine is not None:
            self._mine, self._renewed = mine, time.monotonic()
            log.info("leading as %s, epoch %d", self._holder, mine.epoch)
            self._on_lead(mine)

    def _renew(self) -> None:
        assert self._mine is not None
        renewed = self._store.renew_lease(self._mine)
        if renewed is None:
            self._lose()
        else:
            self._mine, self._renewed = renewed, time.monotonic()

    def _step_down_when_stale(self) -> None:
        if self._mine is not None and time.monotonic() - self._renewed >= RENEW_LIMIT:
            self._lose()

    def _lose(self) -> None:
        log.warning("the lease is lost: this server stops acting")
        self._mine = None
        self._seen = (None, time.monotonic())
        self._on_lose()
