"""The charge of an attempt: the time that it held its seats at the price of each second, and who pays it.

The project pays, except for what the platform took away from it:

- the time of an attempt that never ran;
- the launch of an attempt that follows one that the platform ended;
- of an attempt that a lost node, a drain or a preemption ended, the time since its last checkpoint, as much as
  `lost_work` of the price book: the job has to do it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from muster.core.cost_events import AttemptCharged, Line
from muster.core.entities.price_book import prices_of
from muster.core.job import Attempt, Job
from muster.core.prices import SECOND, Prices, Quantity, amount, environment_of, family_of, quantity
from muster.core.reasons import Reason
from muster.core.state import State

TAKEN: Final = ("node", "preempted")  # categories of reasons for which the platform pays
UNPRICED: Final = -1  # in place of a price for an hour
PLATFORM: Final = 1  # in a line: the platform pays it


class Share(NamedTuple):
    """The times in microseconds that the platform pays, in order, and why; `code` is that of a reason."""

    times: tuple[tuple[int, int], ...]
    code: str  # for what it pays the next launch; "": it does not


def charge(state: State, job: Job, outcome: str, cause: Reason, now: float) -> AttemptCharged | None:
    """The charge of the job's attempt, which ends now; None where nothing has a price."""
    prices, attempt = prices_of(state), job.attempt
    if attempt is None or not prices.any:
        return None
    held = quantity(job.ask, len(attempt.workers))
    begin, end = _micros(attempt.planned_at), max(_micros(attempt.planned_at), _micros(now))
    share = platform_share(job, attempt, outcome, cause, end, prices.book.lost_work)
    lines = list(charge_lines(prices, attempt.pool, held, begin, end, share.times))
    total, platform = totals(lines)
    return AttemptCharged(
        total - platform, platform, prices.book.currency, attempt.pool, prices.book.version,
        family_of(prices.book, job.spec, job.user), environment_of(prices.book, job.spec, job.user),
        list(held), lines, share.code,
    )  # fmt: skip


def accrued_at(prices: Prices, job: Job, now: float) -> int:
    """What the attempt that the job holds seats for has cost so far, in millionths."""
    return totals(live_lines(prices, job, now))[0]


def live_lines(prices: Prices, job: Job, now: float) -> list[Line]:
    """The charge so far of the attempt that the job holds seats for."""
    attempt = job.attempt
    if attempt is None or not job.active:
        return []
    held, begin = quantity(job.ask, len(attempt.workers)), _micros(attempt.planned_at)
    return list(charge_lines(prices, attempt.pool, held, begin, max(begin, _micros(now)), ()))


def platform_share(job: Job, attempt: Attempt, outcome: str, cause: Reason, end: int, lost_work: float) -> Share:
    """What the platform pays of an attempt that ends at `end` (microseconds)."""
    begin = _micros(attempt.planned_at)
    stop = job.stop
    why = stop.reason if stop is not None and stop.then == "queued" else cause
    taken = outcome != "succeeded" and (stop is None or stop.then == "queued") and why.category in TAKEN
    if attempt.running_at is None and not _ran(attempt):
        return Share(((begin, end),) if begin < end else (), why.code if taken else "")
    running = min(max(begin, _micros(attempt.running_at or attempt.planned_at)), end)
    times = [(begin, running)] if job.relaunch else []
    if taken:
        mark = job.checkpoint
        saved = _micros(mark.time) if mark is not None and mark.attempt == attempt.number else running
        times.append((min(max(running, saved, end - _micros(lost_work)), end), end))
    return Share(tuple([one for one in times if one[0] < one[1]]), why.code if taken else "")


def charge_lines(
    prices: Prices, pool: str, held: Quantity, begin: int, end: int, platform: tuple[tuple[int, int], ...]
) -> Iterator[Line]:
    """The time in lines of one price and one payer."""
    for span in prices.spans(pool, held, begin, end):
        for since, until, account in _cut(span.begin, span.end, platform):
            kind = span.price.kind if span.price is not None else ""
            if span.nanos is None or span.list_nanos is None:
                yield [since, until, UNPRICED, 0, account, 0, kind]
                continue
            cost, listed = (amount(nanos, until - since) for nanos in (span.nanos, span.list_nanos))
            yield [since, until, span.nanos, cost, account, listed, kind]


def totals(lines: list[Line]) -> tuple[int, int]:
    """The sum of all lines, and of those that the platform pays."""
    found = [(int(line[3]), line[4] == PLATFORM) for line in lines]
    return sum(cost for cost, _ in found), sum(cost for cost, platform in found if platform)


def _cut(begin: int, end: int, platform: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int, int]]:
    at = begin
    for since, until in platform:
        since, until = max(since, at), min(until, end)
        if since >= until:
            continue
        if at < since:
            yield at, since, 0
        yield since, until, PLATFORM
        at = until
    if at < end:
        yield at, end, 0


def _ran(attempt: Attempt) -> bool:
    """Whether ranks ran which ended before the start of all of them was recorded."""
    exits = [worker.exit for worker in attempt.workers if worker.exit is not None]
    return any(
        one.get("outcome") == "succeeded" or one.get("exit_code") is not None or one.get("signal") is not None
        for one in exits
    )


def _micros(time: float) -> int:
    return round(time * SECOND)
