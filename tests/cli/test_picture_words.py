"""Pictures of screens: every word and every glyph of a curve stands at its own column."""

from __future__ import annotations

import re
from pathlib import Path

from rich.text import Text

from muster.cli.demo_view import write_picture

CELL = 12.2  # px: the width of a column in Rich's pictures
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def test_words_and_glyphs_stand_at_their_columns(tmp_path):
    line = "    loss 0.5 <&>  ⡇ ⠘⡄ done"
    write_picture(tmp_path / "one.svg", Text(line), "a title")
    svg = (tmp_path / "one.svg").read_text()
    found = re.findall(r'<text class="[^"]+" x="([\d.]+)" y="[\d.]+" clip-path="[^"]+">([^<]+)</text>', svg)
    said = [(round(float(x) / CELL), word) for x, word in found]
    assert said == [
        (line.index("loss"), "loss"),
        (line.index("0.5"), "0.5"),
        (line.index("<"), "&lt;&amp;&gt;"),
        (line.index("⡇"), "⡇"),
        (line.index("⠘"), "⠘"),
        (line.index("⡄"), "⡄"),
        (line.index("done"), "done"),
    ]


def test_pictures_of_the_documentation_need_nothing_that_some_programs_leave_out():
    for path in PICTURES.glob("*.svg"):
        text = path.read_text()
        assert not re.search(r"textLength|foreignObject|@font-face|@import", text), path.name
        assert not re.search(r'(?:href|src)="(?!#)', text), path.name
