"""`muster cost advice`: what would save money, with its arithmetic and a command that does it."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.text import Text

from muster.api.cost import AdviceList
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.node_history import seconds
from muster.cli.output import emit, note, out
from muster.core.money import MICRO, format_amount, parse_amount
from muster.core.units import InvalidValue

KINDS: Final = ("right-size", "spot", "off-peak", "reserve", "idle-session", "checkpoint", "sweep")
_TONES: Final = {"measured": "green", "estimated": "yellow", "untested": "dim"}


def advice(
    kind: Annotated[str | None, typer.Option(metavar="KIND", help=f"Only of this kind: {', '.join(KINDS)}.")] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.", autocompletion=complete.projects)] = None,
    since: Annotated[str, typer.Option(help="Look at so long a time, at most 92d.")] = "30d",
    reserve_price: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="For an hour of an accelerator that is reserved for a year."),
    ] = None,
    buy_price: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="To buy an accelerator, with its share of the machine.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what would save money: smaller devices, spot, hours with a lower price, reservations, idle sessions,
    saves, and sweeps that stopped paying.

    Each has its arithmetic, a command, and how sure it is: measured, estimated or untested.
    """
    if kind is not None and kind not in KINDS:
        raise Usage(f"--kind: got {kind!r}.", f"Expected one of {', '.join(KINDS)}.")
    with client() as to:
        found = to.cost_advice(
            kind, project, since=seconds("--since", since), reserve_price=_price("--reserve-price", reserve_price),
            buy_price=_price("--buy-price", buy_price),
        )  # fmt: skip
    if json:
        emit(found)
    else:
        _show(found)


def _price(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = parse_amount(text)
    except InvalidValue as unfit:
        raise Usage(f"{option}: got {text!r}.", unfit.hint or "Expected an amount such as 1.20.") from None
    if not found.micros:
        raise Usage(f"{option}: got {text!r}.", "Expected an amount above 0.")
    return found.micros / MICRO


def _show(found: AdviceList) -> None:
    currency, screen = found["currency"], out()
    for one in found["advice"]:
        where = f" in {one['project']}" if one["project"] else ""
        sure = Text(f" ({one['confidence']})", style=_TONES[one["confidence"]])
        head = Text.assemble((one["kind"], "bold"), f": {one['subject']}{where} saves ")
        screen.print(head + Text(f"{format_amount(one['saves'], currency)} a month", style="green") + sure)
        screen.print(Text(f"  {one['arithmetic']}", style="dim"))
        screen.print(Text(f"  {one['command']}"))
        screen.print(Text(f"  from {', '.join(one['evidence'])}", style="dim"))
    if not found["advice"]:
        runs = "1 run" if found["runs"] == 1 else f"{found['runs']} runs"
        days = "1 day" if found["days"] < 1.5 else f"{found['days']:.0f} days"
        note(f"Nothing to advise from {runs} with a price, in {days}.")
    if found["unpriced"]:
        note((f"No price: {', '.join(found['unpriced'])}. What ran there is in no amount.", "yellow"))
