"""Entries of the ledger as rows of FOCUS 1.2, the open format of bills (https://focus.finops.org).

Costs are exact decimals. Entries without a price are no rows: FOCUS has no cost that is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from muster.core.money import MICRO, NANO, exact_amount
from muster.core.prices import SECOND
from muster.cost.charge import UNPRICED
from muster.cost.ledger import IDLE_ACCOUNT, PLATFORM_ACCOUNT, STORAGE_ACCOUNT, LedgerEntry
from muster.cost.report.sums import HELD_HOUR

NAME: Final = "Muster"
MANDATORY: Final = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart",
    "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit",
    "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
)  # fmt: skip
COLUMNS: Final = (
    *MANDATORY, "ChargeFrequency", "CapacityReservationId", "CapacityReservationStatus", "ConsumedQuantity",
    "ConsumedUnit", "ListUnitPrice", "ContractedUnitPrice", "PricingCategory", "PricingCurrency", "ResourceId",
    "ResourceName", "ResourceType", "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags", "x_Account",
    "x_Attempt", "x_Event", "x_Part",
)  # fmt: skip
_CATEGORIES: Final = {"spot": "Dynamic", "reserved": "Committed", "owned": "Other", "on_demand": "Standard"}


def focus_row(one: LedgerEntry, zone: ZoneInfo) -> Mapping[str, str] | None:
    """The columns of an entry; an empty text is a null. None: it has no price."""
    if one.rate == UNPRICED:
        return None
    begin, end = _charge_period(one, zone)
    first, after = _billing_period(one.day, zone)
    storage, idle = one.account == STORAGE_ACCOUNT, not one.run and one.account != STORAGE_ACCOUNT
    cost, listed = exact_amount(one.amount), exact_amount(one.listed)
    held = Decimal(one.held) / HELD_HOUR
    quantity = "1" if storage else f"{held:.9f}"
    unit = "Days" if storage else "Hours" if one.unit == "accelerator" else "Worker-Hours"
    unit_price = f"{Decimal(one.listed) / MICRO / held:.9f}" if held and not storage else ""
    paid = f"{Decimal(one.amount) / MICRO / held:.9f}" if held and not storage else ""
    payer = one.payer
    return {
        "BilledCost": cost,
        "EffectiveCost": cost,
        "ContractedCost": cost,
        "ListCost": listed,
        "BillingAccountId": NAME.lower(),
        "BillingAccountName": NAME,
        "BillingCurrency": one.currency,
        "BillingPeriodStart": _time(first),
        "BillingPeriodEnd": _time(after),
        "ChargePeriodStart": _time(begin),
        "ChargePeriodEnd": _time(end),
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if one.correction else "",
        "ChargeDescription": _description(one),
        "ChargeFrequency": "Usage-Based",
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "PricingCategory": _CATEGORIES.get(one.price, "Standard"),
        "PricingCurrency": one.currency,
        "ListUnitPrice": unit_price,
        "ContractedUnitPrice": paid,
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "CapacityReservationId": payer.pool if idle else "",
        "CapacityReservationStatus": "Unused" if idle else "",
        "ServiceCategory": "Storage" if storage else "AI and Machine Learning",
        "ServiceName": "Storage" if storage else "Training",
        "ProviderName": NAME,
        "PublisherName": NAME,
        "InvoiceIssuerName": NAME,
        "ResourceId": one.run or payer.pool or payer.project,
        "ResourceName": one.run or payer.pool or payer.project,
        "ResourceType": "Run" if one.run else "Pool" if payer.pool else "Project",
        "SkuId": f"{payer.pool or 'storage'}/{one.price or one.account}",
        "SkuPriceId": f"{payer.pool or 'storage'}/{one.price or one.account}/{one.book}",
        "SubAccountId": payer.project,
        "SubAccountName": payer.project,
        "Tags": _tags(one),
        "x_Account": one.account,
        "x_Attempt": str(one.attempt) if one.run else "",
        "x_Event": str(one.seq),
        "x_Part": str(one.part),
    }


def _description(one: LedgerEntry) -> str:
    if one.account == STORAGE_ACCOUNT:
        return f"What project {one.payer.project} stored"
    if one.account == IDLE_ACCOUNT or not one.run:
        return f"Capacity of pool {one.payer.pool} that nobody used"
    rate = f"{Decimal(one.rate) / NANO:f}"
    lost = f", paid by the platform{f' ({one.cause})' if one.cause else ''}" if one.account == PLATFORM_ACCOUNT else ""
    return f"Attempt {one.attempt} of run {one.run} on pool {one.payer.pool} at {rate} {one.currency} an hour{lost}"


def _tags(one: LedgerEntry) -> str:
    names = ("user", "queue", "kind", "family", "environment")
    given = {name: getattr(one.payer, name) for name in names}
    return json.dumps({name: value for name, value in given.items() if value}, separators=(",", ":"))


def _charge_period(one: LedgerEntry, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """FOCUS wants whole seconds, and an end after the start."""
    day = date.fromisoformat(one.day)
    if not one.run:
        after = day + timedelta(days=1)
        return _midnight(day, zone), _midnight(after, zone)
    begin = datetime.fromtimestamp(one.begin // SECOND, UTC)
    end = datetime.fromtimestamp(-(-one.end // SECOND), UTC)
    return begin, max(end, begin + timedelta(seconds=1))


def _billing_period(day: str, zone: ZoneInfo) -> tuple[datetime, datetime]:
    first = date.fromisoformat(day).replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1)
    return _midnight(first, zone), _midnight(after, zone)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
