"""Formats of other tools: checksums, varints and frames, against values that are known and against each other."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.foreign import protobuf, tfrecord
from muster.foreign.crc32c import crc32c, masked
from muster.foreign.protobuf import Malformed
from muster.track.exporters.crc32c_batch import crc32c_long, crc32c_rows, masked_rows


def test_checksums_of_rfc_3720() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_a_checksum_goes_on(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@pytest.mark.parametrize("size", [0, 1, 3, 4095, 4096, 4097, 70_001])
def test_a_long_record_by_lanes(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert crc32c_long(data) == crc32c(data)


def test_many_records_by_lanes() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (100, 37)).astype(np.uint8)
    crcs = crc32c_rows(rows)
    assert crcs.tolist() == [crc32c(row.tobytes()) for row in rows]
    assert masked_rows(crcs).tolist() == [masked(crc) for crc in crcs.tolist()]


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers(value: int) -> None:
    ((number, read),) = protobuf.fields(protobuf.number_field(300, value))
    assert number == 300
    assert protobuf.signed(read) == value


@given(st.floats(), st.text(), st.binary())
def test_fields_come_back(number: float, text: str, data: bytes) -> None:
    message = protobuf.double_field(1, number) + protobuf.text_field(2, text) + protobuf.bytes_field(3, data)
    one, two, three = (value for _, value in protobuf.fields(message))
    assert struct.pack("<d", protobuf.double(one)) == struct.pack("<d", number)
    assert protobuf.text(two) == text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    assert protobuf.raw(three) == data


def test_a_float_past_the_range_of_its_field() -> None:
    ((_, value),) = protobuf.fields(protobuf.single_field(1, -1e300))
    assert protobuf.single(value) == float("-inf")


@given(st.binary(max_size=200))
def test_noise_is_malformed_and_nothing_worse(data: bytes) -> None:
    try:
        for _, value in protobuf.fields(data):
            assert isinstance(value, int | bytes)
    except Malformed:
        pass


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(0, 100))
def test_frames_survive_a_cut(tmp_path_factory: pytest.TempPathFactory, given: list[bytes], cut: int) -> None:
    path = tmp_path_factory.mktemp("frames") / "f"
    whole = b"".join(tfrecord.framed(record) for record in given)
    path.write_bytes(whole[: max(0, len(whole) - cut)])
    read = list(tfrecord.records(path))
    records = [one[0] for one in read if isinstance(one, tuple)]
    assert records == given[: len(records)]
    assert all(masked(crc32c(one[0])) == one[1] for one in read if isinstance(one, tuple))
    left = path.stat().st_size - sum(len(record) + 16 for record in records)
    assert bool(left) == any(isinstance(one, tfrecord.Damage) for one in read)


def test_a_record_larger_than_what_is_read_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "f"
    large = bytes(9 << 20)
    path.write_bytes(tfrecord.framed(large, crc32c_long(large)) + tfrecord.framed(b"after"))
    assert [len(one[0]) for one in tfrecord.records(path) if isinstance(one, tuple)] == [9 << 20, 5]
