"""Failed sign-ins: counted by address and minute, never one event for each."""

from __future__ import annotations

import base64

import pytest

from events_kit import AUDIT, AUDIT_DOC
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.state import State, apply
from muster.server.mlflow.caller import bearer
from muster.server.sign_ins import MOST, SignIns
from muster.store.base import EventFilter
from muster.store.direct import DirectCommit
from muster.store.memory import MemoryStore

SECRET = "wYd5q0secret"  # pragma: allowlist secret


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.open()
    return made


def sign_ins(store: MemoryStore) -> SignIns:
    commit = DirectCommit(store, on_commit=lambda events: None)  # type: ignore[arg-type]
    return SignIns(commit, lambda: 60.0, lambda token: token == "ab12", lambda: True)


def told(store: MemoryStore) -> list[tuple[str, int, str]]:
    found = store.events(EventFilter(kind="auth.failed", limit=1000))
    return [(one.data.address, one.data.count, one.data.token) for one in found]


def test_the_first_is_told_at_once_and_the_others_as_a_count(store: MemoryStore) -> None:
    watch = sign_ins(store)
    for _ in range(100):
        watch.failed("10.0.0.7", f"Bearer mst_ab12_{SECRET}")
    assert told(store) == [("10.0.0.7", 1, "ab12")]
    watch.step()
    assert told(store)[1:] == [("10.0.0.7", 99, "ab12")]
    watch.step()
    assert len(told(store)) == 2
    watch.failed("10.0.0.7", "Basic " + base64.b64encode(f"ada:mst_cd34_{SECRET}".encode()).decode())
    assert told(store)[2:] == [("10.0.0.7", 1, "")]  # nobody has that token
    assert SECRET not in str(store.events(EventFilter()))


@pytest.mark.parametrize("given", ["é", "=", "a", "not base64", "/////w=="])
def test_what_can_not_be_read_is_a_failed_sign_in(store: MemoryStore, given: str) -> None:
    assert bearer(f"Basic {given}") is None
    sign_ins(store).failed("10.0.0.7", f"Basic {given}")
    assert told(store) == [("10.0.0.7", 1, "")]


def test_many_addresses_are_not_many_events(store: MemoryStore) -> None:
    watch = sign_ins(store)
    for number in range(20 * MOST):
        watch.failed(f"10.0.{number // 256}.{number % 256}", "Bearer x")
    watch.step()
    assert len(told(store)) == MOST + 2
    assert sum(count for _, count, _ in told(store)) == 20 * MOST


def test_the_state_takes_audit_events_and_nothing_changes_but_its_version() -> None:
    state = State()
    for seq, kind in enumerate(sorted(AUDIT), 1):
        changes = apply(state, Event(decode(kind, AUDIT_DOC), float(seq), "ada", "p", "run", seq=seq))
        assert (changes.jobs, changes.entities, changes.attempts) == ({}, {}, {})
    assert (state.version, state.jobs, state.journal.end) == (len(AUDIT), {}, 0)
