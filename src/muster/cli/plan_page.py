"""The plan as one HTML file: the answer, its memory as a bar, every option and every reason; without scripts."""

from __future__ import annotations

from html import escape

from muster import __version__
from muster.cli.plan_view import best_of, conclusions, describe, unit_of
from muster.pages.document import document, notes_section, scroll_table
from muster.planner.catalogue import GIB
from muster.planner.search import Answer, Option, format_seconds
from muster.planner.setups import Setup

_MORE = """
.memory{display:flex;height:1.6rem;border:1px solid var(--faint)}.memory span{overflow:hidden;font-size:.75rem}
"""


def page(answer: Answer, setup: Setup, tokens: float) -> str:
    body = f"<header><h1>A plan</h1><p>{escape(describe(setup, tokens))}</p></header>"
    body += notes_section(conclusions(answer, (None, None)))
    if answer.simplest is not None:
        body += _memory(answer.simplest)
    heads = ["device", "n", "layout", "GiB", "of", "step", "MFU", f"{unit_of(setup)}/s", "USD/billion", "time", "USD"]
    body += f"<section><h2>Options</h2>{scroll_table('Options', heads, map(_row, best_of(answer.options)))}</section>"
    refused = (
        _cells(each.device, str(each.devices), each.layout, each.why) for each in answer.refused
    )  # fmt: skip
    whys = scroll_table("Reasons", ["device", "n", "layout", "why"], refused)
    return document(
        "A plan", f"{body}<section><h2>What does not fit</h2>{whys}</section>", f"Muster {__version__}.", _MORE
    )


def _memory(option: Option) -> str:
    parts = {name: size for name, size in option.memory.parts().items() if size}
    tones = (f"var(--tone-{number})" for number in (3, 4, 5, 6, 2, 1, 7))
    bar = "".join(
        f'<span style="width:{100 * size / option.device.memory:.2f}%;background:{tone}"></span>'
        for size, tone in zip(parts.values(), tones, strict=False)
    )
    rows = (_cells(name, f"{size / GIB:.2f}") for name, size in parts.items())
    told = f"{option.memory.total / GIB:.1f} GiB of {option.device.memory_gib:.0f}"
    return (
        f"<section><h2>Memory of each {escape(option.device.name)}</h2><p>{told}</p>"
        f'<div class="memory" role="img" aria-label="{told}">{bar}</div>'
        f"{scroll_table('Memory by part', ['part', 'GiB'], rows)}</section>"
    )


def _row(each: Option) -> str:
    step = each.step
    return _cells(
        each.device.name, str(each.layout.devices), each.words, f"{each.memory.total / GIB:.1f}",
        f"{each.device.memory_gib:.0f}", f"{step.seconds * 1e3:,.0f} ms", f"{step.mfu:.0%}", f"{step.rate:,.0f}",
        f"{step.per_billion:,.1f}", format_seconds(each.seconds), f"{each.cost:,.0f}",
    )  # fmt: skip


def _cells(*texts: str) -> str:
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>"
