"""The door of /mlflow, without a server: how it reads what it is sent."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from muster.server.guard import _HEAVY
from muster.server.mlflow import gate
from muster.server.sizes import LARGE, MANY_VALUES
from muster.track.mlflow.faults import Fault


def asked(body: bytes, **headers: str) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": named}, receive)


def test_bodies_are_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one body takes, everybody else is answered meanwhile."""
    readers: list[threading.Thread] = []

    def parse(text: bytes) -> Any:
        readers.append(threading.current_thread())
        return {}

    monkeypatch.setattr(gate, "parse", parse)
    kind = "application/json"
    asyncio.run(gate._body(asked(b"{}", content_type=kind), "runs/search"))
    asyncio.run(gate._check_forwarded(asked(b"{}", content_type=kind), "/api/2.0/mlflow/logged-models"))
    assert len(readers) == 2
    assert threading.main_thread() not in readers


def forwarded(body: bytes, **headers: str) -> Request:
    """What MLflow's server gets of spans that are sent with these headers."""
    request = asked(body, **headers)
    asyncio.run(gate._check_forwarded(request, "/v1/traces"))
    return Request(request.scope, gate._again(request._body, request.receive))


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKERS = [("gzip", gzip.compress), ("GZIP", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)]


@pytest.mark.parametrize(("name", "pack"), [*PACKERS, ("identity", bytes)])
def test_spans_are_handed_on_unpacked(name: str, pack: Callable[[bytes], bytes]) -> None:
    """So that nothing behind this door unpacks anything."""
    given = forwarded(pack(b"spans" * 100), content_encoding=name, content_type="application/x-protobuf")
    assert asyncio.run(given.body()) == b"spans" * 100
    assert "content-encoding" not in given.headers
    assert given.headers["content-length"] == "500"


@pytest.mark.parametrize(("name", "pack"), PACKERS)
def test_spans_that_are_too_large_once_unpacked(name: str, pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Fault, match="more than 32 MiB: send fewer"):
        forwarded(pack(bytes(LARGE + 1)), content_encoding=name, content_type="application/x-protobuf")
    many = pack(b"[" + b"1," * MANY_VALUES + b"1]")
    with pytest.raises(Fault, match="500,000 values: send fewer"):
        forwarded(many, content_encoding=name, content_type="application/json")
    with pytest.raises(Fault, match="more deeply than 64"):
        forwarded(pack(b"[" * 1000), content_encoding=name, content_type="application/json")


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_spans_that_are_no_whole_stream(name: str) -> None:
    packed = gzip.compress(b"spans" * 100) if name == "gzip" else zlib.compress(b"spans" * 100)
    for body in (b"", b"no such thing", packed[:-1], packed + b"more", packed * 2):
        with pytest.raises(Fault, match="not one whole stream"):
            forwarded(body, content_encoding=name, content_type="application/x-protobuf")


@pytest.mark.parametrize("name", ["br", "zstd", "gzip, gzip"])
def test_encodings_that_nobody_reads(name: str) -> None:
    with pytest.raises(Fault, match="Send gzip, deflate or none"):
        forwarded(b"spans", content_encoding=name)


@pytest.mark.parametrize("end", ["graphql", "api/2.0/mlflow/runs/search", "ajax-api/2.0/mlflow/metrics/get-history"])
def test_what_reads_many_rows_takes_turns(end: str) -> None:
    assert _HEAVY.fullmatch(f"/mlflow/{end}")
    assert _HEAVY.fullmatch(f"/mlflow//{end}")
    assert not _HEAVY.fullmatch(f"/mlflow/{end}/more")
    assert not _HEAVY.fullmatch("/mlflow/version")
