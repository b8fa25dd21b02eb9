"""Jobs that start from a checkpoint of another run: which is meant, who may, what launchers are told, and what a killed
server makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rig import KILLED, OK, Rig

from muster import wire
from muster.control.admission import Site
from muster.control.reconcile import Launch, desired
from muster.control.restores import taken_events
from muster.control.submit import Submission, resume, submit, submit_together
from muster.core.attempt_events import CheckpointCommitted, CheckpointTaken
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.errors import MusterError, Refused
from muster.core.event import Event
from muster.core.job import Job
from muster.core.parse import parse_job
from muster.core.reasons import Reason
from muster.core.start import needed_by
from muster.engines.base import GangLaunch
from muster.store.memory import MemoryStore
from muster.store.sql import SqlStore
from muster.wire import WorkerExit
from store_kit import check_against_log

MISSING = WorkerExit("failed", "start_missing", "on node n0: /c/gpt-1 is not there", 0.0)


@pytest.fixture(params=["memory", "sqlite"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(store=MemoryStore() if request.param == "memory" else SqlStore(f"sqlite:///{tmp_path}/log.db"))
    yield made
    made.close()
    made.store.close()


def attempt_of(rig: Rig, job: str) -> int:
    attempt = rig.job(job).attempt
    return attempt.number if attempt is not None else 0


def saves(rig: Rig, job: str, *steps: int, place: str = "/c/{job}") -> None:
    """The job's program reports checkpoints."""
    for step in steps:
        path = f"{place.format(job=job)}/step-{step:09d}"
        event = CheckpointCommitted(step, path, 100)
        rig.tell(Event(event, rig.clock.now(), "muster", "default", job, attempt_of(rig, job)))


def takes(rig: Rig, job: str, step: int, how: str = "link") -> None:
    """Its launcher reports that it has taken a checkpoint."""
    start = rig.job(job).start
    assert start is not None
    taken = CheckpointTaken(start.run, step, f"/c/{job}/step-{step:09d}", 100, how)
    rig.tell(Event(taken, rig.clock.now(), "muster", "default", job, attempt_of(rig, job)))


def source(rig: Rig, *steps: int, name: str = "gpt", end: bool = True, **spec: object) -> str:
    """A job that has saved these steps."""
    job = rig.submit(name=name, **spec)
    rig.tick()
    saves(rig, job, *steps)
    if end:
        rig.end(job)
        rig.tick()
    return job


def launch_of(rig: Rig, job: str) -> GangLaunch:
    """What the launchers of its current attempt are told."""
    (action,) = desired(rig.state, [job], set(), lambda job, attempt: "token", rig.clock.now())
    assert isinstance(action, Launch)
    return action.gang


def planned(rig: Rig, job: str) -> GangLaunch:
    """The launch of its attempt, as if the engine had not answered yet."""
    found = rig.state.jobs[job]
    assert found.attempt is not None
    waiting = replace(found, phase="starting", attempt=replace(found.attempt))
    rig.state.jobs[job] = waiting
    try:
        return launch_of(rig, job)
    finally:
        rig.state.jobs[job] = found


def refused(rig: Rig, user: str = "ada", site: Site | None = None, **spec: object) -> Reason:
    parsed = parse_job({"run": "true", "name": "tune", **spec})
    with pytest.raises(Refused) as caught:
        rig._propose(submit(rig.store, Submission(parsed, user), rig.clock.now(), False, **(site or {})))
    (found,) = caught.value.reasons
    return found


def test_the_launchers_of_its_first_attempt_are_told_and_later_ones_go_on_from_their_own(rig: Rig) -> None:
    first = source(rig, 100, 200)
    job = rig.submit(name="tune", start_from=first)
    assert needed_by(rig.state, first) == [job]
    rig.tick()
    gang = planned(rig, job)
    assert gang.start == wire.Start(first, None, "", share=True)
    assert wire.CHECKPOINT_KNOWN not in gang.envs
    assert rig.job(job).attempt.from_step is None
    takes(rig, job, 200)
    found = rig.job(job)
    assert (found.start.taken, found.attempt.from_step, found.checkpoint.attempt) == (200, 200, 0)
    assert needed_by(rig.state, first) == []
    check_against_log(rig.store)
    rig.end(job, KILLED)
    rig.tick()
    rig.tick(seconds=600)
    gang = planned(rig, job)
    assert gang.start is None
    assert gang.envs[wire.CHECKPOINT_KNOWN] == f"/c/{job}/step-000000200"
    assert (gang.envs[wire.START_FROM], gang.envs[wire.START_STEP]) == (f"/c/{job}", "200")
    assert rig.job(job).attempt.from_step == 200
    saves(rig, job, 50)  # its program counts anew
    rig.end(job, KILLED)
    rig.tick()
    rig.tick(seconds=600)
    gang = planned(rig, job)
    assert gang.envs[wire.CHECKPOINT_KNOWN] == f"/c/{job}/step-000000050"
    assert wire.START_FROM not in gang.envs
    check_against_log(rig.store)


def test_killed_before_it_was_told_the_next_attempt_takes_it_again(rig: Rig) -> None:
    first = source(rig, 100)
    job = rig.submit(name="tune", start_from=f"{first}@100")
    rig.tick()
    rig.end(job, KILLED)
    rig.restart()
    rig.tick()
    rig.tick(seconds=600)
    assert attempt_of(rig, job) == 2
    assert planned(rig, job).start == wire.Start(first, 100, "", share=True)
    assert needed_by(rig.state, first) == [job]
    takes(rig, job, 100)
    rig.end(job, OK)
    rig.tick()
    assert rig.state.starters == {}
    check_against_log(rig.store)


def test_where_it_can_not_be_had_the_job_stops_and_asks(rig: Rig) -> None:
    first = source(rig, 100)
    job = rig.submit(name="tune", start_from=first)
    rig.tick()
    rig.end(job, MISSING)
    rig.tick()
    found = rig.job(job)
    assert (found.phase, found.reason.code) == ("stopped", "start_missing")
    assert "/c/gpt-1 is not there" in found.reason.message
    assert needed_by(rig.state, first) == []
    rig.resume(job)
    rig.tick()
    assert needed_by(rig.state, first) == [job]
    assert planned(rig, job).start is not None
    rig.end(job, MISSING)
    rig.tick()
    rig._propose(resume(rig.store, job, "ada", rig.clock.now(), False, start="scratch"))
    rig.tick()
    gang = planned(rig, job)
    assert (gang.start, gang.envs[wire.CHECKPOINT_SINCE]) == (None, "3")
    assert needed_by(rig.state, first) == []
    check_against_log(rig.store)


def test_begun_from_scratch_before_its_first_attempt_it_takes_nothing(rig: Rig) -> None:
    first = source(rig, 100)
    job = rig.submit(name="tune", start_from=first)
    rig.stop(job)
    rig._propose(resume(rig.store, job, "ada", rig.clock.now(), False, start="scratch"))
    rig.tick()
    assert planned(rig, job).start is None
    check_against_log(rig.store)


def test_resumed_with_another_step_it_goes_on_from_that(rig: Rig) -> None:
    first = source(rig, 100, 200)
    job = rig.submit(name="tune", start_from=first)
    rig.tick()
    takes(rig, job, 200)
    saves(rig, job, 300)
    rig.stop(job)
    rig.end(job, WorkerExit("stopped", "user_stop", "", 0.0))
    rig.tick()
    rig._propose(resume(rig.store, job, "ada", rig.clock.now(), False, start=200))
    rig.tick()
    gang = planned(rig, job)
    assert (gang.start, gang.envs[wire.CHECKPOINT_STEP]) == (None, "200")
    check_against_log(rig.store)


def test_a_job_may_start_from_one_that_it_needs(rig: Rig) -> None:
    first = rig.submit(name="pretrain")
    job = rig.submit(name="tune", needs=["pretrain"], start_from="pretrain")
    assert rig.job(job).start.run == first
    rig.tick()
    saves(rig, first, 100, place="s3://bucket/{job}")
    rig.end(first)
    rig.tick()
    assert planned(rig, job).start == wire.Start(first, None, f"s3://bucket/{first}", share=True)
    check_against_log(rig.store)


def test_jobs_of_one_call_may_start_from_each_other(rig: Rig) -> None:
    specs = [
        {"name": "tune", "needs": ["pretrain"], "start_from": "pretrain@500", "array": "1-2"}, {"name": "pretrain"},
    ]  # fmt: skip
    submissions = [Submission(parse_job({"run": "true", **spec}), "ada", trusted=True) for spec in specs]
    accepted, errors = dict[int, Event](), dict[int, MusterError]()
    rig._propose(submit_together(rig.store, submissions, rig.clock.now(), False, accepted, errors))
    assert errors == {}
    first, array = accepted[1].job, rig.job(accepted[0].job)
    tasks = [rig.state.by_number[array.number + i] for i in (1, 2)]
    assert array.start is None
    starts = [rig.job(task).start for task in tasks]
    assert [(one.run, one.step, one.trusted) for one in starts] == [(first, 500, True)] * 2
    assert needed_by(rig.state, first) == tasks
    specs[0] |= {"needs": []}
    submissions = [Submission(parse_job({"run": "true", **spec}), "ada") for spec in specs]
    rig._propose(submit_together(rig.store, submissions, rig.clock.now(), False, accepted, errors))
    (why,) = errors[0].reasons
    assert (why.code, "has reported no checkpoint" in why.message) == ("unknown_start", True)


def test_which_run_a_name_means(rig: Rig) -> None:
    older, newer = source(rig, 100), source(rig, 200)
    assert rig.job(rig.submit(name="tune", start_from="gpt")).start.run == newer
    assert rig.job(rig.submit(name="tune", start_from=f"{older}@100")).start.run == older
    array = source(rig, name="sweep", array="3-4", end=False)
    task = f"sweep-{rig.job(array).number + 2}"
    saves(rig, task, 10)
    assert rig.job(rig.submit(name="tune", start_from="sweep[4]@10")).start.run == task
    assert rig.job(rig.submit(name="tune", start_from=f"{array}[4]")).start.run == task
    running = [source(rig, 1, name="twice", end=False) for _ in range(2)]
    why = refused(rig, start_from="twice")
    assert (why.code, all(job in why.message for job in running)) == ("unknown_start", True)
    why = refused(rig, start_from=array)
    assert ("is an array" in why.message, why.hint) == (True, f"Name a task, such as `start_from: {array}[3]`.")


def test_a_run_without_that_checkpoint_is_refused_before_anything_is_launched(rig: Rig) -> None:
    live, over = source(rig, 100, end=False), source(rig, 100, 200, name="over")
    empty = source(rig, name="empty", end=False)
    for run in ("nobody", "nobody-7", f"{over}[1]"):
        assert refused(rig, start_from=run).code == "unknown_start"
    for run in (live, over):
        why = refused(rig, start_from=f"{run}@201")
        assert f"{run} has no checkpoint of step 201" in why.message
    why = refused(rig, start_from="empty")
    assert (f"{empty} has reported no checkpoint", "needs: [empty]" in why.hint) == (why.message, True)
    assert refused(rig, start_from=over, site={"purged": lambda run: run == over}).code == "unknown_start"


@pytest.mark.parametrize("text", ["../gpt-1", "gpt-1/..", "gpt-1@", "gpt-1@x", "gpt-1@-3", "@5", "GPT-1", "gpt 1", ""])
def test_what_is_no_name_of_a_run_is_a_mistake_in_the_file(text: str) -> None:
    with pytest.raises(MusterError, match="start_from"):
        parse_job({"name": "tune", "run": "true", "start_from": text})


def test_a_job_without_nodes_has_none() -> None:
    with pytest.raises(MusterError, match="`start_from` of a job without nodes"):
        parse_job({"name": "s", "kind": "sweep", "num_nodes": 0, "start_from": "gpt-1"})


# --- other projects, and other trust ----------------------------------------------------------------------------------
def other_project(rig: Rig) -> None:
    now = rig.clock.now()
    rig.tell(Event(ProjectSet(name="vision"), now), Event(QueueSet(name="vision", project="vision"), now))


def test_a_run_of_another_project_is_for_those_who_may_read_it_and_is_not_named_to_others(rig: Rig) -> None:
    other_project(rig)
    theirs = source(rig, 100, project="vision", queue="vision", name="secret")
    for written in (theirs, f"{theirs}@100", "secret"):
        why, unknown = refused(rig, start_from=written), refused(rig, start_from="nobody-9")
        assert why.message.replace(repr(written.partition("@")[0]), "X") == unknown.message.replace("'nobody-9'", "X")
    site: Site = {"may_read": lambda project: project == "vision"}
    assert refused(rig, start_from="secret", site=site).code == "unknown_start", "a name means a job of the project"
    parsed = parse_job({"run": "true", "name": "tune", "start_from": theirs})
    job = rig._propose(submit(rig.store, Submission(parsed, "ada"), rig.clock.now(), False, **site))[0].job
    rig.tick()
    assert planned(rig, job).start == wire.Start(theirs, None, "", share=False)
    own = source(rig, 100, name=theirs)  # a job of the project may have a name like that
    job = rig._propose(submit(rig.store, Submission(parsed, "ada"), rig.clock.now(), False, **site))[0].job
    assert rig.job(job).start.run == own


def test_a_job_of_other_trust_than_its_source_never_has_the_same_files(rig: Rig) -> None:
    spec = parse_job({"name": "gpt", "run": "true"})
    admins = rig._propose(submit(rig.store, Submission(spec, "root", trusted=True), rig.clock.now(), False))[0].job
    rig.tick()
    saves(rig, admins, 100)
    job = rig.submit(name="tune", start_from=admins)
    rig.tick()
    assert planned(rig, job).start.share is False
    # The administrator's run is resumed by a member: it is trusted no more, and neither is what it saves.
    rig.stop(admins)
    rig.end(admins, WorkerExit("stopped", "user_stop", "", 0.0))
    rig.tick()
    assert planned(rig, job).start.share is False
    parsed = parse_job({"run": "true", "name": "mine", "start_from": admins})
    mine = rig._propose(submit(rig.store, Submission(parsed, "root", trusted=True), rig.clock.now(), False))[0].job
    rig.tick()
    assert planned(rig, mine).start.share is True
    rig.resume(admins)
    rig.tick()
    assert planned(rig, mine).start.share is False
    rig.end(admins)
    rig.tick()
    assert planned(rig, mine).start.share is False, "it was a member's when it ended"
    check_against_log(rig.store)


# --- what programs say ------------------------------------------------------------------------------------------------
def test_only_what_makes_sense_is_taken_of_a_report() -> None:
    good = {"type": "taken", "step": 5, "path": "/c/x", "bytes": 3, "how": "link", "why": ""}
    assert taken_events([(0, good)], "gpt-1") == [CheckpointTaken("gpt-1", 5, "/c/x", 3, "link")]
    bad = [{"step": -1}, {"step": "5"}, {"step": True}, {"bytes": None}, {"bytes": 2**63}, {"step": 1.5}]
    assert taken_events([(0, {**good, **one}) for one in bad], "gpt-1") == []
    (odd,) = taken_events([(0, {**good, "how": "x" * 9, "path": "p" * 9999, "why": "w" * 9999, "run": "y"})], "gpt-1")
    assert (odd.run, odd.how, len(odd.path), len(odd.why)) == ("gpt-1", "copy", 4096, 500)


def test_a_report_of_a_job_that_starts_from_nothing_changes_nothing(rig: Rig) -> None:
    job = rig.submit()
    rig.tick()
    before = rig.job(job).to_doc()
    rig.tell(Event(CheckpointTaken("gpt-1", 5, "/c/x", 3, "link"), rig.clock.now(), "muster", "default", job, 1))
    assert rig.job(job).to_doc() == before


@pytest.mark.parametrize(
    ("path", "store"),
    [
        ("/c/gpt-1/step-000000001", ""), ("/elsewhere/gpt-1/step-000000001", ""), ("", ""), ("x", ""), ("a/b", ""),
        ("/data/own/step-000000001", "/data/own"), ("s3://b/gpt-1/step-000000001", "s3://b/gpt-1"),
        ("s3://b/p/step-000000001", "s3://b/p"), ("/a\nb/step-000000001", ""), ("/" + "x" * 5000 + "/step-1", ""),
    ],
)  # fmt: skip
def test_where_a_source_saves_if_its_program_chose_the_place(rig: Rig, path: str, store: str) -> None:
    first = rig.submit(name="gpt")
    rig.tick()
    rig.tell(Event(CheckpointCommitted(1, path, 1), rig.clock.now(), "muster", "default", first, 1))
    job = rig.submit(name="tune", start_from=first)
    if path.startswith("/c/gpt-1"):
        assert first == "gpt-1"
    found: Job = rig.job(job)
    assert found.start.store == store
