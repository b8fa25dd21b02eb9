"""Parses a file of budgets into the events that set them, or into one error with every mistake in it.

budgets:
  vision: {project: vision, amount: 5000 USD, per: month, mode: hard}
  sweeps: {family: sweeps, user: ada, amount: 300, from: 2026-11-01, until: 2026-11-14, mode: stop}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, cast

from muster.core.budget_events import BudgetSet
from muster.core.document import Sort
from muster.core.field_reader import FieldReader, parse_file
from muster.core.fields import as_text
from muster.core.money import Amount, parse_amount
from muster.core.report import At, Report, shown
from muster.core.units import InvalidValue

FILE: Final = Sort("file of budgets", "a mapping such as `{budgets: {lab: {amount: 5000}}}`", "budgets: {}")
HINT: Final = "Correct each and give the file again."
SCOPE: Final = ("project", "family", "environment", "user")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")


def parse_budgets(text: str | bytes | Mapping[str, Any], currency: str, *, source: str) -> tuple[BudgetSet, ...]:
    """Budgets in this currency, that of the price book. Raises SpecError with all problems at once."""

    def read(raw: Mapping[str, Any], report: Report) -> tuple[BudgetSet, ...]:
        reader = _Reader(report, currency=currency)
        reader.refuse(raw, ("budgets",), ())
        given = reader.mapping(raw.get("budgets"), ("budgets",))
        return tuple(reader.budget(name, one, ("budgets", name)) for name, one in given.items())

    return parse_file(text, FILE, source, HINT, read)


@dataclass(slots=True)
class _Reader(FieldReader):
    currency: str = ""

    def budget(self, name: str, raw: Any, at: At) -> BudgetSet:
        given = self.mapping(raw, at)
        self.refuse(given, (*SCOPE, "amount", "per", "mode", "from", "until"), at)
        if not _NAME.fullmatch(name):
            self.add(at, shown(name), "a name of letters, digits, `.`, `_` and `-`", "Rename the budget.")
        amount = self.value(given, "amount", at, parse_amount, "an amount such as `5000 USD`", Amount(0))
        if (*at, "amount") not in self.wrong and not amount.micros:
            self.add(
                (*at, "amount"), shown(given.get("amount")), "an amount above 0", "Write, for example, `5000 USD`."
            )
        if amount.currency not in ("", self.currency):
            hint = f"Write the amount in {self.currency}."
            self.add((*at, "amount"), f"an amount in {amount.currency}", f"the price book's {self.currency}", hint)
        scope = {part: as_text(given[part]) for part in SCOPE if part in given}
        first, last = (self.value(given, key, at, _day, "a date such as `2026-11-01`", "") for key in ("from", "until"))
        if bool(first) != bool(last) or last < first:
            hint = "Write both, or neither: then `per` says the period."
            self.add(at, f"`from` {first or 'nothing'} and `until` {last or 'nothing'}", "a first and a last day", hint)
        per = "fixed" if first else self.choice(given, "per", at, ("month", "week"), "month")
        mode = self.choice(given, "mode", at, ("hard", "soft", "stop"), "hard")
        return BudgetSet(
            name, amount.micros, self.currency, scope, cast("Any", per), first, last, cast("Any", mode)
        )  # fmt: skip


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text.strip()).isoformat()
    except ValueError:
        raise InvalidValue from None
