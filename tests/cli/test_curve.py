"""The terminal plot: where its dots, colours, marks and numbers fall, and that no values can break it."""

from __future__ import annotations

import io
import math

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from muster.cli.curve import Series, draw


def test_a_falling_line_goes_from_the_top_left_to_the_bottom_right():
    rows = _plot_rows(draw([Series("loss", range(11), [10.0 - i for i in range(11)])], width=40, height=10))
    columns = [[i for i, letter in enumerate(row) if _dots(letter)] for row in rows]
    assert all(columns), "every row holds a part of the line"
    assert [min(c) for c in columns] == sorted(min(c) for c in columns)
    assert columns[0][0] < columns[-1][-1]


def test_each_series_has_its_colour_where_it_was_drawn():
    first = Series("one", range(50), [2.0] * 50, "red")
    second = Series("two", range(50, 100), [1.0] * 50, "green")
    text = draw([first, second], width=60, height=8)
    styles = {(str(span.style), text.plain[span.start]) for span in text.spans if _dots(text.plain[span.start])}
    assert {style for style, _ in styles} == {"red", "green"}
    red = next(span for span in text.spans if span.style == "red" and _dots(text.plain[span.start]))
    green = next(span for span in text.spans if span.style == "green" and _dots(text.plain[span.start]))
    assert red.start < green.start, "the higher line stands in an earlier row"


def test_a_mark_stands_at_its_step_with_its_label_beside_it():
    series = Series("loss", [0, 100], [1.0, 1.0])
    rows = _plot_rows(draw([series], [(50, "restart")], width=61, height=6))
    places = {row.index("┊") for row in rows if "┊" in row}
    assert len(places) == 1
    (at,) = places
    axis_at = rows[0].index("│") if "│" in rows[0] else rows[0].index("┤")
    plot_width = len(rows[0]) - axis_at - 1
    assert abs((at - axis_at) / plot_width - 0.5) < 0.05
    assert any("┊ restart" in row for row in rows)
    long = "a label with too many words"
    assert f"┊ {long} at 50" in draw([series], [(50, long)], width=61, height=6).plain.splitlines()[-1]


def test_axes_carry_round_numbers_and_names():
    plain = draw(
        [Series("a", range(351), [3.4 - 0.008 * i for i in range(351)])], width=90, height=16, y_label="loss"
    ).plain
    lines = plain.splitlines()
    assert lines[0].split() == ["loss"]
    assert "3.0┤" in plain
    assert "1.0┤" in plain
    assert lines[-3].endswith("step")
    assert lines[-2].split() == ["0", "50", "100", "150", "200", "250", "300", "350"]


def test_one_point_and_equal_values_are_drawn():
    assert sum(map(_dots, draw([Series("a", [7], [3.0])], width=40).plain)) == 1
    flat = _plot_rows(draw([Series("a", [1, 2, 3], [0.0, 0.0, 0.0])], width=40, height=9))
    assert sum(any(map(_dots, row)) for row in flat) == 1


def test_what_is_not_a_number_leaves_a_gap():
    steps = list(range(101))
    whole = draw([Series("a", steps, [1.0] * 101)], width=60).plain
    gap = draw([Series("a", steps, [None if 30 < i < 70 else 1.0 for i in steps])], width=60).plain
    nan = draw([Series("a", steps, [math.nan if 30 < i < 70 else 1.0 for i in steps])], width=60).plain
    assert gap == nan
    assert 0.5 < sum(map(_dots, gap)) / sum(map(_dots, whole)) < 0.75


def test_no_finite_value_is_said_in_words():
    assert draw([Series("a", [1, 2], [math.nan, None])], y_label="loss").plain == "loss: no values to draw"
    assert "no values" in draw([], y_label="loss").plain


values = st.one_of(st.none(), st.floats(), st.floats(min_value=-1e-310, max_value=1e-310))
points = st.lists(st.tuples(st.integers(-(10**6), 10**9), values), max_size=40)


@settings(deadline=None)  # a busy machine is no mistake of the plot's
@given(
    st.lists(points, max_size=3), st.lists(st.floats(-1e6, 1e6), max_size=2), st.integers(30, 200), st.integers(2, 40)
)
def test_any_values_give_a_plot_of_the_asked_size(lists, marks, width, height):
    series = [Series(f"s{i}", [x for x, _ in one], [y for _, y in one]) for i, one in enumerate(lists)]
    text = draw(series, [(step, "here") for step in marks], width, height, y_label="loss")
    assert isinstance(text, Text)
    if any(y is not None and math.isfinite(y) for one in lists for _, y in one):
        lines = text.plain.splitlines()
        assert len(lines) == height + 4  # name, rows, axis, numbers, legend
        assert max(map(len, lines)) <= width
    Console(width=width, file=io.StringIO(), color_system="truecolor").print(text)


def _plot_rows(text: Text) -> list[str]:
    return [line for line in text.plain.splitlines() if "│" in line or "┤" in line]


def _dots(letter: str) -> bool:
    return 0x2800 < ord(letter) <= 0x28FF
