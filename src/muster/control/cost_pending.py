"""What attempts that still run have cost so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from muster.core.entities.price_book import prices_of
from muster.core.prices import environment_of, family_of
from muster.core.state import State
from muster.cost.charge import accrued_at
from muster.cost.ledger import Payer


class Pending(NamedTuple):
    """What an attempt that still runs has cost so far."""

    run: str
    payer: Payer
    price: str
    currency: str
    amount: int


def pending_of(state: State, now: float, projects: Sequence[str] | None) -> list[Pending]:
    """What attempts that hold seats have cost so far."""
    prices, wanted = prices_of(state), None if projects is None else frozenset(projects)
    if not prices.any:
        return []
    found, book = [], prices.book
    for job_id in state.active:
        job = state.jobs[job_id]
        if job.attempt is None or (wanted is not None and job.project not in wanted):
            continue
        if amount := accrued_at(prices, job, now):
            price = prices.at(job.attempt.pool, now)
            family, environment = (of(book, job.spec, job.user) for of in (family_of, environment_of))
            payer = Payer(job.project, job.user, job.queue, job.spec.kind, family, environment, job.attempt.pool)
            found.append(Pending(job.id, payer, price.kind if price is not None else "", book.currency, amount))
    return found
