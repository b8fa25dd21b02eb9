"""Parses a price book into a `PriceBook`, or into one error with every mistake in it.

    currency: USD
    timezone: Europe/Berlin
    rates:
      - {currency: EUR, from: 2026-01-01, rate: 1.08}
    pools:
      h100:
        - {from: 2026-01-01, until: 2026-07-01, accelerator: 2.99, list: 3.90}
        - {from: 2026-07-01, accelerator: 2.49 EUR, off_peak: {hours: "20:00-06:00", share: 60%}}
      reserved:
        - {kind: reserved, capacity: 64, accelerator: 1.20, upfront: 100000, term: 365d}
      own:
        - {kind: owned, nodes: 8, accelerators_per_node: 8, purchase: 250000, term: 1095d,
           power: {kilowatts: 6.5, price: 0.18}, hosting: 400}

Amounts without a currency are in the book's. Dates without a time begin at midnight in the book's time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

from muster.core import units
from muster.core.document import Sort
from muster.core.errors import Invalid
from muster.core.field_reader import FieldReader, parse_file
from muster.core.fields import as_text
from muster.core.money import DEFAULT_CURRENCY, MICRO, NANO, Amount, parse_amount, parse_currency
from muster.core.period import zone_of
from muster.core.policy_units import format_moment, parse_window
from muster.core.prices import Match, Price, PriceBook, PriceKind, Rate
from muster.core.report import At, Report, is_null, shown
from muster.core.rules import Window

FILE: Final = Sort("price book", "a mapping such as `{pools: {h100: [{accelerator: 2.99}]}}`", "pools: {}")
HINT: Final = "Correct each and apply the book again; the prices in force stay as they are."
KINDS: Final[tuple[PriceKind, ...]] = ("on_demand", "spot", "reserved", "owned")
IDLE: Final = ("platform", "used", "equal")
POOLS_MAX: Final = 10_000
_HOURS_OF_MONTH: Final = 730  # the mean, as clouds count
_HOUR: Final = 3600.0
_AMOUNT: Final = "an amount, 0 or more, such as `2.99` or `2.99 USD`"
_DATE: Final = "a date such as `2026-07-01`, or a moment such as `2026-07-01T08:00Z`"
_SHARE: Final = "a share from 0 to 100 %, such as `60%`"
_KEYS: Final = (
    "currency", "timezone", "rates", "pools", "lost_work", "assumed_run", "idle", "storage", "transfer", "families",
    "environments",
)  # fmt: skip
_PRICE_KEYS: Final = (
    "from", "until", "kind", "accelerator", "node", "cpu", "memory", "list", "off_peak", "capacity", "term", "upfront",
    "nodes", "accelerators_per_node", "purchase", "power", "hosting", "unpriced",
)  # fmt: skip


def parse_prices(text: str | bytes | Mapping[str, Any], *, source: str = "The price book") -> PriceBook:
    """Raises SpecError with all problems at once."""

    def read(raw: Mapping[str, Any], report: Report) -> PriceBook:
        reader = _Reader(report)
        reader.refuse(raw, _KEYS, ())
        return reader.book(raw)

    return parse_file(text, FILE, source, HINT, read)


@dataclass(slots=True)
class _Reader(FieldReader):
    currency: str = DEFAULT_CURRENCY
    zone: ZoneInfo = field(default_factory=lambda: zone_of("UTC"))
    rates: tuple[Rate, ...] = ()

    def book(self, raw: Mapping[str, Any]) -> PriceBook:
        self.currency = self.value(raw, "currency", (), parse_currency, "a currency such as `USD`", DEFAULT_CURRENCY)
        timezone = self.value(raw, "timezone", (), _zone, "a time zone such as `Europe/Berlin`", "UTC")
        self.zone = zone_of(timezone)
        self.rates = self.read_rates(raw)
        pools = self.mapping(raw.get("pools"), ("pools",))
        if len(pools) > POOLS_MAX:
            self.report.stop("pools", f"{len(pools)} pools", f"at most {POOLS_MAX:,}", "Write fewer.")
        month = self.money(raw, "storage", (), 0.0)
        transfer = self.money(raw, "transfer", (), 0.0)
        return PriceBook(
            currency=self.currency,
            timezone=timezone,
            pools={name: self.prices(given, ("pools", name)) for name, given in pools.items()},
            rates=self.rates,
            lost_work=self.duration(raw, "lost_work", 14_400.0),
            assumed_run=self.duration(raw, "assumed_run", 3600.0),
            idle=cast("Any", self.one_of(raw, "idle", (), IDLE)),
            storage=round(month * NANO / _HOURS_OF_MONTH / MICRO) if month is not None else None,
            transfer=transfer * NANO // MICRO if transfer is not None else None,
            families=self.matches(raw, "families", "family"),
            environments=self.matches(raw, "environments", "environment"),
        )

    def duration(self, raw: Mapping[str, Any], key: str, usual: float) -> float:
        return float(self.value(raw, key, (), units.parse_duration, "a duration such as `4h`", usual))

    def read_rates(self, raw: Mapping[str, Any]) -> tuple[Rate, ...]:
        found = []
        for at, given in self.items(raw, "rates", ()):
            self.refuse(given, ("currency", "from", "rate"), at)
            currency = self.value(given, "currency", at, parse_currency, "a currency such as `EUR`", "")
            rate = self.value(given, "rate", at, units.parse_number, "a number above 0", 0.0)
            if not currency and (*at, "currency") not in self.wrong:
                self.add((*at, "currency"), "nothing", "a currency such as `EUR`", "Name the other currency.")
            if rate <= 0 and (*at, "rate") not in self.wrong:
                hint = f"Write what one {currency or 'unit'} is worth in {self.currency}."
                self.add((*at, "rate"), shown(given.get("rate")), "a number above 0", hint)
            since = self.moment(given, "from", at, 0.0)
            found.append(Rate(currency=currency, since=since, micros=round(rate * MICRO)))
        return tuple(sorted(found, key=lambda one: (one.currency, one.since)))

    # --- the prices of a pool -----------------------------------------------------------------------------------------
    def prices(self, raw: Any, at: At) -> tuple[Price, ...]:
        items = list(self.items({"": raw}, "", at)) if not isinstance(raw, Mapping) else [(at, self.mapping(raw, at))]
        if not items and at not in self.wrong:
            self.add(at, shown(raw), "at least one price", "Write, for example, `[{accelerator: 2.99}]`.")
        found = [(where, self.price(given, where)) for where, given in items]
        found.sort(key=lambda pair: pair[1].since)
        made = list[Price]()
        for index, (where, one) in enumerate(found):
            following = found[index + 1][1].since if index + 1 < len(found) else None
            if following is not None:
                self.check_order(one, following, where)
                one = one.model_copy(update={"until": one.until if one.until is not None else following})
            made.append(one)
        return tuple(made)

    def check_order(self, one: Price, following: float, at: At) -> None:
        if one.since == following:
            self.add(at, f"another price from {_date(one.since)} on", "one price at a time", "Give one another `from`.")
        elif one.until is not None and one.until > following:
            given = f"a price until {_date(one.until)}, with another one from {_date(following)} on"
            self.add(at, given, "one price at a time", "End it there, or leave `until` out.")
        elif one.until is not None and one.until < following:
            given = f"no price from {_date(one.until)} to {_date(following)}"
            hint = "Leave `until` out, or add `{from: …, unpriced: yes}` for that time."
            self.add(at, given, "prices without a gap", hint)

    def price(self, raw: Mapping[str, Any], at: At) -> Price:
        self.refuse(raw, _PRICE_KEYS, at)
        since, until = self.moment(raw, "from", at, 0.0), self.moment(raw, "until", at, None)
        if until is not None and until <= since:
            self.add((*at, "until"), shown(raw.get("until")), "a time after `from`", "Write a later one.")
        kind = cast("PriceKind", self.one_of(raw, "kind", at, KINDS))
        unpriced = self.value(raw, "unpriced", at, units.parse_flag, "yes or no", False)
        parts = {
            name: self.nanos(raw, key, at, since)
            for name, key in (("accelerator", "accelerator"), ("worker", "node"), ("cpu", "cpu"), ("memory", "memory"))
        }
        windows, share = self.off_peak(raw, at)
        term = self.value(raw, "term", at, units.parse_duration, "a duration such as `365d`", None)
        capacity = self.count(raw, "capacity", at)
        fixed, source, upfront = self.fixed(raw, at, kind, since, term, capacity)
        per_node = self.count(raw, "accelerators_per_node", at)
        if parts["worker"] is not None and per_node:
            parts["accelerator"], parts["worker"] = round(parts["worker"] / per_node), None
        if fixed is not None and capacity is None and kind == "owned":
            capacity = (self.count(raw, "nodes", at) or 0) * (per_node or 0) or None
        if fixed is not None:
            name = "accelerator" if per_node or kind == "reserved" else "worker"
            parts[name] = (parts[name] or 0) + fixed
        if not unpriced and all(value is None for value in parts.values()) and not self.wrong_in(at):
            hint = "Write, for example, `accelerator: 2.99`; `unpriced: yes` says that there is none."
            self.add(at, "no price", "a price for an hour", hint)
        return Price(
            since=since, until=until, kind=kind, unpriced=unpriced, **parts,
            list_accelerator=self.nanos(raw, "list", at, since), off_peak=windows, off_peak_share=share,
            capacity=capacity, term=term, upfront=upfront, source=source,
        )  # fmt: skip

    def fixed(
        self, raw: Mapping[str, Any], at: At, kind: PriceKind, since: float, term: float | None, capacity: int | None
    ) -> tuple[int | None, str, int]:
        """What was paid at once, spread over the term: billionths for an hour, how it was computed, and the amount."""
        own = [key for key in ("purchase", "power", "hosting", "nodes") if not is_null(raw.get(key))]
        upfront = self.money(raw, "upfront", at, since)
        if kind == "owned":
            return self.owned(raw, at, since, term)
        for key in own:
            self.add((*at, key), f"`{key}` of a price that is {kind}", "`kind: owned`", "Say `kind: owned`.")
        if upfront is None:
            return None, "", 0
        if kind != "reserved" or not term or not capacity:
            given = "`upfront` without all of `kind: reserved`, `term` and `capacity`"
            self.add((*at, "upfront"), given, "a reservation", "Say for how long, and how many accelerators.")
            return None, "", 0
        hours = Decimal(term) / Decimal(_HOUR) * capacity
        spread = int(Decimal(upfront) * (NANO // MICRO) / hours)
        amount = f"{upfront / MICRO:,.2f} {self.currency}"
        return spread, f"{amount} over {hours:,.0f} accelerator-hours, and the price of an hour", upfront

    def owned(
        self, raw: Mapping[str, Any], at: At, since: float, term: float | None
    ) -> tuple[int | None, str, int]:  # fmt: skip
        bought, hosting = self.money(raw, "purchase", at, since), self.money(raw, "hosting", at, since)
        per_node, nodes = self.count(raw, "accelerators_per_node", at), self.count(raw, "nodes", at)
        power = self.mapping(raw.get("power"), (*at, "power"))
        self.refuse(power, ("kilowatts", "price"), (*at, "power"))
        kilowatts = self.value(power, "kilowatts", (*at, "power"), _positive, "kilowatts of a node, 0 or more", 0.0)
        energy = self.money(power, "price", (*at, "power"), since) or 0
        if bought is None and hosting is None and not power:
            return None, "", 0
        if bought is not None and not term:
            hint = "Write for how long the machines are used, such as `term: 1095d`."
            self.add((*at, "term"), shown(raw.get("term")), "the lifetime of what was bought", hint)
            return None, "", 0
        scale = Decimal(NANO // MICRO)
        hourly = Decimal(bought or 0) * scale / (Decimal(term or _HOUR) / Decimal(_HOUR))
        hourly += Decimal(repr(kilowatts)) * energy * scale + Decimal(hosting or 0) * scale / _HOURS_OF_MONTH
        words = [f"{(bought or 0) / MICRO:,.2f} {self.currency} a node over {(term or 0) / 86_400:,.0f} days"]
        words += [f"{kilowatts:g} kW"] if kilowatts else []
        words += [f"{hosting / MICRO:,.2f} a month"] if hosting else []
        return int(hourly / (per_node or 1)), ", ".join(words), (bought or 0) * (nodes or 0)

    def off_peak(self, raw: Mapping[str, Any], at: At) -> tuple[tuple[Window, ...], int]:
        at, given = (*at, "off_peak"), self.mapping(raw.get("off_peak"), (*at, "off_peak"))
        if not given:
            return (), 1000
        self.refuse(given, ("hours", "share"), at)
        hours = given.get("hours")
        texts = hours if isinstance(hours, list | tuple) else [hours] if not is_null(hours) else []
        windows = []
        for text in texts:
            try:
                windows.append(Window(**parse_window(as_text(text))))
            except (units.InvalidValue, ValueError):
                hint = 'Write, for example, `"mon-fri 20:00-06:00"`, in UTC.'
                self.add((*at, "hours"), shown(text), "hours of the week", hint)
        if not texts:
            self.add((*at, "hours"), "nothing", "hours of the week", 'Write, for example, `"20:00-06:00"`.')
        return tuple(windows), round(1000 * self.value(given, "share", at, _share, _SHARE, 1.0))

    # --- values -------------------------------------------------------------------------------------------------------
    def nanos(self, raw: Mapping[str, Any], key: str, at: At, since: float | None) -> int | None:
        micros = self.value(raw, key, at, _precise, _AMOUNT, None)
        return None if micros is None else self.converted(micros, (*at, key), since or 0.0)

    def money(self, raw: Mapping[str, Any], key: str, at: At, since: float | None) -> int | None:
        """Millionths of the book's currency."""
        nanos = self.nanos(raw, key, at, since)
        return None if nanos is None else round(nanos * MICRO / NANO)

    def converted(self, given: tuple[int, str], at: At, since: float) -> int:
        nanos, currency = given
        if currency in ("", self.currency):
            return nanos
        known = [one for one in self.rates if one.currency == currency and one.since <= since]
        if not known:
            hint = f"Add it to `rates`: what one {currency} is worth in {self.currency}, from then on."
            self.add(at, f"an amount in {currency}", f"{self.currency}, or a rate for {currency} at that time", hint)
            return nanos
        return nanos * known[-1].micros // MICRO

    def moment(self, raw: Mapping[str, Any], key: str, at: At, usual: float | None) -> Any:
        def parse(text: str) -> float:
            try:
                moment = datetime.fromisoformat(text.strip())
                found = (moment if moment.tzinfo is not None else moment.replace(tzinfo=self.zone)).timestamp()
            except (ValueError, OverflowError):
                raise units.InvalidValue from None
            if found < 0:
                raise units.InvalidValue("Write a date after 1970.")
            return found

        return self.value(raw, key, at, parse, _DATE, usual)

    def one_of(self, raw: Mapping[str, Any], key: str, at: At, known: tuple[str, ...]) -> str:
        """One of these, the first unless given."""
        found = self.choice(raw, key, at, known, known[0])
        return found if found in known else known[0]

    def count(self, raw: Mapping[str, Any], key: str, at: At) -> int | None:
        return cast("int | None", self.value(raw, key, at, _count, "a whole number, at least 1", None))

    def items(self, raw: Mapping[str, Any], key: str, at: At) -> list[tuple[At, Mapping[str, Any]]]:
        given, at = raw.get(key), (*at, key) if key else at
        if is_null(given):
            return []
        if not isinstance(given, list | tuple):
            self.add(at, shown(given), "a list", "Write one `- {…}` a line.")
            return []
        return [((*at, index), self.mapping(one, (*at, index))) for index, one in enumerate(given)]

    def matches(self, raw: Mapping[str, Any], key: str, noun: str) -> tuple[Match, ...]:
        found = []
        for at, given in self.items(raw, key, ()):
            self.refuse(given, (noun, "job", "project", "queue", "user"), at)
            name = self.text(given, noun, at, f"the name of the {noun}", f"{noun}: gpt")
            patterns = {one: as_text(given[one]) for one in ("job", "project", "queue", "user") if one in given}
            found.append(Match(name=name, **patterns))
        return tuple(found)

    def wrong_in(self, at: At) -> bool:
        return any(one[: len(at)] == at for one in self.wrong)


def _zone(text: str) -> str:
    try:
        zone_of(text.strip())
    except Invalid as error:
        raise units.InvalidValue(error.hint) from None
    return text.strip()


def _precise(text: str) -> tuple[int, str]:
    """Billionths, and the currency."""
    whole: Amount = parse_amount(text)
    digits = "".join(letter for letter in text if letter.isdigit() or letter == ".")
    return int((Decimal(digits) * NANO).to_integral_value()), whole.currency


def _share(text: str) -> float:
    words = text.strip()
    value = units.parse_number(words[:-1]) / 100 if words.endswith("%") else units.parse_number(words)
    if not 0 <= value <= 1:
        raise units.InvalidValue
    return value


def _count(text: str) -> int:
    found = units.parse_integer(text)
    if found < 1:
        raise units.InvalidValue
    return found


def _positive(text: str) -> float:
    found = units.parse_number(text)
    if not 0 <= found < 1e9:
        raise units.InvalidValue
    return found


def _date(moment: float) -> str:
    text = format_moment(moment)
    return text.removesuffix("T00:00Z")
