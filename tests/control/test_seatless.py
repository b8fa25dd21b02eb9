"""Jobs without nodes: a sweep runs from its submission until it is ended, and neither waits for nodes nor uses any."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig import Rig

from muster.control.submit import finish
from muster.core.entities.rules_in_force import RulesSet
from muster.core.errors import Invalid, MusterError
from muster.core.event import Event
from muster.core.parse import parse_job
from muster.core.reasons import reason
from muster.core.rules import QueueRules, Rules
from muster.core.spec import dump_job
from muster.sched.board import Board
from muster.sched.snapshot import take
from muster.sched.whatif import unsubmitted_job, what_if
from muster.store.past import LevelFilter, targets_of
from store_kit import check_against_log

SWEEP = {"name": "sweep", "kind": "sweep", "num_nodes": 0}


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def sweep(rig: Rig, **spec: object) -> str:
    job = rig.submit(**{**SWEEP, "run": "", **spec})
    rig.tick()
    return job


def test_it_runs_at_once_and_nothing_is_launched(rig: Rig) -> None:
    job = sweep(rig)
    found = rig.job(job)
    assert (found.phase, found.attempt, found.started_at) == ("running", None, found.submitted_at)
    assert rig.kinds(job) == ["job.submitted"]
    assert (rig.state.active, rig.state.accounts) == ({}, {})
    assert not any(rig.state.lines.values())
    check_against_log(rig.store)


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "stopped"])
def test_it_is_finished_by_a_proposal(rig: Rig, outcome) -> None:
    job = sweep(rig)
    rig.tick(seconds=60)
    rig._propose(finish(job, outcome, reason("completed", "all trials are over"), "ada", rig.clock.now()))
    found = rig.job(job)
    assert (found.phase, found.reason and found.reason.message) == (outcome, "all trials are over")
    assert found.finished_at == rig.clock.now()
    assert job not in rig.state.seatless
    with pytest.raises(Invalid, match="has ended already"):
        rig._propose(finish(job, outcome, reason("completed"), "ada", rig.clock.now()))
    check_against_log(rig.store)


def test_a_job_with_nodes_is_not_finished_by_a_proposal(rig: Rig) -> None:
    job = rig.submit(gpus=1)
    with pytest.raises(Invalid, match="has nodes"):
        rig._propose(finish(job, "succeeded", reason("completed"), "ada", rig.clock.now()))


def test_a_stop_ends_it_at_once_and_a_resume_lets_it_run_again(rig: Rig) -> None:
    job = sweep(rig)
    rig.stop(job)
    assert (rig.job(job).phase, rig.kinds(job)) == ("stopped", ["job.submitted", "job.stopped"])
    rig.resume(job)
    rig.tick()
    assert (rig.job(job).phase, rig.job(job).finished_at) == ("running", None)
    assert list(rig.state.seatless) == [job]
    check_against_log(rig.store)


def test_its_max_duration_is_kept_across_a_restart_of_the_server(rig: Rig) -> None:
    job, other = sweep(rig, max_duration="1h"), sweep(rig)
    assert rig.controller.next_wake() == rig.clock.now() + 3600
    rig.tick(seconds=3599)
    assert rig.job(job).phase == "running"
    rig.restart()
    rig.tick(seconds=1)
    found = rig.job(job)
    assert (found.phase, found.reason and found.reason.code) == ("stopped", "max_duration")
    assert rig.job(other).phase == "running"
    check_against_log(rig.store)


def test_a_resumed_one_has_its_whole_time_again(rig: Rig) -> None:
    job = sweep(rig, max_duration="1h")
    rig.tick(seconds=3600)
    rig.resume(job)
    rig.tick(seconds=3599)
    assert rig.job(job).phase == "running"
    rig.tick(seconds=1)
    assert rig.job(job).phase == "stopped"


def test_others_are_scheduled_next_to_it(rig: Rig) -> None:
    job = sweep(rig)
    child = rig.submit(gpus=4, num_nodes=2, parent=job)
    rig.tick()
    assert rig.job(child).phase == "running"
    rig.end(child)
    rig.tick()
    assert rig.job(child).phase == "succeeded"
    assert rig.job(job).phase == "running"


def test_rules_of_nodes_do_not_refuse_it(rig: Rig) -> None:
    rules = Rules(queues={"default": QueueRules(slice=60.0)})  # turns: one node a job
    rig.tell(Event(RulesSet(rules=rules.model_dump(mode="json"), text=""), rig.clock.now()))
    assert rig.job(sweep(rig)).phase == "running"
    with pytest.raises(MusterError, match="does not exist"):
        sweep(rig, queue="nowhere")


def test_it_counts_as_no_wait(rig: Rig) -> None:
    sweep(rig)
    want = LevelFilter(0.0, rig.clock.now(), targets_of(Rules()))
    assert rig.store.levels(want) == []


def test_a_dry_run_says_that_it_starts(rig: Rig) -> None:
    spec, now = parse_job(SWEEP), rig.clock.now()
    job = unsubmitted_job(rig.state, spec, "ada", now)
    found = what_if(take(rig.state, Board(), now), job)
    assert (found.starts_now, found.nodes, found.reasons) == (True, (), ())


def test_its_file_reads_back() -> None:
    spec = parse_job(SWEEP)
    assert (spec.num_nodes, spec.run) == (0, "")
    assert parse_job(dump_job(spec)) == spec


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"run": "true", "num_nodes": 0}, "num_nodes: got 0"),
        ({"kind": "train", "num_nodes": 0}, "num_nodes: got 0"),
        ({"kind": "sweep", "num_nodes": {"min": 0, "max": 2}, "run": "true"}, "`min` is at least 1"),
        ({"kind": "sweep"}, "run: got nothing"),
        ({"run": ""}, "run: got ''"),
    ],
)
def test_no_other_job_is_without_nodes_or_command(given, fault) -> None:
    with pytest.raises(MusterError, match="job has") as caught:
        parse_job({"name": "job", **given})
    assert fault in str(caught.value)
