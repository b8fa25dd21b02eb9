"""Parallel coordinates: an upright axis for each quantity, and a line for each thing that has values on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from muster.pages.charts import SIZE, Key, legend

_WIDTH: Final = 6.5  # of an axis, in rem: the chart scrolls where there is less room
_LETTERS: Final = 12  # of a tick


@dataclass(frozen=True, slots=True)
class Upright:
    """`ticks` are places from 0 to 1, with their words."""

    title: str
    about: str
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Track:
    """A place from 0 to 1 on each axis; None: the line has a gap there."""

    places: Sequence[float | None]
    kind: str
    title: str


def parallel_chart(
    title: str, about: str, axes: Sequence[Upright], tracks: Iterable[Track], keys: Sequence[Key], name: str
) -> str:
    """The last track is on top."""
    count = len(axes)
    lines = "".join(_track(one, count) for one in tracks)
    bars = "".join(f'<line x1="{_x(at, count)}" y1="0" x2="{_x(at, count)}" y2="{SIZE}"/>' for at in range(count))
    heads = "".join(f'<span title="{escape(one.about)}">{escape(one.title)}</span>' for one in axes)
    ticks = "".join(_ticks(one, at, count) for at, one in enumerate(axes))
    return (
        f'<figure class="chart wide"><figcaption id="{name}">{escape(title)}<small>{escape(about)}</small></figcaption>'
        f'<div class="lanes" tabindex="0" role="region" aria-label="{escape(title)}">'
        f'<div style="min-width:{count * _WIDTH:g}rem"><div class="heads" aria-hidden="true">{heads}</div>'
        f'<div class="plane"><svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="{name}"><g class="tracks">{lines}</g><g class="uprights">{bars}</g></svg>'
        f'<div class="ticks" aria-hidden="true">{ticks}</div></div></div></div>{legend(keys)}</figure>'
    )


def _track(one: Track, count: int) -> str:
    title = f"<title>{escape(one.title)}</title>"
    return f'<path class="{one.kind}" d="{"".join(_pieces(one.places, count))}">{title}</path>'


def _pieces(places: Sequence[float | None], count: int) -> Iterator[str]:
    """Lines between neighbours; a place without neighbours is a dot."""
    before = False
    for at, place in enumerate(places):
        if place is not None:
            after = at + 1 < len(places) and places[at + 1] is not None
            yield f"{'L' if before else 'M'}{_x(at, count)} {SIZE * (1 - place):.0f}{'' if before or after else 'h.1'}"
        before = place is not None


def _x(at: int, count: int) -> str:
    return f"{SIZE * (at + 0.5) / count:.1f}"


def _ticks(axis: Upright, at: int, count: int) -> str:
    left = 100 * (at + 0.5) / count
    return "".join(
        f'<span style="left:{left:.2f}%;bottom:{100 * place:.2f}%">{escape(_short(words))}</span>'
        for place, words in axis.ticks
    )


def _short(words: str) -> str:
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}…"
