"""Amounts of money as whole millionths of a currency, so that sums are exact and the same in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from muster.core.units import InvalidValue

MICRO: Final = 1_000_000  # millionths of one unit of a currency: the unit of amounts
NANO: Final = 1_000_000_000  # the unit of prices for an hour, of which a fraction of a cent may be charged
DEFAULT_CURRENCY: Final = "USD"  # of prices in the policy, where there is no price book
MOST: Final = 10**12  # of a currency; larger numbers are mistakes
_AMOUNT: Final = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]{3})?|([A-Za-z]{3})\s*([0-9.]+)")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")


class Amount(NamedTuple):
    """`currency`: empty if none was named."""

    micros: int
    currency: str = ""


def parse_amount(text: str) -> Amount:
    """`200 USD`, `EUR 12.50`, `1,200` or `0.3`. Raises InvalidValue; a negative amount is refused too."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise InvalidValue("Write an amount, 0 or more, and its currency, such as `200 USD`.")
    number, after, before, other = found.groups()
    try:
        value = Decimal((number or other).replace(",", "").replace("_", ""))
    except ArithmeticError:
        raise InvalidValue("Write an amount such as `200 USD`.") from None
    if value > MOST:
        raise InvalidValue(f"Write at most {MOST:,}.")
    return Amount(int((value * MICRO).to_integral_value()), (after or before or "").upper())


def plain_amount(text: str) -> str:
    """An amount as job files keep it: `1200.5 USD`."""
    micros, currency = parse_amount(text)
    number = f"{Decimal(micros) / MICRO:f}"
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {currency}".strip()


def parse_currency(text: str) -> str:
    """A code of ISO 4217, such as `EUR`."""
    name = text.strip().upper()
    if not _CURRENCY.fullmatch(name):
        raise InvalidValue("Write the three letters of a currency, such as `EUR`.")
    return name


def format_amount(micros: int, currency: str = "") -> str:
    """`1,234.50 USD`; small amounts with as many digits as they need, at most six."""
    value = Decimal(micros) / MICRO
    cents = value.quantize(Decimal("0.01"))
    exact = f"{value:,.6f}".rstrip("0")
    text = f"{cents:,}" if abs(value) >= 1 or cents == value else f"{exact}0" if exact.endswith(".") else exact
    return f"{text} {currency}".strip()


def exact_amount(micros: int) -> str:
    """`1234.500001`, for programs: all digits, and no separators."""
    return f"{Decimal(micros) / MICRO:f}"


def divide(total: int, weights: Sequence[int]) -> list[int]:
    """The total in parts proportional to the weights, which add up to it exactly: the largest remainders round up.

    Without any weight, the first part is all of it. Raises ValueError if there are no parts.
    """
    if not weights:
        raise ValueError("an amount can't be divided into no parts")
    whole = sum(weights)
    if whole <= 0:
        return [total, *([0] * (len(weights) - 1))]
    parts, left = list[int](), list[tuple[int, int]]()
    for index, weight in enumerate(weights):
        part, rest = divmod(total * weight, whole)
        parts.append(part)
        left.append((-rest, index))
    for _, index in sorted(left)[: total - sum(parts)]:
        parts[index] += 1
    return parts
