"""What every noun of the state must do: keep itself through JSON, through a restart of each store, and from the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy

from muster.core.attempt_events import AttemptEnded, AttemptPlanned
from muster.core.budget_events import BudgetGranted, BudgetRemoved, BudgetSet, JobReserved
from muster.core.cost_events import ProjectStored
from muster.core.entities import ENTITIES
from muster.core.entities.alert import (
    AlertAcknowledged,
    AlertActed,
    AlertFired,
    AlertPending,
    AlertResolved,
    AlertRulesSet,
    AlertTold,
    SilenceEnded,
    SilenceSet,
)
from muster.core.entities.certificate import PreflightPassed, PreflightRevoked, PreflightWaived
from muster.core.entities.node import NodeHealth, NodeJoined, NodeLeft
from muster.core.entities.node_record import NodeCharged, NodeChecked, NodeFinding
from muster.core.entities.pool import PoolSet
from muster.core.entities.price_book import PricesSet
from muster.core.entities.project import ProjectMember, ProjectSet
from muster.core.entities.provider_account import ProviderAccountBound, ProviderAccountReleased
from muster.core.entities.queue import QueueSet
from muster.core.entities.rules_in_force import RulesSet
from muster.core.entities.signing_key import SigningKeyMade
from muster.core.entities.study import (
    StudyChanged,
    StudyEnded,
    StudyEnqueued,
    StudyStarted,
    StudyStopped,
    StudyWaits,
    TrialEnded,
    TrialLeaving,
    TrialPaused,
    TrialPromoted,
    TrialReported,
    TrialStarted,
)
from muster.core.entities.token import TokenCreated, TokenRevoked
from muster.core.event import Event
from muster.core.job_events import JobFailed, JobRequeued
from muster.core.reasons import reason
from muster.core.record_events import RunPurged
from muster.core.resources import Resources
from muster.core.seat import Seat
from muster.core.state import State, apply
from muster.store import codec, tables
from muster.store.base import Store
from muster.store.registry import open_store
from scheduler_kit import job_event
from store_kit import check_against_log

NODE = NodeJoined("n0", "main", Resources(64_000, 2**30, 4, "H100"), {"rack": "r1"})
ATTEMPT = [
    Event(NODE, 1.0),
    Event(NodeJoined("gone", "main", Resources(1000), {}), 1.0),
    Event(NodeLeft("gone"), 1.5),
    job_event(1, gpus=2),
    Event(AttemptPlanned((Seat("n0", (0, 1)),)), 5.0, project="default", job="job-1", attempt=1),
    Event(AttemptEnded("failed", reason("user_error")), 9.0, project="default", job="job-1", attempt=1),
    Event(JobFailed(reason("user_error")), 9.0, project="default", job="job-1", attempt=1),
]
SUBJECT = {
    "kind": "run", "name": "job-1", "title": "job", "project": "default", "queue": "q", "pool": "main", "nodes": ["n0"],
}  # fmt: skip
FIRED = [
    Event(AlertFired(f"{rule} run/job-1", rule, "warning", SUBJECT, 0.2, "idle", {"value": "20%"}, 1.0), 2.0)
    for rule in ("idle", "told", "ended", "untold")
]
STUDY = [
    Event(StudyStarted("lr", {"name": "lr", "enqueue": [{"lr": 0.5}]}, "study: lr", 7, []), 1.0, "ada", "red", "lr-1"),
    *(
        Event(TrialStarted("lr-1", n, {"lr": 0.1 * n}, bracket=n), 2.0, "muster", "red", f"lr-{n + 2}")
        for n in range(3)
    ),
    Event(TrialStarted("lr-1", 3, {"lr": 0.5}, "enqueued", of=1, seed=4, replaces=2, step=40), 2.5, "muster", "red"),
    Event(TrialReported("lr-1", 0, [(9, 10, [0.5]), (3, 4, [0.7])], 30.0), 3.0, "muster", "red", "lr-2"),
    Event(TrialLeaving("lr-1", 0, note="not among the best"), 3.0, "muster", "red", "lr-2"),
    Event(TrialPaused("lr-1", 0, 10, 2_000_000, 60.0), 4.0, "muster", "red", "lr-2"),
    Event(TrialPromoted("lr-1", 0, "among the best by now"), 5.0, "muster", "red", "lr-2"),
    Event(TrialEnded("lr-1", 0, "complete", [0.4], "", 81, 5_000_000, 90.0, {"memory": 3.5}, ["memory < 3"]), 6.0),
    Event(TrialLeaving("lr-1", 1, "", "the study is stopped", True), 6.0, "muster", "red", "lr-3"),
    Event(TrialEnded("lr-1", 9, "complete", [0.4]), 6.0),
    Event(StudyEnqueued([{"lr": 0.3}]), 7.0, "ada", "red", "lr-1"),
    Event(StudyWaits(reason("over_budget", "nothing is left").to_dict()), 8.0, "muster", "red", "lr-1"),
    Event(StudyChanged({"name": "lr", "trials": 9}, "study: lr", "trials 5 to 9"), 9.0, "ada", "red", "lr-1"),
    Event(StudyStopped(reason("user_stop")), 10.0, "ada", "red", "lr-1"),
    Event(StudyEnded({"best": [0]}), 11.0, "muster", "red", "lr-1"),
    # One whose run is deleted for good.
    Event(StudyStarted("gone", {"name": "gone"}, "study: gone", 7, []), 12.0, "ada", "red", "gone-9"),
    *(Event(TrialStarted("gone-9", n, {"lr": 0.1}), 12.0, "muster", "red", f"gone-{n + 10}") for n in range(2)),
    Event(TrialEnded("gone-9", 0, "complete", [0.4]), 13.0, "muster", "red", "gone-10"),
    Event(RunPurged({"runs": 1}), 14.0, "ada", "red", "gone-9"),
]
# Events after which the state has entities of the noun, changed where they can change: kind → events.
SAMPLES: dict[str, list[Event]] = {
    "price_book": [
        Event(PricesSet({"version": n, "pools": {"main": [{"accelerator": n}]}}, f"# {n}"), n) for n in (1, 2)
    ],
    "budget": [
        Event(BudgetSet("team", 5_000_000, "USD", {"project": "default"}, spent={"1970-01": 7}), 1.0),
        Event(BudgetSet("gone", 1, "USD", {"user": "ada", "family": "job"}, "week", mode="stop"), 1.0),
        Event(BudgetSet("all", 9, "USD", {}, "fixed", "1970-01-01", "1970-01-31", "soft"), 1.0),
        job_event(3, gpus=2),
        Event(JobReserved(2_000_000), 3.0, project="default", job="job-3"),
        Event(BudgetGranted("team", "1970-01", 500_000, "a paper"), 4.0, "ada"),
        Event(BudgetRemoved("gone"), 5.0),
    ],
    "certificate": [
        Event(PreflightPassed("unit-1", "unit", "gpt", {"code": "ab"}, ["unit-gpt-3"], {}), 1.0, "ada", "red"),
        Event(PreflightWaived("canary-1", "canary", "gpt", {"code": "ab"}, "a deadline"), 2.0, "bob", "red"),
        Event(PreflightWaived("canary-2", "canary", "gpt", {"code": "cd"}, "a deadline"), 3.0, "bob", "red"),
        Event(PreflightRevoked("canary-2", "it was wrong"), 4.0, "bob", "red"),
    ],
    "charged_day": [
        Event(ProjectStored(day, 1, 2, "USD", 1), 1.0, project="default") for day in ("2026-11-17", "2026-11-18")
    ],
    "policy_prices": [
        Event(RulesSet({"pools": {"main": {"price": price}}}, ""), time)
        for time, price in ((1.0, 2.5), (2.0, 3), (3, 0))
    ],
    "project": [
        Event(ProjectSet("language", "models", {"ada": "admin"}), 1.0),
        Event(ProjectMember("language", "bob", "member"), 2.0),
        Event(ProjectMember("language", "ada", None), 3.0),
    ],
    "queue": [Event(QueueSet("research", "language", 10, 60), 1.0)],
    "pool": [
        Event(PoolSet("main", "slurm", True, "H100", True, machines=4), 1.0),
        Event(PoolSet("far", away="no answer"), 1.0),
    ],
    "node": [
        Event(NODE, 1.0),
        Event(NodeHealth("n0", "draining", "a new switch"), 2.0, "ada"),
        Event(NodeJoined("slurm/1", "slots", Resources(), {}, "slot"), 3.0),
        Event(NodeJoined("m1", "slots", Resources(8000), {"zone": "a"}, "machine"), 3.0),
        Event(NodeHealth("m1", "suspect", "it is hot", "engine"), 4.0),
        Event(NodeJoined("gone", "main", Resources(1000), {}), 5.0),
        Event(NodeLeft("gone"), 6.0),
    ],
    "token": [
        Event(TokenCreated("ab12", "laptop", "ada", "0" * 64, "member", expires_at=90.0), 1.0),
        Event(TokenCreated("cd34", "ci", "bob", "1" * 64, superuser=True), 2.0),
        Event(TokenRevoked("ab12"), 3.0),
    ],
    "signing_key": [
        Event(SigningKeyMade("ab12", "AAAA"), 1.0),
        Event(SigningKeyMade("cd34", "BBBB"), 2.0, "ada"),
    ],
    "provider_account": [
        Event(ProviderAccountBound("ab12", "https://login.example.org", "s-1", "ada", "cd34"), 1.0, "ada"),
        Event(ProviderAccountBound("ef56", "https://login.example.org", "s-2", "bob", "ab12"), 2.0, "bob"),
        Event(ProviderAccountReleased("ef56", "bob"), 3.0, "root"),
    ],
    "study": STUDY,
    "trial": STUDY,
    "study_progress": STUDY,
    "rules": [Event(RulesSet({"half_life": 3600.0}, "half_life: 1h"), 1.0)],
    "account": ATTEMPT,
    "demand": [job_event(1, gpus=2), job_event(2, gpus=0), job_event(3, gpus=2)],
    "typical_work": [job_event(number, gpus=number % 3) for number in range(1, 24)],
    "ledger": ATTEMPT,
    "node_record": [
        *ATTEMPT,
        job_event(2, gpus=2),
        Event(AttemptPlanned((Seat("n0", (0, 1)),)), 15.0, project="default", job="job-2", attempt=1),
        Event(AttemptEnded("failed", reason("node_lost", node="n0")), 19.0, project="default", job="job-2", attempt=1),
        Event(JobRequeued(reason("node_lost"), "node", 19.0), 19.0, project="default", job="job-2", attempt=1),
        Event(NodeCharged("n0", 1, "user_error"), 20.0, project="default", job="job-2", attempt=2),
        Event(NodeChecked("n0", [{"check": "disk", "status": "ok", "detail": "", "seconds": 0.1}]), 21.0, "ada"),
        Event(NodeChecked("n1", []), 22.0, "ada"),
        Event(NodeFinding("n1", "clock", "its clock is 3.0 s ahead"), 23.0),
    ],
    "alert": [
        *FIRED,
        Event(AlertTold("told default", ["told run/job-1", "ended run/job-1"], ["ops"]), 3.0),
        Event(AlertAcknowledged("told run/job-1", 2, "on it"), 3.5, "ada"),
        Event(AlertAcknowledged("idle run/job-1", 77, "of another firing"), 3.5, "ada"),
        Event(AlertResolved("ended run/job-1", 3, "ended", "it is over"), 4.0),
        Event(AlertResolved("untold run/job-1", 4, "untold", "it is over"), 4.0),
        Event(AlertResolved("idle run/job-1", 77, "idle", "of another firing"), 4.0),
    ],
    "pending_alert": [
        *(Event(AlertPending(f"{rule} run/job-1", rule, 300.0), 1.0) for rule in ("slow", "gone", "idle")),
        Event(AlertPending("gone run/job-1", "gone", 0.0), 2.0),
        *FIRED[:1],
    ],
    "silence": [
        Event(SilenceSet("ab12", 90.0, "maintenance", "idle", "default", "job-1", "n0"), 1.0, "ada"),
        Event(SilenceSet("cd34", 90.0, "maintenance"), 1.0, "ada"),
        Event(SilenceEnded("cd34"), 2.0, "ada"),
    ],
    "alert_rules": [Event(AlertRulesSet("rules: {}"), 1.0), Event(AlertRulesSet("groups: {}"), 2.0)],
    "alert_actions": [
        Event(AlertActed("idle run/job-1", 1, "idle", "stop", True, "stop job-1"), 1.0),
        Event(AlertActed("idle run/job-1", 1, "idle", "stop", False, "dry run"), 2.0),
    ],
}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = (
        f"sqlite:///{tmp_path}/muster.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    )
    return found


def folded(kind: str) -> State:
    state = State()
    for seq, event in enumerate(SAMPLES[kind], start=1):
        apply(state, event.stamped(seq))
    return state


def entities(state: State, kind: str) -> dict[str, object]:
    """The JSON of each entity, by name."""
    return {name: json.loads(codec.entity_text(kind, one)) for name, one in ENTITIES[kind].all(state).items()}


@pytest.mark.parametrize("kind", ENTITIES)
def test_it_has_a_sample(kind: str) -> None:
    assert ENTITIES[kind].kind == kind
    assert entities(folded(kind), kind), f"SAMPLES has no events that make a {kind}"


def test_a_study_whose_run_is_deleted_leaves_nothing_in_the_state() -> None:
    state = folded("study")
    assert list(state.studies) == list(state.trials) == ["lr-1"]
    assert not any(job.startswith("gone") for job in state.trial_jobs)
    assert not any(study.startswith("gone") for study in (*state.live_trials, *entities(state, "study_progress")))


@pytest.mark.parametrize("kind", ENTITIES)
def test_its_encoding_keeps_all_of_it(kind: str) -> None:
    for name, entity in ENTITIES[kind].all(folded(kind)).items():
        read = State()
        codec.load_entity(read, kind, name, codec.entity_text(kind, entity))
        (found,) = ENTITIES[kind].all(read).values()
        assert found == entity


@pytest.mark.parametrize("kind", ENTITIES)
def test_fields_of_another_release_are_dropped(kind: str) -> None:
    for name, entity in ENTITIES[kind].all(folded(kind)).items():
        doc = {**json.loads(codec.entity_text(kind, entity)), "of_another_release": 1}
        read = State()
        codec.load_entity(read, kind, name, json.dumps(doc))
        assert entities(read, kind) == {name: json.loads(codec.entity_text(kind, entity))}


@pytest.mark.parametrize("kind", ENTITIES)
def test_the_log_alone_rebuilds_it(kind: str) -> None:
    store = open_store("memory:")
    store.append(SAMPLES[kind])
    before = entities(store.state(), kind)
    store.reload()
    assert entities(store.state(), kind) == before == entities(folded(kind), kind)
    check_against_log(store)


@pytest.mark.parametrize("kind", ENTITIES)
def test_a_store_that_is_opened_again_has_it(url: str, kind: str) -> None:
    expected = entities(folded(kind), kind)
    first = open_store(url)
    first.append(SAMPLES[kind])
    first.close()
    assert entities_of(url, kind) == expected
    refold_at_next_start(url)
    assert entities_of(url, kind) == expected


def entities_of(url: str, kind: str) -> dict[str, object]:
    """What a store has after it is opened."""
    store: Store = open_store(url)
    try:
        check_against_log(store)
        return entities(store.state(), kind)
    finally:
        store.close()


def refold_at_next_start(url: str) -> None:
    """Empties the table, and makes the next start rebuild it from the log."""
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.delete(tables.entities))
        connection.execute(sqlalchemy.update(tables.head).values(fold=1))
    engine.dispose()
