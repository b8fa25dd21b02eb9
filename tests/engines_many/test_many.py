"""Several engines as one: names that clash, orders that reach the right one, and one that is away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from test_remote import gang
from toy import BIG, node

from muster.core.errors import EngineError, NotFound
from muster.core.resources import Resources
from muster.core.seat import Seat
from muster.engines.base import Condition, Finding, GangLaunch, NodeInfo, WorkerReport
from muster.engines.many import AWAY_AFTER, Engines


@dataclass
class Far:
    """An engine that remembers what it was told."""

    name: str
    kind: str = "toy"
    there: list[NodeInfo] = field(default_factory=list)
    growing: dict[str, tuple[Resources, int]] = field(default_factory=dict)
    state: Condition = field(default_factory=lambda: Condition(True, 0.0, "fine"))
    reports: Sequence[WorkerReport] = ()
    told: list[tuple[object, ...]] = field(default_factory=list)
    has_reported: bool = True
    patience: float = 1.0
    abilities: Sequence[str] = ()

    def start(self) -> None: ...

    def answered(self) -> bool:
        return self.has_reported

    def nodes(self) -> Sequence[NodeInfo]:
        return self.there

    def launch(self, gang: GangLaunch) -> None:
        self.told.append(("launch", gang.job, gang.pool, [seat.node for seat in gang.seats], dict(gang.options)))

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        self.told.append(("stop", job))

    def poll(self) -> Sequence[WorkerReport]:
        return self.reports

    def forget(self, job: str, attempt: int) -> None: ...

    def on_change(self, wake: object) -> None: ...

    def close(self) -> None: ...

    def drain(self, node: str, why: str) -> None:
        self.told.append(("drain", node, why))

    def undrain(self, node: str) -> None:
        self.told.append(("undrain", node))

    def want(self, waiting: object) -> None:
        self.told.append(("want", waiting))

    def most(self) -> dict[str, tuple[Resources, int]]:
        return self.growing

    def condition(self) -> Condition:
        return self.state

    def diagnose(self) -> list[Finding]:
        return []


def pair() -> tuple[Far, Far, Engines]:
    a = Far("a", there=[node("n1"), node("n2", "cpu")])
    b = Far("b", "slurm", there=[node("n1"), node("n3", "cpu"), node("n4", "own")])
    return a, b, Engines([a, b])


def shown(engines: Engines) -> set[tuple[str, str, str]]:
    return {(one.name, one.pool, one.engine) for one in engines.nodes()}


def test_a_name_that_two_engines_use_is_told_apart() -> None:
    a, b, engines = pair()
    assert shown(engines) == {
        ("n1", "gpu", "a"), ("n2", "cpu", "a"), ("n1@b", "b-gpu", "b"), ("n3", "b-cpu", "b"), ("n4", "own", "b"),
    }  # fmt: skip
    assert {name: info.engine for name, info in engines.pools().items()} == {
        "gpu": "a", "cpu": "a", "b-gpu": "b", "b-cpu": "b", "own": "b",
    }  # fmt: skip
    there = gang("j", workers=1, pool="b-gpu", options={"slurm": {"qos": "high"}, "toy": {"x": 1}})
    there.seats = [Seat("n1@b")]
    engines.launch(there)
    there.pool, there.seats = "gpu", [Seat("n1")]
    engines.launch(there)
    assert b.told == [("launch", "j", "gpu", ["n1"], {"qos": "high"})]
    assert a.told == [("launch", "j", "gpu", ["n1"], {"x": 1})]
    b.reports = [WorkerReport("j", 1, 0, "running", node="n1")]
    assert [report.node for report in engines.poll()] == ["n1@b"]
    engines.drain("n1@b", "fan")
    engines.undrain("n1")
    engines.drain("nobody's", "fan")
    assert (b.told[-1], a.told[-1]) == (("drain", "n1", "fan"), ("undrain", "n1"))


@pytest.mark.parametrize("first", ["a", "b"])
def test_names_stay_whichever_engine_answers_first_after_a_restart(first: str) -> None:
    a, b, engines = pair()
    before = shown(engines)
    pools = {name: info.engine for name, info in engines.pools().items()}
    for far in (a, b):
        far.has_reported = far.name == first
    lists = {"a": a.there, "b": b.there}
    other = b if first == "a" else a
    other.there = []
    again = Engines([a, b])
    again.restore(pools, [(name, engine) for name, _, engine in before])
    assert shown(again) == {one for one in before if one[2] == first}
    assert again.has_reported(first)
    assert not again.has_reported(other.name)
    assert again.has_reported("no more")
    other.there = lists[other.name]
    assert shown(again) == before


def test_an_engine_that_is_no_more_leaves_its_names_to_others() -> None:
    engines = Engines([Far("b", there=[node("n1")])])
    engines.restore({"gpu": "gone", "b-gpu": "b"}, [("n1", "gone"), ("n1@b", "b")])
    assert shown(engines) == {("n1@b", "gpu", "b")}
    with pytest.raises(EngineError, match="No engine has the pool 'x'"):
        engines.launch(gang("j", workers=0, pool="x"))
    with pytest.raises(NotFound, match="There is no engine 'gone'"):
        engines.member("gone")


def test_who_waits_is_told_to_the_engine_of_the_pool() -> None:
    a, b, engines = pair()
    a.growing, b.growing = {"new": (BIG, 4)}, {"new": (BIG, 8), "gpu": (BIG, 2)}
    engines.nodes()
    assert engines.most() == {"new": (BIG, 4), "b-new": (BIG, 8), "b-gpu": (BIG, 2)}
    engines.want([("new", BIG, 1), ("b-new", BIG, 2), ("b-gpu", BIG, 3)])
    assert a.told == [("want", [("new", BIG, 1)])]
    assert b.told == [("want", [("new", BIG, 2), ("gpu", BIG, 3)])]


def test_an_engine_is_away_after_a_while_and_says_so_once() -> None:
    a, b, _ = pair()
    now = [1000.0]
    engines = Engines([a, b], clock=lambda: now[0])
    engines.nodes(), engines.pools()
    b.state = Condition(False, 1000.0, "no answer", "wake it")
    assert engines.away("b") == ""
    assert not engines.nodes_changed()
    now[0] += AWAY_AFTER
    assert engines.away("b") == "no answer"
    assert engines.nodes_changed()
    assert {name for name, info in engines.pools().items() if info.away} == {"b-gpu", "b-cpu", "own"}
    assert not engines.nodes_changed()
    b.state = Condition(True, now[0], "fine")
    assert engines.nodes_changed()
    assert not any(info.away for info in engines.pools().values())
