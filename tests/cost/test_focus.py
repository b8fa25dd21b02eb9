"""FOCUS 1.2: mandatory columns, which of them may be null, the allowed values, and what a file adds up to."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from cost_ledger_kit import entry

from muster.cost.charge import UNPRICED
from muster.cost.ledger import LedgerEntry, Payer
from muster.cost.report.focus import COLUMNS, MANDATORY, focus_row

# Of the specification: the mandatory columns, and those of them that may be null.
REQUIRED = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost",
    "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName",
    "ServiceCategory", "ServiceName",
}  # fmt: skip
NULLABLE = {"ChargeClass", "BillingAccountName", "ChargeDescription", "PricingQuantity", "PricingUnit"}
BERLIN = ZoneInfo("Europe/Berlin")
ENTRIES = [
    entry(1, 2_990_000),
    entry(2, 1, price="spot", account="platform", cause="node_lost"),
    entry(3, -2_990_000, held=-3_600_000_000, correction=True),
    entry(4, 7_000_001, run="", payer=Payer("red", pool="h100"), account="idle", price="", rate=0),
    entry(5, 12, run="", payer=Payer("red"), account="storage", price="", unit="", held=0, rate=0, day="2026-10-25"),
    entry(6, 500, unit="worker", price="owned"),
]


def row_of(one: LedgerEntry) -> dict[str, str]:
    found = focus_row(one, BERLIN)
    assert found is not None
    return dict(found)


def test_the_columns_are_those_of_the_specification() -> None:
    assert set(MANDATORY) == REQUIRED
    assert len(set(COLUMNS)) == len(COLUMNS)
    assert all(name.startswith("x_") or name[0].isupper() for name in COLUMNS)


@pytest.mark.parametrize("one", ENTRIES, ids=lambda one: f"event{one.seq}")
def test_a_row_keeps_the_rules_of_the_specification(one: LedgerEntry) -> None:
    row = row_of(one)
    assert set(row) == set(COLUMNS)
    assert {name for name in REQUIRED if not row[name]} <= NULLABLE
    assert row["ChargeCategory"] in ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
    assert row["ChargeClass"] == ("Correction" if one.correction else "")
    assert row["PricingCategory"] in ("Standard", "Dynamic", "Committed", "Other")
    assert row["ServiceCategory"] in ("AI and Machine Learning", "Storage")
    assert row["CapacityReservationStatus"] in ("", "Used", "Unused")
    assert bool(row["CapacityReservationStatus"]) <= bool(row["CapacityReservationId"])
    assert bool(row["PricingUnit"]) == bool(row["PricingQuantity"])
    assert bool(row["ConsumedUnit"]) == bool(row["ConsumedQuantity"])
    times = [row[name] for name in ("BillingPeriodStart", "ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodEnd")]
    assert times == sorted(times)
    assert all(datetime.fromisoformat(time) for time in times)
    assert row["ChargePeriodStart"] < row["ChargePeriodEnd"]
    assert isinstance(json.loads(row["Tags"]), dict)
    assert Decimal(row["BilledCost"]) * 1_000_000 == one.amount
    for name in ("ListUnitPrice", "ContractedUnitPrice"):
        cost = "ListCost" if name[0] == "L" else "ContractedCost"
        if row[name]:
            product = Decimal(row[name]) * Decimal(row["PricingQuantity"])
            assert abs(product - Decimal(row[cost])) < Decimal("0.0001")


def test_a_day_in_which_clocks_change_is_a_whole_charge_period() -> None:
    row = row_of(ENTRIES[4])
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z")
    assert row["BillingPeriodStart"] == "2026-09-30T22:00:00Z"


def test_what_has_no_price_is_no_row_of_zero() -> None:
    assert focus_row(entry(rate=UNPRICED, price=""), BERLIN) is None
