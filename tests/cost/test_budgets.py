"""What budgets have spent and committed is the sum over their jobs, whatever happens; periods, and what is stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.attempt_events import AttemptPlanned, AttemptRunning, CheckpointCommitted
from muster.core.budget_events import BudgetGranted, BudgetRemoved, BudgetSet, JobReserved
from muster.core.cost_events import AttemptCharged, CostCorrected
from muster.core.entities.budget import BUDGETS, Budget, Spender, budgets_of, spender_of
from muster.core.entities.price_book import PricesSet, book_of, prices_of
from muster.core.event import Event
from muster.core.job_events import JobResumed, JobStopped, JobSubmitted
from muster.core.parse import parse_job
from muster.core.prices import SECOND
from muster.core.reasons import reason
from muster.core.seat import Seat
from muster.core.state import State, apply
from muster.cost.budgets import budget_uses, projected, spent_at, use_of, victims
from muster.store.memory import MemoryStore
from scheduler_kit import entities, fold, job_event, node_event
from store_kit import check_against_log

DAY = 86_400
START = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()  # a Sunday, two days before December
HOURLY = {"pools": {"main": [{"accelerator": 3_600_000_000}]}}  # 3.60 an hour: 1,000 millionths a second
FAMILIES: list[list[dict[str, str]]] = [[], [{"name": "one", "project": "alpha"}], [{"name": "two"}]]
SCOPES = [{}, {"project": "alpha"}, {"user": "ada"}, {"family": "one"}, {"environment": "ci"},
          {"project": "beta", "user": "bob"}, {"project": "alpha", "family": "two", "user": "ada"}]  # fmt: skip
amounts = st.integers(0, 10**9)
operations = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["alpha", "beta"]), st.sampled_from(["ada", "bob"]),
              st.sampled_from([{}, {"family": "one"}, {"environment": "ci"}]), amounts),
    st.tuples(st.just("charge"), st.integers(0, 9), amounts, st.integers(0, 5 * DAY)),
    st.tuples(st.just("correct"), st.integers(0, 9), st.integers(-(10**6), 10**6)),
    st.tuples(st.just("again"), st.integers(0, 9), amounts),
    st.tuples(st.sampled_from(["requeue", "end", "resume"]), st.integers(0, 9)),
    st.tuples(st.just("set"), st.integers(0, 3), st.sampled_from(SCOPES), st.sampled_from(["week", "month"])),
    st.tuples(st.just("remove"), st.integers(0, 3)),
    st.tuples(st.just("grant"), st.integers(0, 3), amounts),
    st.tuples(st.just("book"), st.sampled_from(FAMILIES)),
)  # fmt: skip


@dataclass
class World:
    """Events in a memory store, and what each budget must have spent."""

    store: MemoryStore = field(default_factory=MemoryStore)
    spent: dict[str, int] = field(default_factory=dict)
    number: int = 0

    @property
    def state(self) -> State:
        return self.store.state()

    def tell(self, data: Any, project: str = "", job: str = "") -> None:
        self.store.append([Event(data, START + self.state.version, "ada", project, job)])

    def jobs(self, live: bool) -> list[str]:
        known = [f"job-{number}" for number in range(1, self.number + 1)]
        return [name for name in known if (name in self.state.jobs) is live]

    def do(self, what: str, *given: Any) -> None:
        state = self.state
        if what == "submit":
            project, user, tags, amount = given
            self.number += 1
            spec = parse_job({"name": "job", "run": "true", "project": project, "tags": tags})
            self.tell(JobSubmitted(self.number, "q", user, spec.model_dump(mode="json"), reserve=amount), project,
                      f"job-{self.number}")  # fmt: skip
        elif what == "set":
            which, scope, period = given
            self.spent[f"b{which}"] = 7
            name = "2026-11" if period == "month" else "2026-W48"
            self.tell(BudgetSet(f"b{which}", 10, "USD", scope, period, spent={name: 7}))
        elif what == "remove":
            self.spent.pop(f"b{given[0]}", None)
            self.tell(BudgetRemoved(f"b{given[0]}"))
        elif what == "grant":
            self.tell(BudgetGranted(f"b{given[0]}", "2026-11", given[1], "why"))
        elif what == "book":
            self.tell(PricesSet({"families": given[0]}))
        elif what == "resume":
            if over := self.jobs(live=False):
                job = self.store.job(over[given[0] % len(over)])
                assert job is not None
                doc = job.spec.model_dump(mode="json")
                self.tell(JobResumed(job.to_doc(), doc, reason("resumed"), reserve=5), job.project, job.id)
        elif living := self.jobs(live=True):
            job = state.jobs[living[given[0] % len(living)]]
            self.happen(what, job, *given[1:])

    def happen(self, what: str, job: Any, *given: int) -> None:
        whose = spender_of(book_of(self.state), job.spec, job.user)
        if what == "end":
            self.tell(JobStopped(reason("user_stop")), job.project, job.id)
        elif what == "requeue":
            self.tell(JobReserved(job.reserved), job.project, job.id)
        elif what == "again":
            self.tell(JobReserved(given[0]), job.project, job.id)
        else:
            amount, seconds = (given[0], given[1] if len(given) > 1 else 60)
            begin = round(START * SECOND)
            line = [begin, begin + (seconds + 1) * SECOND, 1, amount, 0, amount, "on_demand"]
            free = [begin, begin + SECOND, 1, 99, 1, 99, "on_demand"]  # the platform's
            for budget in budgets_of(self.state, whose):
                self.spent[budget.name] += amount
            if what == "charge":
                data: Any = AttemptCharged(amount, 99, "USD", "main", 0, *whose[2:], [0] * 4, [line, free])
            else:
                line[3] = 10**6
                data = CostCorrected(1, amount, 0, "USD", 0, [0] * 4, [line], "why", whose.user, *whose[2:])
            self.tell(data, job.project, job.id)

    def check(self) -> None:
        state, book = self.state, book_of(self.state)
        for name, budget in state.budgets.items():
            mine = [job for job in state.jobs.values() if budget.covers(spender_of(book, job.spec, job.user))]
            assert budget.committed == sum(job.reserved for job in mine)
            assert sum(budget.spent.values()) == self.spent[name]
        for job in state.jobs.values():
            whose = spender_of(book, job.spec, job.user)
            assert {one.name for one in budgets_of(state, whose)} == {
                name for name, one in state.budgets.items() if one.covers(whose)
            }


@settings(max_examples=40, deadline=None)
@given(st.lists(operations, min_size=8, max_size=25))
def test_committed_and_spent_are_the_sums_over_jobs_and_survive_a_restart(steps: list[Any]) -> None:
    world = World()
    world.store.open()
    for which in range(3):
        world.do("set", which, SCOPES[which], "month")
    for step in steps:
        world.do(*step)
        world.check()
    before, index = dict(world.state.budgets), dict(world.state.budget_index)
    world.store.reload()
    assert (world.state.budgets, world.state.budget_index) == (before, index)
    check_against_log(world.store)


def charged(amount: int, begin: float, seconds: float, **more: Any) -> AttemptCharged:
    line = [round(begin * SECOND), round((begin + seconds) * SECOND), 1, amount, 0, amount, "on_demand"]
    return AttemptCharged(amount, 0, "USD", "main", 0, "job", "", [0] * 4, [line], **more)


def test_a_charge_over_midnight_of_the_months_end_counts_in_both_months() -> None:
    zone = {"timezone": "Europe/Berlin"}
    midnight = datetime(2026, 12, 1, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    state = fold([
        Event(PricesSet(zone), 1.0),
        Event(BudgetSet("month", 10, "USD", {}), 1.0),
        Event(BudgetSet("week", 10, "USD", {}, "week"), 1.0),
        Event(BudgetSet("fixed", 10, "USD", {}, "fixed", "2026-11-01", "2026-11-30"), 1.0),
        Event(BudgetSet("euros", 10, "EUR", {}), 1.0),
        job_event(1),
        Event(charged(4_000, midnight - 900, 3600), midnight + 2700, project="default", job="job-1"),
    ])  # fmt: skip
    assert state.budgets["month"].spent == {"2026-11": 1_000, "2026-12": 3_000}
    assert state.budgets["week"].spent == {"2026-W49": 4_000}
    assert state.budgets["fixed"].spent == {"fixed": 1_000}, "what is after its last day does not count"
    assert state.budgets["euros"].spent == {}, "amounts of two currencies are never added"


def test_a_month_in_which_clocks_change_has_an_hour_more() -> None:
    zone = ZoneInfo("Europe/Berlin")
    one = Budget("b", 1, "USD")
    october, november = (one.bounds(name, zone) for name in ("2026-10", "2026-11"))
    assert (october.end - october.begin, november.end - november.begin) == (31 * DAY + 3600, 30 * DAY)
    assert october.end == november.begin
    weekly = Budget("b", 1, "USD", period="week")
    change = weekly.bounds(weekly.period_of("2026-10-25"), zone)
    assert change.end - change.begin == 7 * DAY + 3600


def test_a_grant_is_for_one_period_and_a_budget_that_is_set_again_keeps_it() -> None:
    granted = Event(BudgetGranted("b", "2026-11", 5, "a paper"), 2.0)
    state = fold([Event(BudgetSet("b", 10, "USD", {}), 1.0), granted, Event(BudgetSet("b", 20, "USD", {}), 3.0)])
    assert (state.budgets["b"].limit("2026-11"), state.budgets["b"].limit("2026-12")) == (25, 20)


def submitted(number: int, **spec: Any) -> Event:
    return job_event(number, resources={"accelerators": "H100:1"}, **spec)


def cluster(*more: Event, book: dict[str, Any] = HOURLY) -> State:
    return fold([*entities(), node_event("n0", 8, 64), Event(PricesSet(book), 1.0), *more])


def test_the_projection_is_bounded_by_what_the_job_file_says() -> None:
    state = cluster()

    def cost(pools: tuple[str, ...] = ("main",), spent: int = 0, **spec: Any) -> int:
        parsed = parse_job({"name": "j", "run": "true", "resources": {"accelerators": "H100:2"}, **spec})
        return projected(state, parsed, "ada", pools, START, spent)

    assert cost() == 7_200_000, "an hour is assumed"
    assert cost(max_duration="30m") == 3_600_000
    assert cost(num_nodes=3) == 3 * 7_200_000
    assert cost(budget="2 USD") == 2_000_000
    assert cost(budget="2 USD", spent=1_500_000) == 500_000
    assert cost(pools=("elsewhere",)) == 0
    dear = {"pools": {**HOURLY["pools"], "dear": [{"accelerator": 36_000_000_000}]}}
    state = cluster(book=dear)
    assert cost(pools=("main", "dear")) == 72_000_000, "wherever it starts, it is covered"
    assert cost(pools=("main", "dear"), max_hourly_cost="10 USD") == 7_200_000


def started(number: int, at: float, **spec: Any) -> list[Event]:
    about = {"project": "default", "job": f"job-{number}", "attempt": 1}
    seats = AttemptPlanned((Seat("n0", (number,)),))
    return [submitted(number, **spec), Event(seats, at, **about), Event(AttemptRunning(), at, **about)]


def test_the_least_valuable_is_stopped_first_and_only_as_many_as_it_takes() -> None:
    saved = Event(CheckpointCommitted(5, "/c", 1), START + 900, project="default", job="job-2", attempt=1)
    state = cluster(
        Event(BudgetSet("b", 10_000_000, "USD", {"project": "default"}, mode="stop"), 1.0),
        *started(1, START), *started(2, START), *started(3, START, priority="high"), *started(4, START, priority="low"),
        saved,
    )  # fmt: skip
    jobs = [state.jobs[name] for name in state.active]

    def stopped(seconds: float) -> list[str]:
        use = budget_uses(state, START + seconds)["b"]
        return [job.id for job in victims(state, use, jobs, START + seconds)]

    # Four jobs, 1,000 millionths a second each, have spent 10 USD after 2,500 s. A stop takes 10 + 30 s of each.
    assert stopped(2000) == []
    assert stopped(2461) == ["job-4"], "the lowest priority"
    assert stopped(2472) == ["job-4", "job-2"], "then the one that loses least: it saved"
    assert stopped(2495) == ["job-4", "job-2", "job-1", "job-3"]
    assert stopped(3000) == ["job-4", "job-2", "job-1", "job-3"]


def test_used_left_and_forecast() -> None:
    state = cluster(
        Event(BudgetSet("b", 10**8, "USD", {}, days={"2026-11-28": 4_000_000}, spent={"2026-11": 9_000_000}), 1.0),
        *started(1, START),
    )
    use = use_of(state, state.budgets["b"], START + 1000)
    assert use is not None
    assert (use.name, use.spent, use.used) == ("2026-11", 9_000_000, 10_000_000)
    rest = datetime(2026, 12, 1, tzinfo=UTC).timestamp() - START - 1000
    assert use.forecast == 10_000_000 + int(5_000_000 / (2 * DAY) * rest), "5 USD in two days"
    late = use_of(state, state.budgets["b"], START + 3 * DAY)
    assert late is not None
    assert late.name == "2026-12"
    assert late.used < 3 * DAY * 1000, "what was before midnight counts in November"


def test_when_a_jobs_own_budget_is_spent() -> None:
    half = {"pools": {"main": [{"accelerator": 3_600_000_000, "until": START + 500},
                               {"since": START + 500, "accelerator": 7_200_000_000}]}}  # fmt: skip
    state = cluster(*started(1, START, budget="1 USD"), book=half)
    job = state.jobs["job-1"]
    assert spent_at(prices_of(state), job, START) == START + 500, "the price changes then"
    assert spent_at(prices_of(state), job, START + 500) == START + 750
    assert spent_at(prices_of(state), job, START + 800) == START + 800


def test_a_scope_without_parts_covers_all_and_the_index_forgets() -> None:
    state = State()
    for seq, data in enumerate([BudgetSet("b", 1, "USD", {"user": "ada"}), BudgetSet("b", 1, "USD", {})], 1):
        apply(state, Event(data, 1.0).stamped(seq))
    assert state.budget_index == {("", ""): {"b": None}}
    assert [one.name for one in budgets_of(state, Spender("p", "u", "f", ""))] == ["b"]
    apply(state, Event(BudgetRemoved("b"), 1.0).stamped(3))
    assert (state.budgets, state.budget_index, BUDGETS.all(state)) == ({}, {}, {})
