"""The report of a month as one HTML file, with inline SVG and without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from muster import __version__
from muster.api.report import FigureView, ReportView
from muster.cli.report import (
    LARGEST,
    change_text,
    covered,
    detail_text,
    hours_text,
    target_text,
    title,
    value_text,
)
from muster.pages.axes import Axis, share_axis
from muster.pages.charts import Curve, line_chart
from muster.pages.document import document, notes_section, scroll_table

_CHARTED: Final = ("utilisation", "success", "effective", "spot")  # shares, drawn over the periods
_MORE: Final = """
.met{color:var(--tone-6)}.missed{color:var(--tone-1)}
td.detail{white-space:normal;text-align:left;min-width:14rem;color:var(--faint)}
.card.met,.card.missed{color:var(--faint)}.card.met b{color:var(--tone-6)}.card.missed b{color:var(--tone-1)}
"""


def page(found: ReportView) -> str:
    body = "".join(
        (_head(found), _cards(found), _waste(found), _chart(found), _table(found), notes_section(found["notes"]))
    )
    return document(title(found), body, f"Muster {__version__}.", _MORE)


def _head(found: ReportView) -> str:
    about = f"{covered(found)} Time zone: {found['zone']}; the use of machines is counted in whole UTC days."
    return f"<header><h1>{escape(title(found))}</h1><p>{escape(about)}</p></header>"


def _cards(found: ReportView) -> str:
    """The figures that have a target."""
    cards = "".join(
        f'<div class="card {_class(one)}"><h3>{escape(one["label"])}</h3>'
        f"<b>{escape(value_text(one['measure'], one['value']))}</b> target {escape(target_text(one))}"
        f"<br>{'' if one['met'] is None else 'met' if one['met'] else 'missed'}</div>"
        for one in found["figures"]
        if one["target"] is not None
    )
    return f'<section class="cards" aria-label="Targets">{cards}</section>'


def _waste(found: ReportView) -> str:
    if not found["waste"]:
        return ""
    items = "".join(
        f"<li>{escape(one['cause'])}: <b>{hours_text(one['hours'])}</b></li>" for one in found["waste"][:LARGEST]
    )
    return f"<section><h2>The largest causes of waste, in {found['unit']} hours</h2><ol>{items}</ol></section>"


def _chart(found: ReportView) -> str:
    names = [*(one["name"] for one in found["before"]), found["period"]["name"]]
    curves = [
        Curve(one["label"], points, tone)
        for tone, one in enumerate(each for each in found["figures"] if each["name"] in _CHARTED)
        if len(points := _points([*one["before"], one["value"]])) > 1
    ]
    if not curves:
        return ""
    x = Axis(0.0, float(len(names) - 1), tuple((float(at), name) for at, name in enumerate(names)), "period")
    about = "The shares of this period and of those before it"
    chart = line_chart("Shares over time", about, curves, x, share_axis("share"))
    return f'<section class="charts">{chart}</section>'


def _points(values: Sequence[float | None]) -> list[tuple[float, float]]:
    return [(float(at), min(value, 1.0)) for at, value in enumerate(values) if value is not None]


def _table(found: ReportView) -> str:
    names = ("figure", found["period"]["name"], "target", "change", *(one["name"] for one in reversed(found["before"])))
    made = scroll_table("All figures", (*names, "in detail"), map(_row, found["figures"]))
    return f"<section><h2>All figures</h2>{made}</section>"


def _row(one: FigureView) -> str:
    cells = [target_text(one), change_text(one)[0]]
    cells += ["" if value is None else value_text(one["measure"], value) for value in reversed(one["before"])]
    return (
        f'<tr><th scope="row">{escape(one["label"])}<small>{escape(one["definition"])}</small></th>'
        f'<td class="{_class(one)}">{escape(value_text(one["measure"], one["value"]))}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + f'<td class="detail">{escape(detail_text(one))}</td></tr>'
    )


def _class(one: FigureView) -> str:
    return "" if one["met"] is None else "met" if one["met"] else "missed"
