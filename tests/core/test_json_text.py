"""JSON from outside: what is nested too deeply is refused with a sentence, whatever stands in its strings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.errors import Invalid
from muster.core.json_text import parse


@pytest.mark.parametrize("value", [{"a": [1, {"b": None}]}, "[[[" * 50, [{"x": '"['}] * 1000, 1.5, {"é": '\\"['}])
def test_what_is_json(value: object) -> None:
    assert parse(json.dumps(value)) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize("levels", [65, 1000, 1_000_000])
def test_what_is_too_deep(levels: int) -> None:
    for text in ("[" * levels, '{"a":' * levels, "[" * levels + "]" * levels, '["]]]]",' * levels):
        with pytest.raises(Invalid, match="more deeply than 64"):
            parse(text)
    assert parse("[" * 64 + "]" * 64)


@pytest.mark.parametrize("text", [b"{bad", b"\xff\xfe[\x00]\x00", b"", b'"open', "[1,", '{"a": 1' + "0" * 5000 + "}"])
def test_what_is_none(text: bytes | str) -> None:
    with pytest.raises(Invalid, match="not valid JSON"):
        parse(text)


@pytest.mark.parametrize("text", ['\\"', "\\\\", "a", '""', '"\\\\"'])
def test_what_never_ends_is_read_once(text: str) -> None:
    """Megabytes of quotes and backslashes: a reader that tried every quote anew would not come to an end."""
    for string in (f'"{text * 500_000}', f'"{text * 500_000}\\'):
        with pytest.raises(Invalid, match="not valid JSON"):
            parse("[" * 10 + "[], " * 100 + string)


@given(st.recursive(st.text('"\\[]{}a'), lambda inner: st.lists(inner, max_size=3), max_leaves=20))
def test_only_brackets_outside_of_strings_count(value: object) -> None:
    levels = depth_of(value)
    text = json.dumps(value)
    assert parse(text, levels) == value
    if levels:
        with pytest.raises(Invalid, match=f"more deeply than {levels - 1}"):
            parse(text, levels - 1)


def depth_of(value: object) -> int:
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0
