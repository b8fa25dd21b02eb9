"""JSON from outside: what is nested too deeply is refused with a sentence, whatever stands in its strings."""

from __future__ import annotations

import json

import pytest

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
