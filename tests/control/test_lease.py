"""One leads at a time: a dead one is followed, a stale one steps down, and one that leaves need not be waited for."""

from __future__ import annotations

import pytest

from live import until
from muster.control import lease as lease_module
from muster.control.lease import Leadership
from muster.core.errors import Unavailable
from muster.store.memory import MemoryStore


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "TTL", 0.4)
    monkeypatch.setattr(lease_module, "RENEW_EVERY", 0.05)
    monkeypatch.setattr(lease_module, "RENEW_LIMIT", 0.3)


class Server:
    def __init__(self, store: MemoryStore, name: str) -> None:
        self.history: list[str] = []
        self.leadership = Leadership(
            store,
            name,
            [f"http://{name}"],
            lambda lease: self.history.append("led"),
            lambda: self.history.append("lost"),
        )

    @property
    def leads(self) -> bool:
        return self.leadership.leads


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.open()
    return made


@pytest.fixture
def pair(store: MemoryStore):
    first, second = Server(store, "a"), Server(store, "b")
    first.leadership.start()
    until(lambda: first.leads, "the first to lead")
    second.leadership.start()
    yield first, second
    for server in (first, second):
        if server.leadership._thread.is_alive():
            server.leadership.close()


def test_the_second_waits_and_knows_who_leads(pair: tuple[Server, Server]) -> None:
    first, second = pair
    until(lambda: second.leadership.current, "the second to look")
    beat = second.leadership.current.beat
    until(lambda: second.leadership.current.beat > beat + 5, "several renewals")
    assert second.leadership.current.urls == ("http://a",)
    assert (first.leads, second.leads, second.history) == (True, False, [])


def test_one_that_leaves_is_followed(pair: tuple[Server, Server]) -> None:
    first, second = pair
    first.leadership.close()
    until(lambda: second.leads, "the second to lead")
    assert not first.leads


def test_one_that_falls_silent_is_followed_and_steps_down(
    pair: tuple[Server, Server], store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    renew = store.renew_lease

    def away(lease):
        if lease.holder == "a":
            raise Unavailable("the database is away")
        return renew(lease)

    monkeypatch.setattr(store, "renew_lease", away)
    until(lambda: not first.leads, "the first to stop acting")
    assert not second.leads or first.history == ["led", "lost"]
    until(lambda: second.leads, "the second to lead")
    assert first.history == ["led", "lost"]
    assert store.lease().epoch == 2


def test_a_taken_lease_is_noticed_at_the_next_renewal(pair: tuple[Server, Server], store: MemoryStore) -> None:
    first, _ = pair
    taken = None
    while taken is None:
        taken = store.take_lease("c", [], store.lease())
    until(lambda: first.history == ["led", "lost"], "the first to notice")
    assert not first.leads
