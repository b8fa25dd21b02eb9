"""The pure parts of following: server-sent events out of any pieces, and lines out of any pieces."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.client.stream import BAR_EVERY, Lines, LogLine, Message, Parser


def _pieces(whole, cuts):
    at = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    return [whole[a:b] for a, b in pairwise(at)]


def _parsed(pieces):
    parser = Parser()
    return [message for piece in pieces for message in parser.feed(piece)]


@given(
    st.lists(st.tuples(st.sampled_from(["log", "job", "end"]), st.text(), st.none() | st.integers(0, 10**6))),
    st.lists(st.integers(0, 10**6)),
    st.sampled_from(["\n", "\r\n"]),
)
def test_messages_are_the_same_however_the_bytes_arrive(messages, cuts, newline):
    text = ""
    for event, data, ident in messages:
        head = f"id: {ident}{newline}" if ident is not None else ""
        text += f": ping{newline}{head}event: {event}{newline}data: {json.dumps(data, ensure_ascii=False)}{newline * 2}"
    whole = text.encode(errors="surrogatepass")
    found = [m for m in _parsed(_pieces(whole, cuts)) if m is not None]
    assert found == [Message(event, data, ident) for event, data, ident in messages]


def test_characters_that_only_python_takes_for_line_breaks_stay_inside_of_a_message():
    whole = 'event: log\ndata: "a\u2028bc\x85d"\n\n'.encode()
    assert [m.data for m in _parsed([whole])] == ["a\u2028bc\x85d"]


def test_a_message_that_was_cut_off_is_not_delivered():
    assert list(_parsed([b'id: 4\nevent: log\ndata: {"text": "ha'])) == []


@given(st.text(alphabet="ab\n"), st.lists(st.integers(0, 1000)))
def test_lines_are_the_same_however_the_text_arrives(text, cuts):
    lines = Lines()
    found = [line for piece in _pieces(text, cuts) for line in lines.feed(1, 0, piece)] + list(lines.close())
    assert [line.text for line in found] == text.splitlines()


def test_ranks_do_not_mix_and_an_old_attempt_is_closed_before_the_next_speaks():
    lines = Lines()
    found = [*lines.feed(1, 0, "one"), *lines.feed(1, 1, "two\nth"), *lines.feed(2, 0, "four\n"), *lines.close()]
    assert found == [LogLine(1, 1, "two"), LogLine(1, 0, "one"), LogLine(1, 1, "th"), LogLine(2, 0, "four")]


@pytest.mark.parametrize("booted", [0.0, 100.0])  # seconds ago
def test_of_a_bar_only_what_a_terminal_would_show_is_kept_and_it_is_seen_to_move(booted):
    now = [booted]
    lines = Lines(lambda: now[0])
    assert [line.text for line in lines.feed(1, 0, "\r 1%\r 2%")] == [" 2%"]
    assert list(lines.feed(1, 0, "\r 3%")) == []
    now[0] += BAR_EVERY
    assert [line.text for line in lines.feed(1, 0, "\r 4%")] == [" 4%"]
    assert [line.text for line in lines.feed(1, 0, "\r99%\r100%\r\nnext\n")] == ["100%", "next"]


@given(st.lists(st.text(alphabet="ab", max_size=3), max_size=20), st.lists(st.integers(0, 1000)))
def test_a_line_has_the_time_at_which_it_was_begun_however_the_text_arrives(texts, cuts):
    whole = "".join(f"{text}\n" for text in texts)
    lines, found = Lines(), []
    for begin, end in pairwise(sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})):
        piece = whole[begin:end]
        # Line N of the whole was written at the time N.
        first = whole.count("\n", 0, begin)
        times = [(number, float(first + number)) for number in range(piece.count("\n") + 1)]
        found += lines.feed(1, 0, piece, times)
    assert [line.time for line in found] == [float(number) for number in range(len(texts))]
