"""An engine beyond this machine: what is asked of it is kept while it is away, and nothing is lost or doubled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from toy import Toy, ToyAdapter, node

from live import until
from muster.core.seat import Seat
from muster.engines import remote, unseen
from muster.engines.base import GangLaunch, WorkerReport
from muster.engines.remote import RemoteEngine


def gang(job: str, attempt: int = 1, workers: int = 2, **more: object) -> GangLaunch:
    seats = [Seat(f"n{number}") for number in range(workers)]
    return GangLaunch(
        job, attempt, seats, 1, "true", "/tmp", {}, (), "secret", 3, None, None, None, 30.0, **more,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "AGAIN_FIRST", 0.02)
    monkeypatch.setattr(remote, "AGAIN_LAST", 0.05)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "toy")


@contextmanager
def started(toy: Toy) -> Iterator[tuple[RemoteEngine, ToyAdapter]]:
    adapter = ToyAdapter(toy.folder)
    engine = RemoteEngine("far", adapter, nodes_every=0.02)
    engine.start()
    try:
        yield engine, adapter
    finally:
        engine.close()


def statuses(engine: RemoteEngine) -> dict[tuple[str, int], list[str]]:
    found: dict[tuple[str, int], list[str]] = {}
    for report in engine.poll():
        found.setdefault((report.job, report.attempt), []).append(report.status)
    return found


def reported(engine: RemoteEngine, job: str, status: str) -> WorkerReport:
    def look() -> WorkerReport | None:
        found = [one for one in engine.poll() if one.job == job]
        return found[0] if found and all(one.status == status for one in found) else None

    found = until(look, f"{job} to be {status}")
    assert found is not None
    return found


def test_what_is_asked_while_it_is_away_is_done_when_it_is_back(toy: Toy) -> None:
    toy.down()
    with started(toy) as (engine, _):
        until(lambda: engine.condition().detail.startswith("the toy cluster"), "it to be found away")
        assert not engine.answered()
        engine.launch(gang("a"))
        engine.launch(gang("a"))
        engine.launch(gang("b"))
        engine.drain("n1", "broken fan")
        assert statuses(engine) == {("a", 1): ["pending"] * 2, ("b", 1): ["pending"] * 2}
        assert {wait.job for wait in engine.waits()} == {"a", "b"}
        assert "does not answer" in engine.waits()[0].message
        engine.stop("b", 1, 5.0, "user_stop")
        end = reported(engine, "b", "ended").exit
        assert end is not None
        assert (end.outcome, end.reason) == ("stopped", "user_stop")
        toy.down(False)
        until(lambda: engine.condition().ok, "it to be back")
        until(lambda: toy.calls("launch"), "the gang to be handed over")
        assert toy.calls("launch") == [["a", 1]]
        assert toy.calls("drain") == [["n1", "broken fan"]]
        assert {wait.code for wait in engine.waits()} == {"Priority"}
        engine.forget("b", 1)
        assert ("b", 1) not in statuses(engine)


@pytest.mark.parametrize("call", ["launch", "stop"])
def test_an_answer_that_is_lost_doubles_nothing(toy: Toy, call: str) -> None:
    with started(toy) as (engine, adapter):
        until(engine.answered, "it to answer")
        adapter.hiccup = call
        engine.launch(gang("a"))
        until(lambda: toy.gangs(), "the gang to be there")
        until(lambda: [wait for wait in engine.waits() if wait.code == "Priority"], "it to be seen there")
        engine.stop("a", 1, 3.0, "user_stop")
        reported(engine, "a", "ended")
        until(lambda: engine.condition().ok, "it to be back")
        assert toy.calls("launch") == [["a", 1]]
        assert toy.calls("stop")[0] == ["a", 1, 3.0, "user_stop"]
        engine.forget("a", 1)
        until(lambda: not toy.gangs(), "it to be forgotten")
        assert engine.poll() == []


def test_a_new_server_finds_what_is_there_and_hands_nothing_over_again(toy: Toy) -> None:
    with started(toy) as (engine, _):
        engine.launch(gang("a"))
        until(lambda: toy.gangs(), "the gang to be there")
    toy.becomes("a.1", "running", node="n7")
    with started(toy) as (engine, _):
        engine.launch(gang("a"))  # before it has looked
        found = reported(engine, "a", "running")
        engine.launch(gang("a"))  # after it
        assert found.node == "n7"
        engine.stop("a", 1, 1.0, "user_stop")
        reported(engine, "a", "ended")
    assert toy.calls("launch") == [["a", 1]]


def test_what_it_refuses_for_good_has_ended(toy: Toy) -> None:
    toy.refuse("b")
    with started(toy) as (engine, _):
        engine.launch(gang("a"))
        engine.launch(gang("b"))
        found = reported(engine, "b", "ended")
        assert found.sure
        assert found.exit is not None
        assert (found.exit.outcome, found.exit.reason, found.exit.detail) == ("failed", "engine_refused", "it says no")
        reported(engine, "a", "pending")
        engine.launch(gang("b"))
        engine.forget("b", 1)
        assert {key[0] for key in statuses(engine)} == {"a"}
    assert toy.calls("launch") == [["a", 1]]


def test_a_gang_that_was_taken_and_is_not_there_is_handed_over_again(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "UNSEEN", 0.0)
    lost = threading.Event()

    class Forgetful(ToyAdapter):
        def launch(self, gangs, wanted):  # type: ignore[no-untyped-def]
            if not lost.is_set():
                lost.set()
                return {}
            return super().launch(gangs, wanted)

    engine = RemoteEngine("far", Forgetful(toy.folder))
    engine.start()
    try:
        engine.launch(gang("a"))
        until(lambda: toy.gangs(), "the gang to be there")
    finally:
        engine.close()
    assert lost.is_set()


def test_nodes_are_news_once_and_so_is_that_it_is_back(toy: Toy) -> None:
    toy.nodes(node("n1"))
    woken = threading.Semaphore(0)
    adapter = ToyAdapter(toy.folder)
    engine = RemoteEngine("far", adapter, nodes_every=0.02)
    engine.on_change(woken.release)
    engine.start()
    try:
        until(engine.nodes_changed, "the nodes")
        assert [one.name for one in engine.nodes()] == ["n1"]
        assert not engine.nodes_changed()
        toy.down()
        until(lambda: not engine.condition().ok, "it to be away")
        assert [one.name for one in engine.nodes()] == ["n1"]  # as last seen
        while woken.acquire(blocking=False):
            pass
        toy.down(False)
        assert woken.acquire(timeout=180)
        until(lambda: engine.condition().ok, "it to be back")
        toy.nodes(node("n1"), node("n2"))
        until(engine.nodes_changed, "the second node")
    finally:
        engine.close()
