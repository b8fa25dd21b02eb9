"""What the bridge makes of agents' reports: every worker named once, half gangs kept back, lost nodes remembered."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engines.ray import gangs
from muster.engines.ray.gangs import Ledger, RayGang, group_key, group_name

A, B = ("node-a", "plain"), ("node-b", "plain")
ENDED = {"outcome": "succeeded", "reason": "completed", "detail": "", "time": 1.0}


def report(job: str, worker: int, status: str = "running", workers: int = 2, **more: Any) -> dict[str, Any]:
    exit_ = ENDED if status == "ended" else None
    base = {"job": job, "attempt": 1, "worker": worker, "status": status, "exit": exit_}
    return {**base, "workers": workers, "driver": False, **more}


def gang(job: str, nodes: list[str], driver: bool = False) -> RayGang:
    return RayGang(job, 1, nodes, nodes, ["{}"] * len(nodes), [{"CPU": 1.0}] * len(nodes), {}, driver)


def statuses(ledger: Ledger) -> dict[tuple[str, int], str]:
    return {(one["job"], one["worker"]): one["status"] for one in ledger.reports()}


def test_workers_of_all_agents_are_one_list() -> None:
    ledger = Ledger()
    ledger.record_reports(A, [report("x", 0), report("y", 0, "ended", workers=1)])
    ledger.record_reports(B, [report("x", 1)])
    assert statuses(ledger) == {("x", 0): "running", ("x", 1): "running", ("y", 0): "ended"}
    assert ledger.over() == {("y", 1)}
    assert ledger.agents_of(("x", 1)) == [A, B]


def test_a_half_gang_is_kept_back_so_that_it_is_launched_whole_and_shown_when_nobody_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger()
    ledger.record_reports(A, [report("x", 0)])
    assert statuses(ledger) == {}
    monkeypatch.setattr(gangs, "WITHHELD", 0.0)
    assert statuses(ledger) == {("x", 0): "running"}


def test_a_gang_under_way_is_pending_then_what_its_agents_say() -> None:
    ledger = Ledger()
    one = gang("x", ["node-a", "node-b"])
    ledger.gangs[one.key] = one
    assert statuses(ledger) == {("x", 0): "pending", ("x", 1): "pending"}
    one.stage = "starting"
    ledger.record_reports(A, [report("x", 0)])
    assert statuses(ledger) == {("x", 0): "running", ("x", 1): "starting"}


def test_a_lost_node_ends_what_ran_there_and_keeps_what_had_ended_before() -> None:
    ledger = Ledger()
    ledger.record_reports(A, [report("x", 0), report("y", 0, "ended", workers=1)])
    ledger.record_reports(B, [report("x", 1)])
    waiting = gang("z", ["node-a"])
    ledger.gangs[waiting.key] = waiting
    assert ledger.lose_node("node-a", "a") == {("x", 1), ("y", 1), ("z", 1)}
    found = {(one["job"], one["worker"]): one for one in ledger.reports()}
    assert found["x", 1]["status"] == "running"
    assert (found["x", 0]["exit"]["reason"], found["x", 0]["sure"]) == ("node_lost", True)
    assert found["z", 0]["exit"]["reason"] == "node_lost"
    assert found["y", 0]["exit"]["outcome"] == "succeeded"
    for key in (("x", 1), ("y", 1), ("z", 1)):
        ledger.forget(key)
    assert ledger.reports() == []


def test_the_other_workers_of_a_ray_program_go_with_worker_0() -> None:
    ledger = Ledger()
    ledger.record_reports(A, [report("x", 0, driver=True, workers=3)])
    assert statuses(ledger) == {("x", worker): "running" for worker in range(3)}
    ledger.record_reports(A, [report("x", 0, "ended", driver=True, workers=3)])
    found = ledger.reports()
    assert [(one["worker"], one["sure"]) for one in found] == [(0, False), (1, True), (2, True)]
    assert all(one["exit"]["outcome"] == "succeeded" for one in found)


def test_who_was_not_told_is_known() -> None:
    one = gang("x", ["node-a", "node-b"])
    one.launched.add(0)
    assert one.unlaunched() == [1]
    program = gang("y", ["node-a", "node-b"], driver=True)
    assert program.unlaunched() == [0, 1]
    program.launched.add(0)
    assert program.unlaunched() == []


def test_a_groups_name_says_whose_it_is() -> None:
    name = group_name("0123456789", ("job-7", 3))
    assert name.startswith("muster:0123456789:")
    assert group_key("0123456789", name) == ("job-7", 3)
