"""One server process: it competes for the lease, and has a `Leader` while it holds it."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from muster.control.lease import Leadership
from muster.control.secrets import Keyring
from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.server.hosts import Hosts
from muster.server.leader import Leader
from muster.server.limits import Limits
from muster.server.oidc.flow import OidcFlows
from muster.server.prometheus.requests import Requests
from muster.server.read_slots import ReadSlots
from muster.server.settings import Settings
from muster.server.stream import Hub, Streams
from muster.server.web.site import Site
from muster.store.base import Lease, Store

log = logging.getLogger("muster.server")

_RIGHTS = frozenset(
    {"token.revoked", "session.ended", "share.revoked", "project.member", "project.set"}
)  # events that may change who can see what
_AGAIN = 1.0  # seconds before another try to lead
_FORECAST_WAIT = 60.0  # seconds in line for a forecast: of a large cluster each takes some


class Service:
    def __init__(
        self, settings: Settings, store: Store, keyring: Keyring, urls: Sequence[str], announce: Callable[[], None]
    ) -> None:
        self.settings, self.store, self.urls = settings, store, tuple(urls)
        self.limits = Limits.of(settings.limits)
        self.hosts = Hosts.of(settings)
        self.hub = Hub()
        self.read_slots = ReadSlots(self.limits)
        self.forecast_slots = ReadSlots(replace(self.limits, read_wait=_FORECAST_WAIT))
        self.streams = Streams(self.hub, self.read_slots, self.limits.streams_per_user)
        self.requests = Requests()
        self.site = Site(settings.page_folder)
        provider = settings.provider
        self.oidc = OidcFlows(provider, keyring.sign_ins, keyring.installation, time.time) if provider else None
        self.leader: Leader | None = None
        self.started_at = time.time()
        self.failure: Exception | None = None  # why it could not lead
        self.on_lead: Callable[[], None] | None = None  # called once, when it leads for the first time
        self._keyring = keyring
        self._announce = announce  # writes for this machine where the leader listens
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # a leader is started and closed by one thread at a time
        holder = f"{socket.gethostname()}:{os.getpid()}"
        self._leadership = Leadership(store, holder, self.urls, self._lead, self._lose)

    def start(self) -> None:
        self._leadership.start()

    def close(self) -> None:
        self._stopping.set()
        self._lose()
        self._leadership.close()
        self.store.close()

    @property
    def leads(self) -> bool:
        return self._leadership.leads

    @property
    def lease(self) -> Lease | None:
        return self._leadership.current

    @property
    def ready(self) -> bool:
        return self.leads and self.leader is not None

    def not_leading(self) -> Unavailable:
        where = f" {', '.join(self.lease.urls)} does." if self.lease is not None and self.lease.urls else ""
        return Unavailable(
            f"This server does not hold the lease.{where}", "Ask the one that does, or try again shortly."
        )

    def _lead(self, lease: Lease) -> None:
        # Loading a large state takes longer than the lease lasts without renewal, so it runs outside the lease's
        # thread.
        threading.Thread(target=self._start_leader, args=(lease,), name="lead", daemon=True).start()

    def _start_leader(self, lease: Lease) -> None:
        while not self._try_to_lead(lease):
            if self._stopping.wait(_AGAIN) or not self.leads:
                return
        told, self.on_lead = self.on_lead, None
        if told is not None and self.ready:
            told()

    def _try_to_lead(self, lease: Lease) -> bool:
        """False if it should be tried again: the previous leader may be frozen while it holds the database."""
        with self._lock:
            leader = Leader(self.settings, self.store, self._keyring, lambda: self.leads, self._news, self.urls)
            try:
                self._announce()
                leader.start(lease)
                self.leader = leader
            except Unavailable as error:
                log.warning("could not begin to lead yet, it is tried again: %s", error)
                leader.close()
                return False
            except Exception as error:
                log.exception("could not begin to lead")
                self.failure = error
                leader.close()
        return True

    def _lose(self) -> None:
        with self._lock:
            leader, self.leader = self.leader, None
            if leader is not None:
                leader.close()

    def _news(self, events: Sequence[Event]) -> None:
        if any(event.kind in _RIGHTS for event in events):
            self.hub.wake_all()
        self.hub.notify({event.job for event in events if event.job})
