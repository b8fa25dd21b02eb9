"""The text of `/metrics`: the families of the server and its work, then the samples of nodes and devices."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import Final

from prometheus_client import generate_latest

from muster.core.errors import TooMany
from muster.core.state import State
from muster.monitor.exposition import dcgm_text, device_text, fault_text, node_text
from muster.server.leader import Leader
from muster.server.prometheus import snapshot
from muster.server.prometheus.collect import Families, costs, process, server, work
from muster.server.prometheus.requests import Requests
from muster.server.prometheus.snapshot import Snapshot

WAIT: Final = 10.0  # seconds that a scrape waits for another one
_one_at_a_time: Final = threading.Lock()


def page(leader: Leader | None, requests: Requests, parts: Collection[str]) -> list[bytes]:
    """The text in pieces. `leader` is None on a server that does not lead: it knows of itself alone."""
    if not _one_at_a_time.acquire(timeout=WAIT):
        raise TooMany("Other scrapes of this server take long.", "Scrape less often, or only with `?part=server`.")
    try:
        return list(_pieces(leader, requests, parts))
    finally:
        _one_at_a_time.release()


def _pieces(leader: Leader | None, requests: Requests, parts: Collection[str]) -> Iterator[bytes]:
    if "server" in parts:
        yield generate_latest(Families([*process(), *server(leader, requests)]))
    if leader is None:
        return
    now = leader.clock.now()
    if "server" in parts:

        def look(state: State) -> Snapshot:
            return snapshot.take(state, leader.controller.board, leader.sampler, leader.samples, now)

        found = leader.look(look)
        yield generate_latest(Families([*work(leader.counters, found), *costs(leader)]))
        yield fault_text(found.faults)
    nodes, devices = leader.samples.fresh(now)
    if "nodes" in parts:
        yield from node_text(nodes)
    if "devices" in parts:
        yield from device_text(devices)
    if "dcgm" in parts:
        yield from dcgm_text(devices)
