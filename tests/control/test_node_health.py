"""Nodes that failed: which are checked, which a failed check takes out, what the breaker leaves, and who comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rig import LOST, Rig, nodes

from muster.control.ingest import Ingest
from muster.control.node_health import (
    BREAKER,
    CLOCK_EVERY,
    CLOCK_RIGHT,
    GONE,
    LATELY,
    OUT_FIRST,
    OUT_TIMES,
    nodes_to_check,
)
from muster.core.entities.node import CHECKS, SPOT, NodeHealth
from muster.core.entities.node_record import NODE_RECORDS
from muster.core.entities.rules_in_force import RulesSet
from muster.core.event import Event
from muster.core.rules import PoolRules, Rules
from muster.core.seat import Seat
from muster.engines.base import GangLaunch
from muster.engines.describe import Home, launch_of
from muster.wire import Batch, WorkerExit

FAULTY = WorkerExit("failed", "node_check_failed", "disk: what was read is not what was written", 0.0)


def fail(rig: Rig, end: WorkerExit, **spec: object) -> str:
    """A job whose attempt ends like this on the first node that is free; it goes on elsewhere."""
    job = rig.submit(retry={"backoff": 0}, **spec)
    rig.tick()
    at = rig.job(job).attempt.workers[0].node
    rig.end(job, end)
    rig.tick(3)
    rig.end(job)
    rig.tick(3)
    return at


def out(rig: Rig) -> dict[str, str]:
    return {node.name: node.why for node in rig.state.nodes.values() if node.health == "quarantined"}


def test_a_node_that_failed_lately_is_named_to_launchers_and_no_other() -> None:
    rig = Rig(nodes(3))
    seen: list[tuple[str, ...]] = []
    rig.engine.refuse = lambda gang: seen.append(tuple(gang.check_nodes))
    bad = fail(rig, LOST)
    assert seen == [(), (bad,)]
    assert nodes_to_check(rig.state, "main", rig.clock.now()) == (bad,)
    assert nodes_to_check(rig.state, "other", rig.clock.now()) == ()
    assert nodes_to_check(rig.state, "main", rig.clock.now() + LATELY) == ()
    rig.close()


def test_a_failed_check_takes_the_node_out_and_the_job_goes_on_elsewhere() -> None:
    rig = Rig(nodes(3))
    job = rig.submit(retry={"backoff": 0})
    rig.tick()
    bad = rig.job(job).attempt.workers[0].node
    rig.end(job, FAULTY)
    rig.tick(3)
    assert out(rig) == {bad: f"disk: what was read is not what was written (checked before {job} started)"}
    assert rig.state.nodes[bad].by == CHECKS
    assert rig.job(job).attempt.workers[0].node != bad
    assert rig.job(job).charges == {"node": 1}
    rig.close()


def test_the_breaker_leaves_the_rest_of_a_pool_alone() -> None:
    for count, most in ((1, 0), (3, 1), (20, 2), (40, int(40 * BREAKER))):
        rig = Rig(nodes(count))
        for _ in range(6):
            fail(rig, FAULTY)
        assert len(out(rig)) == most, count
        rig.close()


def test_what_people_took_out_is_not_the_checks_business() -> None:
    rig = Rig(nodes(20))
    for number in range(5):
        rig.tell(Event(NodeHealth(f"n{number}", "draining", "new fans"), rig.clock.now(), "ada"))
    rig.tick()
    assert len([fail(rig, FAULTY) for _ in range(2)]) == len(out(rig))
    rig.clock.time += OUT_FIRST * 2**OUT_TIMES
    rig.restart()
    rig.tick()
    assert rig.state.nodes["n0"].health == "draining"
    rig.close()


def test_it_comes_back_later_each_time_and_in_the_end_not_by_itself() -> None:
    rig = Rig([replace(node, name=name) for node, name in zip(nodes(2), ("bad", "good"), strict=True)])
    for number in range(OUT_TIMES):
        rig.tell(Event(NodeHealth("good", "draining", "kept away"), rig.clock.now(), "ada"))
        rig.tick()
        job = rig.submit(retry={"backoff": 0})
        rig.tick()
        rig.end(job, FAULTY)
        rig.tick(3)
        assert set(out(rig)) == {"bad"}
        rig.tell(Event(NodeHealth("good", "healthy", ""), rig.clock.now(), "ada"))
        rig.tick(3)
        rig.end(job)
        rig.tick(3)
        wait = OUT_FIRST * 2**number
        again(rig, wait - 1)
        assert set(out(rig)) == {"bad"}, number
        again(rig, 2)
        assert set(out(rig)) == ({"bad"} if number == OUT_TIMES - 1 else set()), number
    rig.tell(Event(NodeHealth("bad", "healthy", ""), rig.clock.now(), "ada"))
    assert out(rig) == {}
    rig.close()


def again(rig: Rig, seconds: float) -> None:
    """Time passes, and the engine is asked for its nodes anew."""
    rig.clock.time += seconds
    rig.engine._nodes_changed = True
    rig.tick()


def test_a_gang_on_a_spot_machine_that_is_taken_away_goes_on_elsewhere() -> None:
    rig = Rig(nodes(2))
    for spot in (False, True):
        rules = Rules(pools={"main": PoolRules(spot=spot)}).model_dump(mode="json")
        rig.tell(Event(RulesSet(rules=rules, text=""), rig.clock.now()))
        job = rig.submit(retry={"backoff": 0}, use_spot=spot)
        rig.tick()
        before = rig.job(job).attempt.workers[0].node
        ingest = Ingest(rig.store, rig.commit, rig.clock, 1 << 20)
        answer = ingest.accept(job, 1, Batch(0, "running", leaving=30.0))
        if not spot:  # a launcher's word takes no other machine out
            assert (answer.command, rig.job(job).phase) == (None, "running")
            rig.end(job)
            rig.tick(3)
            continue
        command = ingest.accept(job, 1, Batch(0, "running", leaving=29.0)).command
        assert (command.kind, command.reason, command.grace) == ("stop", "spot_notice", 28.0)
        assert (rig.state.nodes[before].health, rig.state.nodes[before].by) == ("draining", SPOT)
        rig.tick(3)
        assert rig.job(job).attempt.workers[0].node != before
        assert rig.job(job).charges == {"preempted": 1}
        again(rig, GONE - 60)
        assert rig.state.nodes[before].health == "draining"
        again(rig, 120)
        assert rig.state.nodes[before].health == "healthy", "it is another machine of that name"
    rig.close()


def test_a_gang_of_which_a_worker_is_told_to_leave_saves_if_its_cluster_says_why() -> None:
    """Whoever has the attempt's token can say that it is told to leave: only the cluster's word counts."""
    cases = [
        (None, True, None),
        (("cancelled_outside", "deleted by hand"), True, None),
        (("preempted", "others go first"), False, "preempted"),
        (("node_lost", "the machine shuts down"), False, "node_lost"),
        (("node_lost", "the machine shuts down"), True, "spot_notice"),
    ]
    for why, spot, code in cases:
        rig = Rig(nodes(2))
        rules = Rules(pools={"main": PoolRules(spot=spot)}).model_dump(mode="json")
        rig.tell(Event(RulesSet(rules=rules, text=""), rig.clock.now()))
        job = rig.submit(retry={"backoff": 0}, use_spot=spot)
        rig.tick()
        before = rig.job(job).attempt.workers[0].node
        ingest = Ingest(rig.store, rig.commit, rig.clock, 1 << 20, cause=lambda *key, why=why: why)
        ingest.accept(job, 1, Batch(0, "running", leaving=30.0, told=True))
        command = ingest.accept(job, 1, Batch(0, "running", leaving=29.0, told=True)).command
        assert (command.reason if command is not None else None) == code
        assert (rig.state.nodes[before].by == SPOT) == (code == "spot_notice")
        rig.tick(3)
        assert rig.job(job).charges == ({"preempted": 1} if code else {})
        rig.close()


def test_a_clock_that_is_off_is_told_once_and_again_when_it_is_right() -> None:
    rig = Rig(nodes(2))
    job = rig.submit()
    rig.tick()
    ingest = Ingest(rig.store, rig.commit, rig.clock, 1 << 20)
    (at,) = (worker.node for worker in rig.job(job).attempt.workers)

    def told(ahead: float, error: float, later: float = CLOCK_EVERY) -> list[str]:
        rig.clock.time += later
        reply = ingest.accept(job, 1, Batch(0, "running", offset=(ahead, error)))
        assert reply.time == rig.clock.now()
        return [event.data.text for event in rig.events if event.kind == "node.finding"]

    assert told(0.4, 0.1) == []
    assert told(3.0, 2.5) == [], "the error is too large to say"
    (first,) = told(-3.0, 0.5)
    assert first == "its clock is 3.0 s behind the server's, by at most 0.5 s more or less"
    assert len(told(-4.0, 0.5)) == 1
    assert told(0.0, 0.1) == [first, CLOCK_RIGHT]
    assert len(told(9.0, 0.1, later=1.0)) == 2, "a launcher that says something else each time fills no history"
    assert rig.state.nodes[at].health == "healthy"
    rig.close()


def test_a_link_far_below_the_others_is_a_finding_once_for_each_attempt() -> None:
    rig = Rig(nodes(6))
    ingest = Ingest(rig.store, rig.commit, rig.clock, log_limit=1000)
    job = rig.submit(num_nodes=5)
    rig.tick(2)
    workers = [worker.node for worker in rig.job(job).attempt.workers]

    def found() -> dict[str, list[str]]:
        records = NODE_RECORDS.all(rig.state).values()
        texts = {one.name: [entry["text"] for entry in one.history if entry["kind"] == "link"] for one in records}
        return {name: told for name, told in texts.items() if told}

    def tell(*speeds: float, worker: int = 0) -> None:
        links = tuple((number, speed, 0.2) for number, speed in enumerate(speeds, 1))
        ingest.accept(job, 1, Batch(worker, "running", links=links))

    tell(10.0, 1000.0, 1000.0)  # compared with two others: too few
    tell(300.0, 1000.0, 1000.0, 1000.0)  # slower, and not by far
    tell(10.0, 1000.0, 1000.0, 1000.0, worker=1)  # only the first worker measures
    tell(*[1000.0] * 4, 1.0, 1.0)  # there is no worker 5
    assert found() == {}
    tell(1000.0, 900.0, 10.0, 1100.0)
    tell(1000.0, 900.0, 10.0, 1100.0)
    text = f"its link to {workers[0]} carries 10 MB/s (round trip 0.20 ms), and those of 3 other nodes 1000 MB/s"
    text += " in the median"
    assert found() == {workers[3]: [text]}
    assert rig.state.nodes[workers[3]].health == "healthy"
    rig.close()


def test_links_are_measured_where_a_node_of_the_gang_failed_lately() -> None:
    home = Home(Path("/nowhere"), "test", lambda: ["http://127.0.0.1:1"])

    def measured(*names: str, check: tuple[str, ...] = ("n1", "n7")) -> bool:
        seats = tuple(Seat(name) for name in names)
        gang = GangLaunch(
            "job-1", 1, seats, 1, "true", "/", {}, (), "token", 3, None, None, None, 5.0, check_nodes=check
        )  # fmt: skip
        return launch_of(gang, 0, names[0], home, "/nowhere").links

    assert measured("n0", "n1")
    assert not measured("n0", "n1", check=())
    assert not measured("n0", "n2")
    assert not measured("n1"), "one node has no links"
    assert measured("pool/1", "pool/2"), "a cluster chooses its nodes later, and the server decides"
    assert not measured("pool/1", "pool/2", check=())
