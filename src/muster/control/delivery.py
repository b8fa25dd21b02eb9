"""Posts a message of the outbox to an HTTP receiver."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import httpx

from muster.control.outbox import ReceiverAway
from muster.core.errors import ConfigError

SIGNATURE: Final = "Muster-Signature"  # "sha256=" and the HMAC of the body
DELIVERY: Final = "Muster-Delivery"  # the message's number, the same at every try
_SECONDS: Final = 10.0  # timeout of a request in seconds
_LATER: Final = {429, 503}  # too many requests, and unavailable


def post(url: str, body: bytes, number: int, secret_env: str = "") -> None:
    """Posts JSON. Raises unless the receiver answers with a 2xx. Redirects are not followed.

    A receiver that does not answer, or asks to come later, is away: it would treat every message so. `secret_env`: the
    variable whose value signs the body.
    """
    headers = {"Content-Type": "application/json", DELIVERY: str(number), **signature(body, secret_env)}
    host = urlsplit(url).hostname
    try:
        with (
            httpx.Client(timeout=_SECONDS, follow_redirects=False, trust_env=False) as http,
            http.stream("POST", url, content=body, headers=headers) as answer,  # its body is not read
        ):
            status = answer.status_code
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise ReceiverAway(f"{host} did not answer: {error or type(error).__name__}") from error
    if status in _LATER:
        raise ReceiverAway(f"{host} answered {status}")
    if not 200 <= status < 300:
        raise ConnectionError(f"{host} answered {status}")


def variable(name: str) -> str:
    """The value of a variable of the server's environment. Raises ConfigError."""
    found = os.environ.get(name, "")
    if not found:
        raise ConfigError(f"The variable {name} is not set.", "Set it for the server.")
    return found


def is_address(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def signature(body: bytes, secret_env: str) -> Mapping[str, str]:
    """The header that signs the body with the value of this variable; none without one."""
    if not secret_env:
        return {}
    secret = variable(secret_env)
    return {SIGNATURE: "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}
