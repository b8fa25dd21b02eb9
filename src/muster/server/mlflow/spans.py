"""Unpacks OpenTelemetry spans for MLflow's server, within a size limit, because MLflow has none."""

from __future__ import annotations

import zlib
from typing import Final

from muster.server.sizes import LARGE, MANY_VALUES, Values
from muster.track.mlflow.faults import Fault

PATH: Final = "/v1/traces"
# zlib's window sizes. Some clients send raw deflate under the name `deflate`.
_WINDOWS: Final = {"gzip": (31,), "deflate": (15, -15)}


def unpacked(body: bytes, encoding: str, json: bool) -> bytes:
    """The decoded body for this Content-Encoding. Raises Fault if it is too large or can't be read."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _WINDOWS:
        raise Fault(f"Unsupported Content-Encoding: {encoding[:100]}. Send gzip, deflate or none.", "BAD_REQUEST")
    for window in _WINDOWS[name]:
        plain = _inflated(body, window)
        if plain is None:
            continue
        values = Values()
        values.add(plain if json else b"")
        if values.count > MANY_VALUES:
            raise Fault(f"The JSON has more than {MANY_VALUES:,} values: send fewer spans at once.", "BAD_REQUEST")
        return plain
    raise Fault(f"The body is not one whole stream of {name}: send it again.", "BAD_REQUEST")


def _inflated(body: bytes, window: int) -> bytes | None:
    """None for a stream of another type, cut off, or with data after its end: unpacking many members takes too long."""
    stream = zlib.decompressobj(window)
    try:
        plain = stream.decompress(body, LARGE + 1)
    except zlib.error:
        return None
    if len(plain) > LARGE:
        raise Fault(f"Unpacked, the body has more than {LARGE >> 20} MiB: send fewer spans at once.", "BAD_REQUEST")
    return plain if stream.eof and not stream.unused_data else None
