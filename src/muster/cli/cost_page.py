"""Statements of projects as one HTML file: one page for each, for a printer or a mail."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from muster import __version__
from muster.api.cost_reports import CostRow, CostStatement, CostTotal
from muster.core.money import format_amount
from muster.pages.document import document, scroll_table

_MORE = "section.team{break-after:page}td.text{text-align:left}tr.all>*{font-weight:600}"
_GROUP = ("user", "family", "pool", "price", "account")


def page(found: Sequence[CostStatement]) -> str:
    names = ", ".join(one["project"] for one in found) or "no project"
    body = "".join(map(_statement, found)) or "<p>Nothing was charged.</p>"
    return document(f"Statement: {names}", body, f"Muster {__version__}.", _MORE)


def _statement(one: CostStatement) -> str:
    period = one["period"]
    about = f"{period['first']} to {period['last']}, time zone {period['zone']}" + (
        "" if period["over"] else ", so far"
    )
    notes = "".join(f"<li>{escape(each)}</li>" for each in one["notes"])
    return (
        f'<section class="team"><header><h1>Project {escape(one["project"])}: {escape(period["name"])}</h1>'
        f"<p>{escape(about)}</p></header>{_cards(one['totals'])}"
        f"{_table('What it is made of', _GROUP, one['rows'], one['totals'])}"
        f"{_table('By day', ('day',), one['days'], [])}"
        f"{f'<ul>{notes}</ul>' if notes else ''}</section>"
    )


def _cards(totals: Sequence[CostTotal]) -> str:
    cards = "".join(
        f'<div class="card"><h3>To pay</h3><b>{_money(_due(one), one["currency"])}</b>'
        f"<br>{_money(one['platform'], one['currency'])} more is paid by the platform</div>"
        for one in totals
    )
    return f'<section class="cards" aria-label="Totals">{cards}</section>'


def _due(one: CostTotal) -> int:
    """What the project pays: not what the platform lost."""
    return one["amount"] - one["platform"]


def _table(title: str, by: Sequence[str], rows: Sequence[CostRow], totals: Sequence[CostTotal]) -> str:
    names = (*by, "accelerator-hours", "worker-hours", "without a price", "amount")
    lines = [f"<tr>{_cells([row['group'][name] for name in by], row)}</tr>" for row in rows]
    whole = [f'<tr class="all">{_cells(["all", *[""] * (len(by) - 1)], one)}</tr>' for one in totals]
    return f"<section><h2>{escape(title)}</h2>{scroll_table(title, names, [*lines, *whole])}</section>"


def _cells(group: Sequence[str], row: CostTotal) -> str:
    texts = "".join(
        f'<th scope="row">{escape(value or "-")}</th>' if not place else f'<td class="text">{escape(value or "-")}</td>'
        for place, value in enumerate(group)
    )
    hours = "".join(
        f"<td>{value:,.2f}</td>" for value in (row["accelerator_hours"], row["worker_hours"], row["unpriced_hours"])
    )
    return f"{texts}{hours}<td>{_money(row['amount'], row['currency'])}</td>"


def _money(micros: int, currency: str) -> str:
    return escape(format_amount(micros, currency))
