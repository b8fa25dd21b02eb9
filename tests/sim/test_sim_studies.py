"""Studies over the real controller in virtual time: what is decided does not depend on when the server is killed, and
troubles of machines are not the trials' fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.control.studies.start import change_study, enqueue_points, stop_study
from muster.control.submit import stop
from muster.core.budget_events import BudgetGranted
from muster.core.entities.study import TrialStarted
from muster.core.event import Event
from muster.core.reasons import reason
from muster.core.rules import QueueRules, Rules
from muster.cost.budget_file import parse_budgets
from muster.sim.model import Cluster, Costs, PoolShape, Setup, SimStudy, TraceJob
from muster.sim.run import Simulation, replay
from muster.sim.task import Program
from muster.store.base import Entry
from muster.store.registry import open_store
from muster.tune.plan import MOST_REPEATS
from muster.tune.searchers import SEARCHERS
from muster.tune.space import Parameter, Params, Space
from muster.tune.spec import Confirm, StudySpec
from muster.tune.stopping import STOPPING
from sim_study_kit import GB, PRICES, Played, Toy, others, play, setup_of, spec_of, with_trouble
from strategy_kit import pick

STUDY = "lr-1"
RULES = pytest.mark.parametrize("rule", list(STOPPING))
BAD = Toy(fails=0.1, diverges=0.1, memory=80 * GB)


def told(simulation: Simulation, *proposals: Any) -> None:
    for answer in simulation.propose(*proposals):
        assert not isinstance(answer, Exception), answer


# --- killed at any commit ---------------------------------------------------------------------------------------------
@RULES
@given(seed=st.integers(0, 1000), calm=st.booleans(), places=st.randoms(use_true_random=False))
@settings(max_examples=4)
def test_a_server_that_is_killed_decides_as_one_that_is_not(rule: str, seed: int, calm: bool, places: Random) -> None:
    setup = setup_of(spec_of(rule, confirm=Confirm(2, 2)), replace(BAD, seed=seed), seed=seed, memory=60 * GB)
    setup, trace = (setup, []) if calm else (with_trouble(setup, seed), others(seed))
    whole = play(setup, trace=trace)
    whole.check()
    numbers = places.sample(range(1, whole.commit.count + 1), 12)
    killed = play(setup, {number: places.choice(["before", "after"]) for number in numbers}, trace)
    killed.check()
    assert killed.commit.killed == 12
    assert killed.story() == whole.story()


@pytest.mark.parametrize("when", ["before", "after"])
@RULES
def test_a_server_that_is_killed_all_the_time(rule: str, when: Any) -> None:
    setup, trace = with_trouble(setup_of(spec_of(rule, trials=8), BAD, memory=60 * GB)), others(1)
    whole = play(setup, trace=trace)
    killed = play(setup, dict.fromkeys(range(3, 20 * whole.commit.count, 7), when), trace)
    assert killed.commit.killed > 20
    assert killed.story() == whole.story()


@pytest.mark.parametrize("search", list(SEARCHERS))
def test_any_searcher_goes_on_where_it_was(search: str) -> None:
    setup = setup_of(spec_of("asha", search, trials=20))
    whole = play(setup)
    killed = play(setup, dict.fromkeys(range(5, whole.commit.count, 9), "after"))
    assert killed.story() == whole.story()


def test_a_study_goes_on_from_a_database(tmp_path: Path) -> None:
    setup, trace = with_trouble(setup_of(spec_of("asha"), BAD, memory=60 * GB)), others(2)
    whole = play(setup, trace=trace)
    store = open_store(f"sqlite:///{tmp_path}/muster.db")
    killed = play(setup, dict.fromkeys(range(4, 10 * whole.commit.count, 11), "after"), trace, store=store)
    killed.check()
    assert killed.commit.killed > 10
    assert killed.story() == whole.story()
    state = store.state()
    store.reload()
    assert (store.state().trials, store.state().studies) == (state.trials, state.studies)
    store.close()


def test_the_run_times_that_a_database_loads_are_those_that_were_learnt(tmp_path: Path) -> None:
    """Orders are decided by them. Trials that are paused, and go on, must not count once more than their rows say."""
    store = open_store(f"sqlite:///{tmp_path}/muster.db")
    play(with_trouble(setup_of(spec_of("asha", trials=30, parallel=8), BAD)), trace=others(3, 20), store=store)
    live = store.state().history
    store.reload()
    loaded = store.state().history
    store.close()
    assert live.ends > 20
    assert (loaded.ends, loaded.common) == (live.ends, live.common)


def limits_changed(simulation: Simulation, **limits: Any) -> None:
    """The study file in force, with other limits."""
    known = simulation.store.state().studies[STUDY]
    spec = replace(StudySpec.of(known.doc), **limits)
    now = simulation.clock.now()
    told(simulation, change_study(simulation.store, STUDY, spec, "", "extended", "ada", now, False, True))


def stopped(simulation: Simulation) -> None:
    told(simulation, stop_study(STUDY, reason("user_stop"), "ada", simulation.clock.now()))


def trial_stopped(simulation: Simulation) -> None:
    state = simulation.store.state()
    number = next(iter(state.live_trials[STUDY]))
    told(simulation, stop(state.trials[STUDY][number].job, "ada", simulation.clock.now(), None))


def enqueued(simulation: Simulation) -> None:
    points = [{"lr": 0.02, "depth": 4}, {"lr": 0.01, "depth": 10, "width": 64}]
    told(simulation, enqueue_points(STUDY, points, "ada", simulation.clock.now()))


NARROW = Space((Parameter("lr", "float", 1e-3, 0.1, log=True), Parameter("depth", "int", 2, 8)))
SCRIPTS: dict[str, dict[float, Callable[[Simulation], Any]]] = {
    "a trial is stopped by hand": {100.0: trial_stopped, 130.0: trial_stopped},
    "points are tried first": {60.0: enqueued},
    "it is extended": {150.0: lambda it: limits_changed(it, trials=16)},
    "it gets more places": {170.0: lambda it: limits_changed(it, parallel=6)},
    "its space is changed": {120.0: lambda it: limits_changed(it, space=NARROW)},
    "it is stopped and resumed": {90.0: stopped, 400.0: limits_changed},
    "it is extended when it is over": {20_000.0: lambda it: limits_changed(it, trials=15)},
}  # fmt: skip


@pytest.mark.parametrize("rule", ["asha", "pbt", "halving"])
@pytest.mark.parametrize("name", list(SCRIPTS))
def test_what_people_do_meanwhile_is_kept_by_a_killed_server(name: str, rule: str) -> None:
    setup, script = setup_of(spec_of(rule), BAD, memory=60 * GB), SCRIPTS[name]
    whole = play(setup, script=script)
    whole.check()
    killed = play(setup, dict.fromkeys(range(2, 10 * whole.commit.count, 5), "after"), script=script)
    assert killed.story() == whole.story()


# --- what happens to trials -------------------------------------------------------------------------------------------
def test_troubles_of_a_program_are_told_apart() -> None:
    found = play(setup_of(spec_of("fifo", trials=40, parallel=8), Toy(fails=0.2, diverges=0.2), seed=1))
    found.check()
    assert {"complete", "failed", "diverged"} <= found.outcomes.keys()
    wide = play(setup_of(spec_of("fifo", trials=20), Toy(memory=80 * GB), memory=60 * GB))
    widths = {one.outcome: {trial.params.get("width") for trial in wide.trials.values() if trial.outcome == one.outcome}
              for one in wide.trials.values()}  # fmt: skip
    assert widths["infeasible"] == {256}
    assert 256 not in widths["complete"]


def test_a_trial_that_was_preempted_or_lost_its_node_is_the_same_trial() -> None:
    setup = with_trouble(setup_of(spec_of("fifo", trials=12), Toy()))
    found = play(setup, trace=others(4, 12))
    runs = found.simulation.studies.trials
    assert runs.tally.failures > 0
    assert sum(run.interruptions for run in runs.runs.values()) > runs.tally.failures
    assert found.outcomes == {"complete": 12}
    calm = play(setup_of(setup.studies[0].spec, Toy()))
    assert [(one.params, one.values) for one in found.trials.values()] == [
        (one.params, one.values) for one in calm.trials.values()
    ]


def test_a_trial_that_the_platform_lost_is_tried_again_and_says_nothing_of_its_parameters() -> None:
    spec = spec_of("asha", job={"retry": {"on": ["worker"]}})  # a lost node ends the job
    found = play(setup_of(spec, costs=Costs(checkpoint_every=60.0, node_failures=500.0, repair=10.0)))
    found.check()
    again = {one.replaces: one for one in found.trials.values() if one.replaces is not None}
    for one in found.trials.values():
        if one.outcome == "lost" and one.number in again:
            assert again[one.number].params == one.params
        elif one.outcome == "lost":
            assert times_lost(found, one.number) == MOST_REPEATS + 1
    assert again
    assert len(found.trials) == 12 + len(again)


def times_lost(found: Played, number: int | None) -> int:
    return 0 if number is None else 1 + times_lost(found, found.trials[number].replaces)


def test_a_paused_trial_goes_on_from_its_checkpoint() -> None:
    found = play(setup_of(spec_of("asha", trials=30)))
    runs = found.simulation.studies.trials.runs
    promoted = [one for one in found.trials.values() if one.starts > 1]
    assert promoted
    assert all(runs[one.job].steps == runs[one.job].step for one in promoted), "no step was done twice"
    assert all(one.seconds == pytest.approx(runs[one.job].held) for one in found.trials.values())


@given(seed=st.integers(0, 1000), keep=pick(1, 3))
@settings(max_examples=5)
def test_no_exploit_starts_without_a_checkpoint(seed: int, keep: int) -> None:
    options, job = {"interval": 1, "quantile": 0.3}, {"checkpoint": {"keep": keep}}
    spec = spec_of("pbt", trials=6, parallel=6, options=options, job=job)
    found = play(with_trouble(setup_of(spec, Toy(seed=seed, diverges=0.1), seed=seed), seed), trace=others(seed))
    found.check()
    tally = found.simulation.studies.trials.tally
    assert tally.missing == 0
    assert tally.exploits == sum(one.origin == "exploit" for one in found.trials.values())
    for one in found.events:
        if isinstance(one.data, TrialStarted) and one.data.origin == "exploit":
            assert one.data.step > 0


# --- money and time ---------------------------------------------------------------------------------------------------
def test_a_refused_trial_waits_for_a_grant_and_nothing_is_lost() -> None:
    limit = parse_budgets("budgets: {lab: {amount: 1.5 EUR}}", "EUR", source="budgets")
    setup = setup_of(spec_of("fifo"), prices=PRICES, budgets=limit)  # 300 seconds are reserved for each: 0.30

    def grant(simulation: Simulation) -> None:
        known = simulation.store.state().studies[STUDY]
        assert known.ended_at is None
        event = Event(BudgetGranted("lab", "1970-01", 60_000_000, "more"), simulation.clock.now(), "ada")
        told(simulation, lambda state: Entry([event]))

    found = play(setup, script={3000.0: grant})
    found.check()
    waits = [one for one in found.story() if one[1] == "study.waits"]
    assert "over_budget" in waits[0][3]
    assert found.outcomes == {"complete": 12}
    killed = play(setup, dict.fromkeys(range(2, 10 * found.commit.count, 7), "after"), script={3000.0: grant})
    assert [one[1:] for one in killed.story()] == [one[1:] for one in found.story()]


@pytest.mark.parametrize("rule", ["fifo", "asha", "pbt"])
@given(cost=st.integers(500_000, 4_000_000), seed=st.integers(0, 100))
@settings(max_examples=5)
def test_money_is_overspent_by_less_than_the_time_between_two_checkpoints(rule: str, cost: int, seed: int) -> None:
    setup = setup_of(spec_of(rule, trials=40, cost=cost, parallel=8), Toy(seed=seed), prices=PRICES, seed=seed)
    found = play(setup)
    found.check()
    spent = sum(one.cost for one in found.trials.values())
    every = setup.costs.checkpoint_every
    assert every is not None
    assert spent <= cost + 8 * every * 1000
    saving = 8 * (setup.costs.checkpoint_cost + 0.1) * 1000  # what is overspent is the time that saving takes
    assert spent <= cost + saving
    assert spent > cost / 2 or found.outcomes["complete"] == 40


def test_a_study_ends_at_its_time_and_its_trials_have_saved() -> None:
    found = play(setup_of(spec_of("fifo", trials=None, until=400.0)))
    found.check()
    assert found.study.ended_at - found.study.created_at == pytest.approx(402.0)
    assert found.study.stopped.code == "study_time_over"


def test_two_studies_share_a_cluster() -> None:
    setup = setup_of(spec_of("asha"))
    (first,) = setup.studies
    second = replace(first, spec=replace(spec_of("fifo"), name="other"), submit=50.0, user="bob")
    simulation = Simulation([], replace(setup, studies=(first, second)))
    found = simulation.run().studies
    assert [one.study.spec.name for one in found] == ["lr", "other"]
    assert all(one.ended is not None and not one.refused for one in found)
    assert found[1].outcomes == {"complete": 12}


@pytest.mark.parametrize(("amount", "tried"), [("0.1 EUR", 0), ("0.7 EUR", 2)])
def test_a_study_that_waits_for_ever_ends_the_simulation(amount: str, tried: int) -> None:
    limit = parse_budgets(f"budgets: {{lab: {{amount: {amount}}}}}", "EUR", source="budgets")
    (found,) = Simulation([], setup_of(spec_of("fifo"), prices=PRICES, budgets=limit)).run().studies
    assert bool(found.refused) == (tried == 0)
    assert found.ended is None
    assert sum(found.outcomes.values()) == tried


def test_the_same_setup_gives_the_same_study() -> None:
    setup, trace = with_trouble(setup_of(spec_of("hyperband"), BAD, memory=60 * GB)), others(5)
    first, second = play(setup, trace=trace), play(setup, trace=trace)
    assert first.story() == second.story()
    assert Played(first.simulation, first.commit).outcomes == second.outcomes


# --- beside other work ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Even:
    """Trials that take about the same time."""

    seconds: float

    def program(self, params: Params, seed: int) -> Program:
        each = self.seconds / 10 * Random(seed).uniform(0.7, 1.3)
        return Program(10, each, lambda step, learnt: {"loss": float(params["lr"])}, every=10)


@pytest.mark.parametrize("order", ["predicted", "shortest"])
@given(seconds=pick(300.0, 900.0, 3600.0), hours=pick(2, 10), at=st.integers(600, 5000))
@settings(max_examples=4)
def test_a_sweep_of_hundreds_does_not_starve_a_single_run(order: str, seconds: float, hours: int, at: int) -> None:
    """With places for 16 trials of 100 that are queued; it is known how long both sorts of work take."""
    rules, cluster = Rules(defaults=QueueRules(order=order)), Cluster((PoolShape("gpu", 2, 8),))
    long = hours * 3600.0
    runs = [TraceJob(f"past{n}", (n - 60) * long, long, 1, 1, user="ada", name="train") for n in range(40)]
    runs += [TraceJob(f"run{n}", at + n * long, long, 1, 1, user="ada", name="train") for n in range(2)]
    study = SimStudy(spec_of("fifo", trials=300, parallel=100), Even(seconds))
    setup = Setup("test", rules, cluster, Costs(checkpoint_every=600.0), studies=(study,))
    found = replay(runs, setup)
    target = rules.target("single", 50)
    if order == "shortest":  # it interrupts nobody, so that a run waits until the first trial is over
        target = max(target, seconds)
    assert all(one.queueing <= target for one in found.jobs[40:])
    (result,) = found.studies
    assert result.outcomes == {"complete": 300}
    alone = 300 * seconds / 16
    assert result.ended is not None
    assert result.ended <= 1.25 * alone + 3 * seconds, "the study goes on with what the runs leave"


def test_new_trials_have_the_service_of_their_study() -> None:
    """Otherwise each would have had the least, and a run of many hours would leave for one after the other."""
    rules, cluster = Rules(defaults=QueueRules(order="attained")), Cluster((PoolShape("gpu", 2, 8),))
    run = TraceJob("run", 3000.0, 36_000.0, 1, 1, user="ada", name="train")
    study = SimStudy(spec_of("fifo", trials=300, parallel=20), Even(1800.0))
    found = replay([run], Setup("test", rules, cluster, Costs(checkpoint_every=600.0), studies=(study,)))
    assert (found.jobs[0].preemptions, found.studies[0].outcomes) == (0, {"complete": 300})
    assert found.jobs[0].queueing < 1800.0


def test_a_study_comes_to_its_end_beside_a_stream_of_runs() -> None:
    """Runs of half an hour that take nine tenths of the cluster: a study gets what is left, and what its waits give."""
    random, at = Random(2), 0.0
    runs = []
    while at < 100_000:
        at += random.expovariate(1 / 250)
        runs.append(TraceJob(str(len(runs)), at, random.uniform(600, 3000), 1, 1, user="ada", name="train"))
    study = SimStudy(spec_of("fifo", trials=60, parallel=30), Even(900.0), submit=20_000.0)
    setup = Setup("test", Rules(), Cluster((PoolShape("gpu", 1, 8),)), Costs(checkpoint_every=600.0), studies=(study,))
    (result,) = replay(runs, setup).studies
    assert result.outcomes == {"complete": 60}
    assert result.ended is not None
    assert result.ended < 100_000, "it does not wait until nobody else comes"
