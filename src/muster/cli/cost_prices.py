"""`muster cost prices` and `muster cost apply`: shows what the hours of each pool cost, and sets another price book."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.api.cost import PricesView, PriceView
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.output import emit, note, out, show_table, table
from muster.cli.terminal import stdout
from muster.core.errors import Invalid
from muster.core.money import format_amount
from muster.core.policy_units import format_moment


def prices(
    yaml: Annotated[bool, typer.Option("--yaml", help="Print the price book.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Also prices that are over.")] = False,
    json: Json = False,
) -> None:
    """Show what an hour of each pool costs, now and as far as the price book says."""
    with client() as to:
        found = to.prices()
    if json:
        emit(found)
    elif yaml:
        if not found["text"]:
            raise Invalid("There is no price book that you can see.", "`muster cost apply FILE` sets one.")
        stdout().write(found["text"])
    else:
        _show(found, all_)


def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A price book; - reads it from standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Only say what it would change.")] = False,
    correct: Annotated[bool, typer.Option("--correct", help="Correct charges whose prices were wrong.")] = False,
    json: Json = False,
) -> None:
    """Put a price book in force, all of it or nothing. Prices of time that is charged stay, unless --correct."""
    text = _read(file)
    with client() as to:
        found = to.set_prices(text, dry_run=check, correct=correct, source=file)
    if json:
        emit(found)
        return
    _show(found, False)
    for name in found["unknown"]:
        note(f"This server has no pool {name}: its prices are for later.")
    for pool, since in found["changed"].items():
        verb = "need --correct and would be" if check and not correct else "would be" if check else "are being"
        start = f"since {_day(since)}" if since else "of all time"
        out().print(Text(f"The price of {pool} in the past changed: its charges {start} {verb} corrected.", "yellow"))
    if check:
        note(f"{file} is right. Nothing was changed: leave --check out to put it in force.")
    else:
        note(f"These prices are in force, as version {found['version']} of the book.")


def _show(found: PricesView, everything: bool) -> None:
    made = table("pool", "kind", "from", "until", "accelerator", "node", "CPU", "GB of memory", "notes",
                 right=("accelerator", "node", "CPU", "GB of memory"))  # fmt: skip
    shown = [one for one in found["prices"] if everything or one["in_force"] or _ahead(one, found)]
    for one in shown:
        parts = [_amount(one[key]) for key in ("accelerator", "node", "cpu", "memory")]
        notes = [one["off_peak"], one["source"], f"{one['capacity']} accelerators" if one["capacity"] else ""]
        since = _day(one["since"]) if one["since"] else ""
        until = _day(one["until"]) if one["until"] is not None else ""
        cells = [one["pool"], one["kind"].replace("_", " "), since, until, *parts, "; ".join(filter(None, notes))]
        made.add_row(*cells, style=None if one["in_force"] else "dim")
    if shown:
        show_table(made)
        note(f"{found['currency']} for an hour. Days begin in {found['timezone']}.")
    else:
        note("No pool has a price. `muster cost apply FILE` sets a price book; see docs/cost.md.")
    if found["unpriced"] and shown:
        pools = ", ".join(found["unpriced"])
        out().print(Text(f"Without a price: {pools}. What runs there is counted in hours and costs nothing.", "yellow"))


def _ahead(one: PriceView, found: PricesView) -> bool:
    return not one["in_force"] and any(
        other["pool"] == one["pool"] and other["in_force"] and other["since"] < one["since"]
        for other in found["prices"]
    )


def _amount(micros: int | None) -> str:
    return "" if micros is None else format_amount(micros)


def _day(time: float) -> str:
    return format_moment(time).removesuffix("T00:00Z")


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Invalid(f"{file} can't be read: {why}.", "Give the path of a price book.") from None
