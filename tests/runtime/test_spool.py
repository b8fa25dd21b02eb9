"""The spool's reading end: whole records at any limit, across segments, and sense in the face of damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_kit import EVERYTHING, stream

from muster import wire
from muster.control.decode import decode
from muster.runtime.reporter import Reporter
from muster.runtime.spool import CAPACITY, HEADER_BYTES, SpoolDamaged, SpoolReader, read_segment, whole_records
from muster.runtime.streams import SpoolSource
from muster.runtime.writer import SpoolWriter

ROW = wire.row_struct(1)


def written(folder: Path, records: list[bytes]) -> SpoolWriter:
    writer = SpoolWriter(folder)
    writer.open()
    for record in records:
        writer.append(record)
    return writer


def rows(count: int) -> list[bytes]:
    return [ROW.pack(wire.KIND_ROW, 0, ROW.size, step, 1e9 + step, step / 2) for step in range(count)]


def drained(reader: SpoolReader, limit: int, at: int = 0) -> bytes:
    data = b""
    while piece := reader.read(at + len(data), limit, final=True):
        data += piece
    return data


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> tuple[Path, bytes]:
    """A spool of two full segments and a started one, with records of several sizes."""
    folder = tmp_path_factory.mktemp("long")
    notes = [wire.doc_record({"type": "note", "time": 1.0, "text": "x" * (i % 977)}) for i in range(3000)]
    records = [
        wire.shape_record(0, ("loss",)),
        *rows(250_000),
        *notes,
        wire.doc_record({"type": "n", "t": "y" * 90_000}),
    ]
    written(folder, records)
    assert sorted(path.name for path in folder.iterdir()) == ["spool.0", "spool.1", "spool.2"]
    return folder, b"".join(records)


@pytest.fixture
def copy(long, tmp_path) -> Path:
    return Path(shutil.copytree(long[0], tmp_path / "copy"))


@pytest.mark.parametrize("limit", [1, 32, 1000, 65536, 1 << 20, EVERYTHING])
def test_reading_gives_the_whole_stream_in_whole_records(long, limit):
    folder, expected = long
    start = read_segment(folder, 2).base if limit <= 1000 else 0  # piece by piece takes a while
    reader, data = SpoolReader(folder), b""
    while piece := reader.read(start + len(data), limit, final=True):
        assert whole_records(piece) == (len(piece), 0)
        assert len(piece) <= limit or whole_records(piece[:-8]) == (0, len(piece))
        data += piece
    assert data == expected[start:]
    assert reader.committed() == len(expected)


def test_what_was_not_there_at_an_earlier_look_is_left_for_the_next(tmp_path):
    writer, reader = written(tmp_path, rows(10)), SpoolReader(tmp_path)
    assert reader.read(0, EVERYTHING, final=False) == b""
    assert reader.read(0, EVERYTHING, final=False) == b"".join(rows(10))
    writer.append(rows(11)[-1])
    assert len(reader.read(0, EVERYTHING, final=False)) == 10 * ROW.size
    assert len(reader.read(0, EVERYTHING, final=False)) == 11 * ROW.size
    writer.append(rows(12)[-1])
    assert reader.committed() == 12 * ROW.size  # this too is a look
    assert len(reader.read(0, EVERYTHING, final=False)) == 12 * ROW.size
    writer.append(rows(13)[-1])
    assert len(reader.read(0, EVERYTHING, final=True)) == 13 * ROW.size
    assert reader.read(13 * ROW.size, EVERYTHING, final=True) == b""
    assert reader.read(99 * ROW.size, EVERYTHING, final=True) == b""


def test_segments_follow_each_other_and_are_sealed(long):
    first, second, third = (read_segment(long[0], number) for number in range(3))
    assert (first.base, first.end, second.end) == (0, second.base, third.base)
    assert (first.sealed, second.sealed, third.sealed) == (True, True, False)
    assert CAPACITY - 100_000 < first.end <= CAPACITY


def test_what_is_acknowledged_is_dropped_but_never_the_newest(copy, long):
    reader, expected = SpoolReader(copy), long[1]
    second = read_segment(copy, 1)
    reader.drop_before(second.base - 8)
    assert drained(reader, EVERYTHING) == expected
    reader.drop_before(second.base)
    assert sorted(path.name for path in copy.iterdir()) == ["spool.1", "spool.2"]
    with pytest.raises(SpoolDamaged) as caught:
        reader.read(0, EVERYTHING, final=True)
    assert (caught.value.position, caught.value.resume) == (0, second.base)
    assert drained(reader, 1 << 20, at=second.base) == expected[second.base :]
    reader.drop_before(len(expected) + 8)
    assert [path.name for path in copy.iterdir()] == ["spool.2"]
    assert reader.committed() == len(expected)


def test_a_later_process_goes_on_where_the_stream_ends_even_when_all_of_it_was_dropped(copy, long):
    reader, more = SpoolReader(copy), rows(5)
    reader.drop_before(len(long[1]))
    written(copy, more)
    reader.drop_before(len(long[1]))
    assert [path.name for path in copy.iterdir()] == ["spool.3"]
    assert reader.read(len(long[1]), EVERYTHING, final=True) == b"".join(more)
    assert SpoolReader(copy).committed() == len(long[1]) + 5 * ROW.size


def test_one_process_writes_at_a_time(tmp_path):
    first = written(tmp_path, rows(1))
    with pytest.raises(BlockingIOError):
        SpoolWriter(tmp_path).open()
    first.abandon()
    written(tmp_path, rows(2))
    assert stream(tmp_path) == b"".join(rows(1) + rows(2))


def test_an_empty_or_missing_folder_is_an_empty_stream(tmp_path):
    for folder in (tmp_path, tmp_path / "none", tmp_path / "none" / "deeper"):
        reader = SpoolReader(folder)
        assert (reader.committed(), reader.read(0, 100, final=True)) == (0, b"")
        reader.drop_before(100)


def test_a_folder_that_vanishes_is_told_where_something_is_missing(copy, long):
    reader = SpoolReader(copy)
    length = reader.committed()
    shutil.rmtree(copy)
    assert reader.committed() == length
    assert reader.read(length, EVERYTHING, final=True) == b""
    with pytest.raises(SpoolDamaged, match="no segment holds it") as caught:
        reader.read(0, EVERYTHING, final=True)
    assert (caught.value.position, caught.value.resume) == (0, None)


def spoil(folder: Path, number: int, at: int, data: bytes) -> None:
    with (folder / f"spool.{number}").open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_a_missing_segment_is_a_gap_with_an_end(copy, long):
    second, third = read_segment(copy, 1), read_segment(copy, 2)
    (copy / "spool.1").unlink()
    reader = SpoolReader(copy)
    assert reader.read(0, EVERYTHING, final=True) == long[1][: second.base]
    with pytest.raises(SpoolDamaged) as caught:
        reader.read(second.base, EVERYTHING, final=True)
    assert (caught.value.position, caught.value.resume) == (second.base, third.base)
    assert reader.read(third.base, EVERYTHING, final=True) == long[1][third.base :]


@pytest.mark.parametrize(
    ("at", "data"),
    [(0, b"GARBAGE!"), (8, b"\7"), (wire.SEGMENT_COMMITTED_AT, b"\xff" * 8), (wire.SEGMENT_COMMITTED_AT, b"\1")],
)
def test_a_segment_with_a_bad_header_is_skipped_as_a_whole(copy, long, at, data):
    second, third = read_segment(copy, 1), read_segment(copy, 2)
    spoil(copy, 1, at, data)
    reader = SpoolReader(copy)
    assert drained_to_damage(reader) == (long[1][: second.base], second.base, third.base)
    reader.drop_before(third.base)
    assert [path.name for path in copy.iterdir()] == ["spool.2"]
    spoil(copy, 2, at, data if at != 8 else b"\5")
    with pytest.raises(SpoolDamaged, match=r"spool\.2"):
        SpoolReader(copy).read(0, EVERYTHING, final=True)


def test_a_hole_as_large_as_a_rank_cares_to_claim_is_filled_in_parts(tmp_path):
    written(tmp_path, rows(10))
    spoil(tmp_path, 0, 0, b"no header")
    claimed = 1 << 60
    header = wire.SEGMENT_HEADER.pack(wire.SEGMENT_MAGIC, 1, 0, claimed, 0)
    (tmp_path / "spool.1").write_bytes(header.ljust(HEADER_BYTES, b"\0"))
    said: list[str] = []
    offset, data = SpoolSource(tmp_path, said.append).read(0, 1 << 20, final=True)
    assert (offset, len(data)) == (0, 1 << 20)
    assert whole_records(data)[0] == len(data)
    assert f"{claimed} bytes are left out" in said[0]


def test_a_folder_in_place_of_a_segment_holds_nothing_up(copy, long):
    reader = SpoolReader(copy)
    drained(reader, 1 << 20)
    (copy / "spool.0").unlink()
    (copy / "spool.0").mkdir()
    reader.drop_before(len(long[1]))
    assert (copy / "spool.2").exists()
    assert not (copy / "spool.1").exists()


def drained_to_damage(reader: SpoolReader, limit: int = 1 << 20) -> tuple[bytes, int, int | None]:
    data = b""
    try:
        while piece := reader.read(len(data), limit, final=True):
            data += piece
    except SpoolDamaged as damaged:
        return data, damaged.position, damaged.resume
    raise AssertionError("the damage was not seen")


def test_a_bad_record_ends_the_sound_part_of_its_segment(copy, long):
    second = read_segment(copy, 1)
    at = whole_records(long[1][: 1 << 20])[0]
    spoil(copy, 0, HEADER_BYTES + at, bytes(64))
    assert drained_to_damage(SpoolReader(copy)) == (long[1][:at], at, second.base)


@pytest.mark.parametrize("left", [0, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 32 * 1000 + 5, 3 << 20])
def test_a_truncated_segment_gives_what_is_whole(copy, long, left):
    with (copy / "spool.0").open("r+b") as file:
        file.truncate(left)
    data, position, resume = drained_to_damage(SpoolReader(copy))
    assert data == long[1][: whole_records(long[1][: max(0, left - HEADER_BYTES)])[0]]
    assert (position, resume) == (len(data), read_segment(copy, 1).base)


def test_a_segment_that_claims_more_than_it_may_does_not_hide_the_next(copy, long):
    first, second = read_segment(copy, 0), read_segment(copy, 1)
    spoil(copy, 0, wire.SEGMENT_COMMITTED_AT, CAPACITY.to_bytes(8, "little"))
    reader = SpoolReader(copy)
    assert first.end == second.base < CAPACITY
    assert drained(reader, 1 << 20) == long[1]


@settings(deadline=None, max_examples=60)
@given(
    spots=st.lists(st.tuples(st.integers(0, 20_000), st.binary(min_size=1, max_size=40)), min_size=1, max_size=4),
    cut=st.none() | st.integers(0, 20_000),
    limit=st.integers(1, 9000),
)
def test_any_damage_is_data_or_an_error_and_never_an_endless_loop(tmp_path_factory, spots, cut, limit):
    folder = tmp_path_factory.mktemp("damage")
    reporter = Reporter(folder)
    for step in range(300):
        reporter.report(step=step, loss=step, **({"lr": 1.0} if step % 7 == 0 else {}))
    reporter._writer.abandon()
    length = len(stream(folder))
    for at, data in spots:
        spoil(folder, 0, at, data)
    if cut is not None:
        with (folder / "spool.0").open("r+b") as file:
            file.truncate(cut)
    reader, at, pieces, position = SpoolReader(folder), 0, [], None
    try:
        while piece := reader.read(at, limit, final=True):
            pieces.append(piece)
            at += len(piece)
    except SpoolDamaged as damaged:
        position = damaged.position
    assert position in (None, at)
    assert at <= max(length, CAPACITY)
    try:
        decode(b"".join(pieces), {})
    except ValueError:
        pass  # damage inside a record shows when it is decoded
