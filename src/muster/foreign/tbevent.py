"""Encoder of TensorBoard events: scalars, histograms, images, texts and hyperparameters."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from muster.foreign.protobuf import bytes_field, double_field, number_field, single_field, text_field

VERSION: Final = "brain.Event:2"
_STRINGS: Final = 7  # TensorFlow's number for the type
_STARTED, _ENDED = "_hparams_/session_start_info", "_hparams_/session_end_info"
_STATUS: Final = {"succeeded": 1, "failed": 2, "stopped": 2, "running": 3}
Param = str | float | bool


def first_event(wall_time: float) -> bytes:
    """The event that every file begins with."""
    return double_field(1, wall_time) + text_field(3, VERSION)


def event(wall_time: float, step: int, *values: bytes) -> bytes:
    """An event with values from the functions below. In a file it is framed as a TFRecord."""
    summary = b"".join(bytes_field(1, value) for value in values)
    return double_field(1, wall_time) + number_field(2, step) + bytes_field(5, summary)


def scalar(tag: str, value: float) -> bytes:
    return text_field(1, tag) + single_field(2, value)


def histogram(tag: str, edges: Sequence[float], counts: Sequence[float]) -> bytes:
    """A histogram of `counts` between `edges`, of which there is one more. Sums use the middles of the buckets."""
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    total = float(sum(counts))
    first = sum(m * c for m, c in zip(middles, counts, strict=True))
    second = sum(m * m * c for m, c in zip(middles, counts, strict=True))
    # A bucket stores only its upper limit, so an empty bucket in front says where the first one begins.
    limits, heights = [edges[0], *edges[1:]], [0.0, *counts]
    numbers = ((1, edges[0]), (2, edges[-1]), (3, total), (4, first), (5, second))
    body = b"".join(double_field(number, value) for number, value in numbers)
    return text_field(1, tag) + bytes_field(
        5, body + bytes_field(6, _doubles(limits)) + bytes_field(7, _doubles(heights))
    )


def image(tag: str, content: bytes, width: int, height: int, channels: int = 3) -> bytes:
    """`content` is a PNG, JPEG or GIF."""
    size = number_field(1, height) + number_field(2, width) + number_field(3, channels)
    return text_field(1, tag) + bytes_field(4, size + bytes_field(4, content))


def text(tag: str, content: str) -> bytes:
    shape = bytes_field(2, bytes_field(2, number_field(1, 1)))
    tensor = number_field(1, _STRINGS) + shape + bytes_field(8, content.encode("utf-8", "replace"))
    return text_field(1, tag) + bytes_field(8, tensor) + _plugin("text", b"", tag)


def session_start(params: Mapping[str, Param], group: str, started_at: float) -> bytes:
    entries = (text_field(1, name) + bytes_field(2, _value(value)) for name, value in params.items())
    body = b"".join(bytes_field(1, entry) for entry in entries) + text_field(4, group) + double_field(5, started_at)
    return text_field(1, _STARTED) + _plugin("hparams", bytes_field(3, body))


def session_end(phase: str, ended_at: float) -> bytes:
    body = number_field(1, _STATUS.get(phase, 0)) + double_field(2, ended_at)
    return text_field(1, _ENDED) + _plugin("hparams", bytes_field(4, body))


def _plugin(name: str, content: bytes, display: str = "") -> bytes:
    about = bytes_field(1, text_field(1, name) + bytes_field(2, content))
    return bytes_field(9, about + (text_field(2, display) if display else b""))


def _value(value: Param) -> bytes:
    """A google.protobuf.Value."""
    if isinstance(value, bool):
        return number_field(4, value)
    if isinstance(value, str):
        return text_field(3, value)
    return double_field(2, value)


def _doubles(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)
