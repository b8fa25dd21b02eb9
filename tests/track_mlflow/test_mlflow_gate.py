"""The door of /mlflow, without a server: how it reads what it is sent."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from muster.server.mlflow import gate


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
