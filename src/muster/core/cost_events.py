"""The events of the cost ledger: what an attempt cost, idle capacity, stored bytes, and corrections of these.

Amounts are millionths of the currency. A charge is never changed: a correction is an entry of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.core.budget_events import commit_money, correction_days, days_of, spend_money
from muster.core.entities.budget import Spender
from muster.core.entities.charged_day import note_day
from muster.core.entities.price_book import book_zone
from muster.core.payload import Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

# A part of the time of a charge: begin and end in microseconds since 1970, billionths for an hour (-1: no price), the
# amount, 1 if the platform pays it, the amount at list price, and the kind of price.
Line = list[int | str]


@payload("attempt.charged")
class AttemptCharged(Payload):
    """What an attempt that has ended cost: `amount` to its project, `platform` to the platform's account.

    `lines` cover the whole time that it held its seats, without a gap. `book`: the version of the price book, 0 for
    prices of the policy. `cause`: the code of the reason for which the platform pays, if it does. `held`: thousandths
    of accelerators, thousandths of CPUs, bytes of memory, workers.
    """

    amount: int
    platform: int
    currency: str
    pool: str
    book: int
    family: str
    environment: str
    held: list[int]
    lines: list[Line]
    cause: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs.get(event.job)
        if job is not None:
            job.spent += self.amount
            job.relaunch = self.cause
            commit_money(state, job, -min(job.reserved, self.amount), changes)
            changes.touch(job)
            if state.budgets:
                whose = Spender(event.project, job.user, self.family, self.environment)
                spend_money(state, whose, self.currency, days_of(self.lines, book_zone(state)), changes)


@payload("cost.corrected")
class CostCorrected(Payload):
    """A correction of the charge of an attempt: the differences, and the lines as they should have been.

    `charge` is the seq of the event that is corrected, `held` what it says; `why` says for what. `user`, `family` and
    `environment` are those of the charge, for budgets: its job may be over.
    """

    charge: int
    amount: int
    platform: int
    currency: str
    book: int
    held: list[int]
    lines: list[Line]
    why: str
    user: str = ""
    family: str = ""
    environment: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs.get(event.job)
        if job is not None:
            job.spent += self.amount
            changes.touch(job)
        if state.budgets:
            whose = Spender(event.project, self.user, self.family, self.environment)
            days = correction_days(self.amount, self.lines, book_zone(state))
            spend_money(state, whose, self.currency, days, changes)


@payload("pool.idle")
class PoolIdle(Payload):
    """Reserved or owned capacity that nobody used on one day, and who pays it: project → amount; "": the platform.

    `day` is a date in the time zone of the book. `idle`: thousandths of accelerators × milliseconds.
    """

    pool: str
    day: str
    idle: int
    amount: int
    currency: str
    book: int
    shares: dict[str, int]

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        note_day(state, f"pool/{self.pool}", self.day, changes)


@payload("project.stored")
class ProjectStored(Payload):
    """What a project kept on one day: bytes × milliseconds, and their price."""

    day: str
    kept: int
    amount: int
    currency: str
    book: int

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        note_day(state, f"project/{event.project}", self.day, changes)
