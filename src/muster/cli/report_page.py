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
from muster.sim.plots import Axis, Curve, line_chart
from muster.sim.report_style import STYLE

_CHARTED: Final = ("utilisation", "success", "effective", "spot")  # shares, drawn over the periods
_MORE: Final = """
.met{color:var(--tone-6)}.missed{color:var(--tone-1)}
td.detail{white-space:normal;text-align:left;min-width:14rem;color:var(--faint)}
.card.met,.card.missed{color:var(--faint)}.card.met b{color:var(--tone-6)}.card.missed b{color:var(--tone-1)}
"""


def page(found: ReportView) -> str:
    body = "".join((_head(found), _cards(found), _waste(found), _chart(found), _table(found), _notes(found)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title(found))}</title><style>{STYLE}{_MORE}</style></head><body><main>{body}"
        f"<footer>Muster {__version__}.</footer></main></body></html>\n"
    )


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
    y = Axis(0.0, 1.0, tuple((part / 4, f"{part * 25}%") for part in range(5)), "share")
    chart = line_chart("Shares over time", "The shares of this period and of those before it", curves, x, y)
    return f'<section class="charts">{chart}</section>'


def _points(values: Sequence[float | None]) -> list[tuple[float, float]]:
    return [(float(at), min(value, 1.0)) for at, value in enumerate(values) if value is not None]


def _table(found: ReportView) -> str:
    names = ("figure", found["period"]["name"], "target", "change", *(one["name"] for one in reversed(found["before"])))
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in (*names, "in detail"))
    rows = "".join(_row(one) for one in found["figures"])
    return (
        '<section><h2>All figures</h2><div class="scroll" tabindex="0" role="region" aria-label="All figures"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _row(one: FigureView) -> str:
    cells = [target_text(one), change_text(one)[0]]
    cells += ["" if value is None else value_text(one["measure"], value) for value in reversed(one["before"])]
    return (
        f'<tr><th scope="row">{escape(one["label"])}<small>{escape(one["definition"])}</small></th>'
        f'<td class="{_class(one)}">{escape(value_text(one["measure"], one["value"]))}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + f'<td class="detail">{escape(detail_text(one))}</td></tr>'
    )


def _notes(found: ReportView) -> str:
    items = "".join(f"<li>{escape(each)}</li>" for each in found["notes"])
    return f"<section><h2>Notes</h2><ul>{items}</ul></section>" if items else ""


def _class(one: FigureView) -> str:
    return "" if one["met"] is None else "met" if one["met"] else "missed"
