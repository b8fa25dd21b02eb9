"""How many values a request's JSON may have: those of the document, not what stands in its texts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from starlette.types import Message

from muster.server.sizes import MANY_VALUES, Values, bounded

VALUES = st.recursive(
    st.text('"\\[]{},a') | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('",\\'), inner, max_size=4),
)


def read(path: str, body: bytes) -> int:
    """How many bytes of the body were taken."""
    parts = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]

    async def receive() -> Message:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def all_of_it() -> int:
        taken = bounded({"method": "POST", "path": path}, {b"content-type": b"application/json"}, receive)
        return sum([len((await taken())["body"]) for _ in range(len(parts))])

    return asyncio.run(all_of_it())


def test_a_batch_of_scripts_full_of_commas_is_taken() -> None:
    script = "python -c 'print([1,2,3])' " + "a,b,[c],{d}," * 100
    body = json.dumps({"jobs": [{"spec": {"name": "a", "run": script}, "key": str(n)} for n in range(2000)]}).encode()
    assert body.count(b",") > MANY_VALUES
    assert read("/v1/jobs/batch", body) == len(body)


@pytest.mark.parametrize("path", ["/v1/jobs/batch", "/v1/jobs", "/mlflow/api/2.0/mlflow/runs/search"])
def test_many_values_are_refused(path: str) -> None:
    with pytest.raises(HTTPException, match="values"):
        read(path, b"[" + b'"a,b",' * (MANY_VALUES + 1) + b"1]")


def test_texts_count_where_they_are_read_as_json_again() -> None:
    with pytest.raises(HTTPException, match="values"):
        read("/mlflow/api/2.0/mlflow/runs/search", json.dumps("[" + "1," * MANY_VALUES + "1]").encode())


@given(VALUES, st.lists(st.integers(0, 200)))
def test_wherever_the_parts_of_a_body_end(value: object, cuts: Sequence[int]) -> None:
    body = json.dumps(value).encode()
    counted = Values()
    for start, stop in pairwise([0, *sorted(cuts), len(body)]):
        counted.add(body[start:stop])
    assert counted.count == marks(value)


def marks(value: object) -> int:
    """Commas and opening brackets outside of strings."""
    if not isinstance(value, list | dict):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(0, len(inner) - 1) + sum(map(marks, inner))
