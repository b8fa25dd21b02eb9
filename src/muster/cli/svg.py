"""Makes the SVG of a screen look alike everywhere: every word is placed by itself.

Rich writes parts of a line as texts of a stated length. Where `textLength` is ignored (librsvg), leading spaces are
dropped or a glyph comes from a wider font, everything that follows moves.
"""

from __future__ import annotations

import re
from typing import Final

_TEXT: Final = re.compile(
    r'<text class="([^"]+)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)" clip-path="([^"]+)">([^<]*)</text>'
)
_CHARACTER: Final = re.compile(r"&[#\w]+;|.", re.DOTALL)  # an entity is one
_SPACES: Final = {"&#160;", " ", "\n", "\u00a0", "\u2800"}  # the last is Braille without a dot


def place_words(svg: str) -> str:
    """The same picture with a text for each word, and for each glyph of a curve or a frame."""
    return _TEXT.sub(_placed, svg)


def _placed(found: re.Match[str]) -> str:
    style, x, y, length, clip, content = found.groups()
    characters = _CHARACTER.findall(content)
    width = float(length) / max(1, len(characters))
    words: list[tuple[int, str]] = []  # the column that each begins in
    for column, one in enumerate(characters):
        if one in _SPACES:
            continue
        if words and _plain(one) and _plain(words[-1][1]) and characters[column - 1] not in _SPACES:
            words[-1] = (words[-1][0], words[-1][1] + one)
        else:
            words.append((column, one))
    return "".join(
        f'<text class="{style}" x="{float(x) + column * width:g}" y="{y}" clip-path="{clip}">{word}</text>'
        for column, word in words
    )


def _plain(text: str) -> bool:
    """Whether every font of equal widths has it at the usual width."""
    return text.isascii()
