"""An entry of the ledger in words: the arithmetic that its amount is made of, who pays it, and why."""

from __future__ import annotations

from typing import Final

from muster.api.cost_reports import CostEntry
from muster.core.money import NANO, format_amount
from muster.core.prices import SECOND
from muster.core.reasons import REASONS
from muster.core.resources import WHOLE
from muster.core.units import format_duration
from muster.cost.charge import UNPRICED
from muster.cost.ledger import IDLE_ACCOUNT, PLATFORM_ACCOUNT, STORAGE_ACCOUNT, LedgerEntry
from muster.cost.report.sums import HELD_HOUR, hours

_MILLI: Final = SECOND // 1000


def explained(one: LedgerEntry) -> CostEntry:
    payer = one.payer
    return {
        "seq": one.seq,
        "part": one.part,
        "run": one.run,
        "attempt": one.attempt,
        "day": one.day,
        "begin": one.begin / SECOND,
        "end": one.end / SECOND,
        "project": payer.project,
        "user": payer.user,
        "queue": payer.queue,
        "kind": payer.kind,
        "family": payer.family,
        "environment": payer.environment,
        "pool": payer.pool,
        "account": one.account,
        "price": one.price,
        "unit": one.unit,
        "currency": one.currency,
        "amount": one.amount,
        "listed": one.listed,
        "hours": hours(one.held),
        "unpriced_hours": hours(one.unpriced),
        "rate": None if one.rate == UNPRICED else one.rate / NANO,
        "book": one.book,
        "correction": one.correction,
        "cause": one.cause,
        "words": arithmetic(one),
        "paid_by": payment(one),
    }


def arithmetic(one: LedgerEntry) -> str:
    """`3h20m × 8 accelerators × 2.99 = 79.73 USD`: the time, what was held, and the price of one for an hour."""
    amount = format_amount(one.amount, one.currency)
    text = ""
    if one.account == STORAGE_ACCOUNT:
        text = f"stored on {one.day} = {amount}"
    elif not one.run:
        text = f"{hours(one.held):,.2f} accelerator-hours that nobody used = {amount}"
    else:
        text = f"{_held(one)}{_price(one)}"
    if one.correction:
        text = f"{'taken back' if one.held < 0 or one.amount < 0 else 'put in its place'}: {text}"
    return text


def payment(one: LedgerEntry) -> str:
    """Who pays, and why."""
    if one.account == IDLE_ACCOUNT:
        whose = f"project {one.payer.project}: its share of" if one.payer.project else "the platform:"
        return f"{whose} capacity that nobody used"
    if one.account == PLATFORM_ACCOUNT:
        reason = REASONS.get(one.cause)
        why = (
            f"{one.cause} took it from the project" if reason is not None else "the attempt never ran, or was a repeat"
        )
        return f"the platform: {why}"
    return f"project {one.payer.project}: its own work"


def _held(one: LedgerEntry) -> str:
    microseconds = one.end - one.begin
    seconds = microseconds / SECOND
    lasted = format_duration(round(seconds)) if seconds >= 60 else f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    count = f"{_units(one) / WHOLE:.3f}".rstrip("0").rstrip(".")
    return f"{lasted} × {count} {one.unit}{'' if count == '1' else 's'}"


def _price(one: LedgerEntry) -> str:
    if one.rate == UNPRICED:
        return ": no price, so nothing is charged for it"
    each = one.rate * WHOLE / _units(one) / NANO
    shown = f"{each:,.6f}".rstrip("0")
    shown = shown + "0" * max(0, 2 - len(shown.partition(".")[2]))
    kind = f" ({one.price})" if one.price else ""
    return f" × {shown} an hour{kind} = {format_amount(one.amount, one.currency)}"


def _units(one: LedgerEntry) -> float:
    """Thousandths of accelerators or workers that were held: held time is counted in whole milliseconds."""
    milliseconds = one.end // _MILLI - one.begin // _MILLI
    return abs(one.held) / milliseconds if milliseconds and one.held else WHOLE


def unpriced_note(held: int) -> str:
    """What a report says of hours without a price; "" if there are none."""
    if not held:
        return ""
    return (
        f"{held / HELD_HOUR:,.2f} held hours have no price. They are in no amount. "
        "`muster cost explain` shows them; a price in the price book, or of the pool in the policy, charges later ones."
    )
