"""The frame of an HTML file, and the parts that every report has: cards, tables, notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from muster.pages.style import STYLE


def document(title: str, body: str, footer: str, style: str = "") -> str:
    """The whole file. `title` and `footer` are text, `body` is HTML, and `style` is added to that of every page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body><main>{body}"
        f"<footer>{escape(footer)}</footer></main></body></html>\n"
    )


def scroll_table(label: str, heads: Sequence[str], rows: Iterable[str], more: str = "") -> str:
    """A table that scrolls sideways, also by keyboard. `label` and `heads` are text, `rows` are HTML; `more`: further
    attributes of the region."""
    cells = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"{more}>'
        f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def notes_section(notes: Iterable[str]) -> str:
    """Sentences as a list; nothing without any."""
    items = "".join(f"<li>{escape(each)}</li>" for each in notes)
    return f"<section><h2>Notes</h2><ul>{items}</ul></section>" if items else ""
