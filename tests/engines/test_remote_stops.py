"""A stop that comes at any point of a hand-over wins: the gang ends as stopped, and nothing of it stays or follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product

import pytest

from live import until
from muster.core.errors import EngineError
from muster.core.resources import Resources
from muster.core.seat import Seat
from muster.engines import remote, unseen
from muster.engines.base import Finding, GangLaunch, Usage, WorkerReport
from muster.engines.remote import Held, Key, Look, Order, RemoteEngine
from muster.wire import WorkerExit

KEY: Key = ("a", 1)
# Where a stop may come: before the hand-over, between its steps, once its answer is there, and when it was seen.
POINTS = ("before", "open", "wanted", "part", "made", "answered", "looking", "seen")
# What becomes of the first hand-over: it is taken; held at once, or with a part of it there; the call fails with a part
# of it there, or with all of it there and the answer lost; it is taken and never seen.
FATES = ("taken", "held", "held after part", "fails after part", "answer lost", "unseen")


class Cluster:
    """A cluster of one gang, whose hand-over takes two steps: a part, and then what runs."""

    kind = "cluster"
    abilities = ()
    look_every = 0.01

    def __init__(self, fate: str, reach: Callable[[str], None]) -> None:
        self.fate, self.reach = fate, reach
        self.parts: set[Key] = set()
        self.runs: set[Key] = set()
        self.ended: dict[Key, Order] = {}
        self.made: list[str] = []  # every creation, in order
        self.launches = 0
        self.looks = 0

    def open(self, changed: Callable[[], None]) -> str:
        self.reach("open")
        return "the cluster"

    def look(self, nodes: bool) -> Look:
        self.looks += 1
        hidden = self.fate == "unseen"
        found = [
            WorkerReport(*key, 0, "ended", WorkerExit("stopped", self.ended[key].reason, "", 1.0), sure=True)
            if key in self.ended
            else WorkerReport(*key, 0, "pending")
            for key in sorted(self.runs | self.ended.keys())
            if not hidden
        ]
        self.reach("looking")
        return Look(found)

    def launch(self, gangs: Sequence[GangLaunch], wanted: Callable[[Key], bool]) -> Mapping[Key, str | Held]:
        self.launches += 1
        fate = self.fate if self.launches == 1 or self.fate.startswith("held") else "taken"
        key = (gangs[0].job, gangs[0].attempt)
        self.reach("wanted")
        if fate == "held":
            return {key: Held("Quota", "no room")}
        if not wanted(key):
            return {key: Held("Stopped", "")}
        self.parts.add(key)
        self.made.append("part")
        self.reach("part")
        if fate == "fails after part":
            raise EngineError("it broke off")
        if fate == "held after part":
            return {key: Held("Quota", "no room")}
        if not wanted(key):
            return {key: Held("Stopped", "")}
        self.runs.add(key)
        self.made.append("run")
        self.reach("made")
        if fate == "answer lost":
            raise EngineError("the answer was lost")
        return {}

    def stop(self, orders: Sequence[Order]) -> None:
        for order in orders:
            key = (order.job, order.attempt)
            if key in self.runs:
                self.runs.discard(key)
                self.ended[key] = order

    def forget(self, attempts: Sequence[Key]) -> None:
        for key in attempts:
            self.parts.discard(key)
            self.runs.discard(key)
            self.ended.pop(key, None)

    def drain(self, node: str, why: str) -> None: ...

    def undrain(self, node: str) -> None: ...

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None: ...

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return {}

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        return None

    def usage(self, since: float) -> Iterable[Usage]:
        return ()

    def diagnose(self) -> Iterable[Finding]:
        return ()

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AGAIN_FIRST", 0.01), ("AGAIN_LAST", 0.02)):
        monkeypatch.setattr(remote, name, value)
    for name, value in (("HOLD_FIRST", 0.01), ("HOLD_LAST", 0.02), ("UNSEEN", 0.05)):
        monkeypatch.setattr(unseen, name, value)


def gang() -> GangLaunch:
    return GangLaunch(*KEY, [Seat("n0")], 1, "true", "/tmp", {}, (), "secret", 3, None, None, None, 30.0)


@contextmanager
def stopped_at(point: str, fate: str) -> Iterator[tuple[RemoteEngine, Cluster]]:
    """An engine that was asked for the gang, with the stop given from within the call at that point, once."""
    reached: list[str] = []

    def reach(name: str) -> None:
        if name == point and not reached and KEY in (engine._unseen.gangs | dict.fromkeys(engine._seen)):
            reached.append(name)
            engine.stop(*KEY, 5.0, "user_stop")

    cluster = Cluster(fate, reach)
    engine = RemoteEngine("far", cluster)
    if point == "before":
        engine.launch(gang())
        engine.stop(*KEY, 5.0, "user_stop")
    engine.start()
    try:
        if point != "before":
            until(engine.answered, "its first look")
            engine.launch(gang())
        if point == "answered":
            until(lambda: cluster.launches, "the hand-over")
            engine.stop(*KEY, 5.0, "user_stop")
        if point == "seen":
            until(lambda: KEY in engine._seen or fate in ("held", "held after part", "unseen"), "it to be seen")
            engine.stop(*KEY, 5.0, "user_stop")
        yield engine, cluster
    finally:
        engine.close()


@pytest.mark.parametrize(("point", "fate"), list(product(POINTS, FATES)))
def test_a_stop_wins_wherever_it_comes(point: str, fate: str) -> None:
    with stopped_at(point, fate) as (engine, cluster):

        def ended() -> WorkerReport | None:
            found = [one for one in engine.poll() if one.status == "ended"]
            return found[0] if found else None

        # A point that this fate never comes to is no point: then the stop comes late, and wins all the same.
        def over() -> WorkerReport | None:
            passed = cluster.looks > 20 and not ended()
            if passed and not any(gang.order for gang in engine._unseen.gangs.values()):
                engine.stop(*KEY, 5.0, "user_stop")
            return ended()

        found = until(over, "its end")
        assert found is not None
        assert found.exit is not None
        assert (found.exit.outcome, found.exit.reason) == ("stopped", "user_stop")
        engine.forget(*KEY)
        until(lambda: not (cluster.parts | cluster.runs | cluster.ended.keys()), "nothing of it to be there")
        made, looks = list(cluster.made), cluster.looks
        cluster.fate = "taken"  # whatever held it back has gone
        until(lambda: cluster.looks > looks + 20, "further rounds")
        assert cluster.made == made, "something was made after the end"
        assert engine.poll() == []


def test_a_stop_before_the_first_look_reaches_what_an_earlier_server_left() -> None:
    cluster = Cluster("taken", lambda name: None)
    cluster.parts.add(KEY)
    cluster.runs.add(KEY)
    engine = RemoteEngine("far", cluster)
    engine.stop(*KEY, 5.0, "user_stop")
    engine.stop("nobody", 1, 5.0, "user_stop")
    engine.start()
    try:
        until(lambda: [one for one in engine.poll() if one.status == "ended"], "its end")
        assert cluster.ended.keys() == {KEY}
    finally:
        engine.close()


def test_what_is_held_is_told_tried_again_and_tried_at_once_when_something_goes() -> None:
    cluster = Cluster("held", lambda name: None)
    engine = RemoteEngine("far", cluster)
    engine.start()
    try:
        engine.launch(gang())
        until(lambda: [wait for wait in engine.waits() if wait.code == "Quota"], "its wait")
        assert engine.condition().ok
        cluster.fate = "taken"
        until(lambda: KEY in engine._seen, "it to be there")
        assert engine.waits() == []
    finally:
        engine.close()
