"""Whether a request may read `/metrics` without a token: `metrics = "loopback"`, and it comes from this machine."""

from __future__ import annotations

import ipaddress
from typing import Final

from starlette.types import Scope

from muster.server.settings import Settings

PATH: Final = "/metrics"
# A proxy on this machine adds one of these to the requests of others.
_FORWARDED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})


def is_open(settings: Settings, scope: Scope) -> bool:
    if settings.metrics != "loopback" or scope["path"] != PATH:
        return False
    if any(name.lower() in _FORWARDED for name, _ in scope["headers"]):
        return False
    try:
        return ipaddress.ip_address((scope.get("client") or ("", 0))[0]).is_loopback
    except ValueError:
        return False
