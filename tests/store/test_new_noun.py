"""A noun that is registered in one file survives every store, a restart, and a rebuild from the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from allowance_noun import ALLOWANCES, Allowance, AllowanceSet, AllowanceSpent

from muster.core.entities import ENTITIES
from muster.core.errors import ConfigError, Invalid
from muster.core.event import Event
from muster.core.payload import KINDS
from muster.core.state import State
from muster.store import tables
from muster.store.base import EventFilter, Store
from muster.store.registry import open_store
from store_kit import check_against_log

# Other tests look at every kind there is, and this one is for this file alone.
PAYLOADS = {cls.KIND: KINDS.pop(cls.KIND) for cls in (AllowanceSet, AllowanceSpent)}
EVENTS = [
    Event(AllowanceSet("vision", 100.0), 1.0, "ada"),
    Event(AllowanceSet("language", 50.0), 2.0, "ada"),
    Event(AllowanceSpent("language", 12.5), 3.0),
    Event(AllowanceSet("language", 80.0), 4.0, "ada"),
    Event(AllowanceSet("vision", None), 5.0, "ada"),
]
EXPECTED = {"language": Allowance("language", 80.0, 12.5)}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line in the registry, for a test."""
    monkeypatch.setitem(ENTITIES, ALLOWANCES.kind, ALLOWANCES)
    for kind, cls in PAYLOADS.items():
        monkeypatch.setitem(KINDS, kind, cls)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = (
        f"sqlite:///{tmp_path}/muster.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    )
    return found


@pytest.fixture
def engine(url: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield made
    made.dispose()


def written(url: str) -> None:
    store = open_store(url)
    store.append(EVENTS)
    assert ALLOWANCES.all(store.state()) == EXPECTED
    store.close()


def opened(url: str) -> Store:
    store = open_store(url)
    assert ALLOWANCES.all(store.state()) == EXPECTED
    check_against_log(store)
    return store


def test_in_memory() -> None:
    store = open_store("memory:")
    store.append(EVENTS)
    assert ALLOWANCES.all(store.state()) == EXPECTED
    store.reload()
    assert ALLOWANCES.all(store.state()) == EXPECTED
    check_against_log(store)


def test_after_a_restart(url: str) -> None:
    written(url)
    store = opened(url)
    listed = store.events(EventFilter(kind="allowance."))
    assert [(event.kind, event.data) for event in listed] == [(event.kind, event.data) for event in EVENTS]
    store.append([Event(AllowanceSet("language", None), 6.0)])
    assert store.state().others == {}
    store.close()
    again = open_store(url)
    assert again.state().others == {}
    again.close()


def test_rebuilt_from_the_log(url: str, engine: sqlalchemy.Engine) -> None:
    written(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.delete(tables.entities))
        connection.execute(sqlalchemy.update(tables.head).values(fold=1))
    opened(url).close()


def test_a_text_that_no_column_holds_is_refused(url: str) -> None:
    store = open_store(url)
    with pytest.raises(Invalid, match="can't be stored"):
        store.append([Event(AllowanceSet("a\0b", 1.0), 1.0)])
    assert store.state().others == {}
    store.close()


def test_a_release_without_the_noun_says_so(
    url: str, engine: sqlalchemy.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(url)
    monkeypatch.delitem(ENTITIES, ALLOWANCES.kind)
    for kind in PAYLOADS:
        monkeypatch.delitem(KINDS, kind)
    with pytest.raises(
        ConfigError, match="entities of the kind 'allowance', which this version of Muster does not know"
    ):
        open_store(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.update(tables.head).values(fold=1))
    with pytest.raises(ConfigError, match=r"Event 1 of the log \(allowance\.set\) can't be read: this version"):
        open_store(url)


def test_a_state_that_never_had_one_is_the_same() -> None:
    state, store = State(), open_store("memory:")
    assert ALLOWANCES.all(state) == {}
    assert state == State()
    store.append([EVENTS[0], EVENTS[-1]])
    assert store.state().others == {}
