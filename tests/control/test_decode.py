"""Decoding: any mix of records comes back, and anything else is a ValueError."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import wire
from muster.control.decode import decode

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
SHAPES = st.lists(st.lists(NAMES, unique=True, max_size=6).map(tuple), min_size=1, max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TIMES = st.floats(0, 4e9)
STEPS = st.integers(-(1 << 63), (1 << 63) - 1)


def row(shape: int, step: int, time: float, values: list[float]) -> bytes:
    layout = wire.row_struct(len(values))
    return layout.pack(wire.KIND_ROW, shape, layout.size, step, time, *values)


@st.composite
def mixtures(draw):
    """Records, with the points that each metric and the documents that they hold."""
    shapes = draw(SHAPES)
    records = [wire.shape_record(i, names) for i, names in enumerate(shapes)]
    points: dict[str, list[tuple[int, float, float]]] = {}
    docs = []
    for _ in range(draw(st.integers(0, 12))):
        if draw(st.integers(0, 3)) == 0:
            docs.append({"type": draw(NAMES), "time": draw(TIMES), "more": draw(JSON)})
            records.append(wire.doc_record(docs[-1]))
            continue
        shape, step, time = draw(st.integers(0, len(shapes) - 1)), draw(STEPS), draw(TIMES)
        values = draw(st.lists(st.floats(), min_size=len(shapes[shape]), max_size=len(shapes[shape])))
        for repeat in range(draw(st.sampled_from([1, 2, 7, 8, 9, 40]))):  # short runs and long ones go different ways
            records.append(row(shape, step, time + repeat, values))
            for name, value in zip(shapes[shape], values, strict=True):
                points.setdefault(name, []).append((step, time + repeat, value))
    return records, points, docs, dict(enumerate(shapes))


def bits(points) -> list[tuple[int, float, bytes]]:
    """Comparable, NaN included."""
    return [(step, time, struct.pack("<d", value)) for step, time, value in points]


@settings(deadline=None)
@given(mixtures())
def test_any_mix_comes_back(mixture):
    records, points, docs, shapes = mixture
    found = decode(b"".join(records), {})
    columns = {n: bits(zip(c.steps, c.times, c.values, strict=True)) for n, c in found.columns.items() if c.steps}
    assert columns == {name: bits(each) for name, each in points.items()}
    assert (found.docs, found.shapes) == (docs, shapes)


@settings(deadline=None)
@given(mixtures(), st.data())
def test_a_stream_may_be_cut_between_any_two_records(mixture, data):
    records, points, docs, shapes = mixture
    cut = data.draw(st.integers(0, len(records)))
    first = decode(b"".join(records[:cut]), {})
    known = dict(first.shapes)
    second = decode(b"".join(records[cut:]), first.shapes)
    assert first.shapes == known
    both = [
        *(
            (n, p)
            for found in (first, second)
            for n, c in found.columns.items()
            for p in zip(c.steps, c.values, strict=True)
        )
    ]
    assert len(both) == sum(map(len, points.values()))
    assert (first.docs + second.docs, second.shapes) == (docs, shapes)


@settings(deadline=None)
@given(mixtures(), st.data())
def test_a_torn_tail_is_refused(mixture, data):
    whole = b"".join(mixture[0])
    ends = {0}
    for record in mixture[0]:
        ends.add(max(ends) + len(record))
    cut = data.draw(st.integers(0, len(whole)))
    if cut in ends:
        decode(whole[:cut], {})
    else:
        with pytest.raises(ValueError, match="byte"):
            decode(whole[:cut], {})


@given(st.binary(max_size=400))
def test_any_bytes_are_decoded_or_refused(data):
    try:
        decode(data, {0: ("loss",), 1: ("a", "b")})
    except ValueError:
        pass


@settings(deadline=None)
@given(mixtures(), st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=5))
def test_damaged_records_are_decoded_or_refused(mixture, spots):
    data = bytearray(b"".join(mixture[0]))
    for at, value in spots:
        data[at % len(data)] = value
    try:
        decode(bytes(data), {})
    except ValueError:
        pass


def record(kind: int, argument: int, payload: bytes) -> bytes:
    size = 8 + len(payload)
    return wire.RECORD_HEADER.pack(kind, argument, size + -size % 8) + payload + bytes(-size % 8)


def doc(text: str) -> bytes:
    return record(wire.KIND_DOC, 0, text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"1234567", "multiples of 8"),
        (row(0, 1, 1.0, [1.0]), "shape 0, which no record has brought"),
        (wire.shape_record(0, ("a", "b")) + row(0, 1, 1.0, [1.0]), "a row of 32 bytes for 2 metrics"),
        (wire.shape_record(0, ("a",)) + row(0, 1, math.nan, [1.0]), "without a time"),
        (wire.shape_record(0, ("a",)) + 9 * row(0, 1, math.inf, [1.0]), "without a time"),
        (wire.shape_record(wire.SHAPES_MAX, ("a",)), "there are at most"),
        (wire.shape_record(0, ("a", "a")), "names a metric twice"),
        (wire.shape_record(0, ("n" * (wire.NAME_MAX + 1),)), "names of at most"),
        (wire.shape_record(0, ("",)), "names of at most"),
        (record(wire.KIND_SHAPE, 0, b'{"a": 1}'), "not a list of names"),
        (record(wire.KIND_SHAPE, 0, b"[1]"), "not a list of names"),
        (record(9, 0, b"        "), "kind 9"),
        (wire.RECORD_HEADER.pack(wire.KIND_DOC, 0, 0), "a record of 0 bytes"),
        (wire.RECORD_HEADER.pack(wire.KIND_DOC, 0, 1 << 30), "a record of 1073741824 bytes; 8 are left"),
        (wire.RECORD_HEADER.pack(wire.KIND_ROW, 0, 1 << 30), "no record has brought"),
        (doc("[]"), "without a type"),
        (doc('{"type": 3, "time": 1}'), "without a type"),
        (doc('{"type": "note"}'), "without a time"),
        (doc('{"type": "note", "time": true}'), "without a time"),
        (doc('{"type": "note", "time": 1, "x": NaN}'), "NaN is not a number"),
        (doc('{"type": "note", "time": 1, "x": 1e999}'), "1e999 is not a number"),
        (doc('{"type": "note", "time": 1, "x": "\\u0000"}'), "NUL"),
        (doc('{"type": "note", "time": 1, "x": "\\ud800"}'), "surrogates"),
        (doc('{"type": "note", "time": 1, "x": "\ud800"}'), "utf-8"),
        (doc('{"type": "note", "time": 1, "x": ' + "9" * 5000 + "}"), "digits"),
    ],
)
def test_what_is_wrong_is_said(data, words):
    with pytest.raises(ValueError, match=words):
        decode(data, {})


def test_the_text_of_an_escape_is_not_the_escape():
    text = "\\u0000 and \\\\u0000 and é and 😀"
    (found,) = decode(wire.doc_record({"type": "note", "time": 1.0, "text": text}), {}).docs
    assert found["text"] == text
    assert json.loads(json.dumps(found)) == found


def test_a_shape_may_get_a_new_meaning_in_the_midst_of_the_stream():
    first, second = wire.shape_record(0, ("a",)), wire.shape_record(0, ("b",))
    found = decode(first + 20 * row(0, 1, 1.0, [1.0]) + second + 20 * row(0, 2, 2.0, [2.0]), {0: ("z", "y")})
    assert {name: set(column.values) for name, column in found.columns.items()} == {"a": {1.0}, "b": {2.0}}
    assert [len(column.steps) for column in found.columns.values()] == [20, 20]


@pytest.mark.parametrize("depth", [100, 5000, 200_000])
def test_a_document_that_is_nested_too_deeply_is_dropped_and_the_rest_goes_on(depth: int) -> None:
    deep = b'{"type":"params","time":1.0,"values":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    size = 8 + len(deep) + -len(deep) % 8
    record = wire.RECORD_HEADER.pack(wire.KIND_DOC, 0, size) + deep.ljust(size - 8, b"\0")
    after = wire.doc_record({"type": "note", "time": 2.0, "text": "[" * 200})
    found = decode(record + after, {})
    assert [doc["type"] for doc in found.docs] == ["dropped", "note"]
    assert "nested" in found.docs[0]["why"]


def test_a_batch_with_a_header_nested_deeply_is_no_batch() -> None:
    for head in (b"[" * 100_000, b'{"pieces":' + b"[" * 100_000, b" " * (2 << 20)):
        with pytest.raises(ValueError, match=r"batch|header"):
            wire.Batch.decode(struct.pack("<I", len(head)) + head)
