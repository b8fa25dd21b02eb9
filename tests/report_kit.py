"""Reports of tests that can be sent: what a test quotes may hold half a surrogate pair, which no process can encode."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Without this, the worker of xdist that has to send such a report crashes, and nobody learns what failed."""
    return sendable((yield))


def sendable(value: Any) -> Any:
    """The same data, with `\\udc80` written out where a text holds one."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {sendable(key): sendable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(sendable(one) for one in value)
    return value
