"""The limit of a rank's output in every store: the first and the last part stay, and below the limit all of it does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.store.base import Entry, Store, StreamWrite
from muster.store.registry import open_store

ATTEMPTS = count(2)  # one an example: they share a store


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    urls = {"memory": lambda: "memory:", "sqlite": lambda: f"sqlite:///{tmp_path}/muster.db"}
    url = urls.get(request.param, lambda: request.getfixturevalue("tables_url"))()
    opened = open_store(url)
    yield opened
    opened.close()


def log(start: int, text: bytes, rank: int = 0, keep: int | None = None, attempt: int = 1) -> StreamWrite:
    return StreamWrite("j", attempt, rank, "log", start, start + len(text), log=text, keep=keep)


def write(store: Store, *streams: StreamWrite) -> None:
    (result,) = store.transact([lambda state: Entry(streams=streams)])
    assert result == []


def kept_of(store: Store, text: bytes, keep: int, attempt: int = 1) -> tuple[bytes, bytes]:
    """The first and the last part of what was written; fails if anything else than one gap is missing."""
    chunks = store.logs("j", attempt, 0, 0, 99_999)
    kept = sum(len(chunk.data) for chunk in chunks)
    (size,) = [size for size in store.log_sizes("j") if (size.attempt, size.rank) == (attempt, 0)] or [None]
    if size is None:
        return b"", b""
    assert (size.written, size.kept) == (len(text), kept)
    assert kept <= keep
    assert all(text[chunk.offset : chunk.end] == chunk.data for chunk in chunks)
    gaps = [chunk for chunk in chunks if chunk.offset != chunk.before]
    assert len(gaps) <= 1
    if not gaps:
        assert kept == len(text)
        return text, b""
    assert chunks[-1].end == len(text)
    return text[: gaps[0].before], text[gaps[0].offset :]


@pytest.mark.parametrize("reloaded", [False, True])
@pytest.mark.parametrize("each", [7, 100, 5000])
def test_first_and_last_are_kept(store: Store, reloaded: bool, each: int) -> None:
    keep = 4000 if each > 7 else 800
    lines = "".join(f"line {number}\n" for number in range(3 * keep // 10)).encode()
    write(store, log(0, b"other rank", rank=1, keep=keep))
    for at in range(0, len(lines), each):
        write(store, log(at, lines[at : at + each], keep=keep))
        if reloaded:
            store.reload()
    other = store.log_sizes("j")[1]
    head, tail = kept_of(store, lines, keep)
    assert head.endswith(b"\n")
    assert tail.startswith(b"line ")
    assert (len(head) > keep // 2 - 20, len(tail) > keep // 2 - 2 * keep // 8 - 20) == (True, True)
    assert other.kept == other.written == 10


def test_below_the_limit_nothing_is_dropped(store: Store) -> None:
    text = b"0123456789\n" * 100
    for at in range(0, len(text), 50):
        write(store, log(at, text[at : at + 50], keep=len(text)))
    assert b"".join(chunk.data for chunk in store.logs("j", 1, 0, 0, 999)) == text


def test_many_go_at_once(store: Store) -> None:
    write(store, *[log(index * 10, b"012345678\n") for index in range(1200)])
    write(store, log(12000, b"x" * 50 + b"\n", keep=1000))
    head, tail = kept_of(store, b"012345678\n" * 1200 + b"x" * 50 + b"\n", 1000)
    assert (head, tail[-51:]) == (b"012345678\n" * 50, b"x" * 50 + b"\n")


def test_a_line_without_an_end_is_cut_where_characters_end(store: Store) -> None:
    text = "ü€😀".encode() * 4000
    for at in range(0, len(text), 9 * 500):
        write(store, log(at, text[at : at + 9 * 500], keep=2000))
    head, tail = kept_of(store, text, 2000)
    assert len(head.decode()) > 200
    assert len(tail.decode()) > 200


def test_a_whole_log_in_one_write(store: Store) -> None:
    text = "".join(f"line {number}\n" for number in range(500_000)).encode()
    write(store, log(0, text, keep=1 << 20))
    head, tail = kept_of(store, text, 1 << 20)
    assert (head[:7], tail[-12:]) == (b"line 0\n", b"line 499999\n")
    assert head.endswith(b"\n")
    assert tail.startswith(b"line ")
    assert all(len(chunk.data) <= 64 << 10 for chunk in store.logs("j", 1, 0, 0, 9999))


def test_one_write_that_is_within_the_limit_is_kept_whole(store: Store) -> None:
    sizes = [0, 8, 7, 34, 60, 60, 60, 0, 0, 0, 0, 11, 30, 60, 60]
    text = b"".join(b"%03d" % number + b"." * size + b"\n" for number, size in enumerate(sizes))
    write(store, log(0, text, keep=512))
    assert kept_of(store, text, 512) == (text, b"")


def test_what_is_before_bytes_that_are_left_out_goes_with_them(store: Store) -> None:
    """The second write has one byte more than the newest part may have."""
    sizes = [0] * 13 + [9, 60, 60, 60, 27, 24, 33, 60, 60, 60]
    text = b"".join(b"%03d" % number + b"." * size + b"\n" for number, size in enumerate(sizes))
    write(store, log(0, text[:288], keep=512), log(288, text[288:], keep=512))
    head, tail = kept_of(store, text, 512)  # fails if there is a second gap
    assert (head[:4], tail[-4:]) == (b"000\n", b"...\n")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_written_and_however_it_is_cut(store: Store, data: st.DataObject) -> None:
    attempt = next(ATTEMPTS)
    keep = data.draw(st.sampled_from([512, 1000, 4096]))
    lines = data.draw(st.lists(st.integers(0, 60), max_size=200))
    text = b"".join(b"%03d" % (number % 1000) + b"." * size + b"\n" for number, size in enumerate(lines))
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=25))})
    for start, stop in pairwise(cuts):
        write(store, log(start, text[start:stop], attempt=attempt, keep=keep))
    head, tail = kept_of(store, text, keep, attempt)
    assert head == text if len(text) <= keep else tail
    assert not tail or (text[len(text) - len(tail) - 1 : len(text) - len(tail)] == b"\n" and head.endswith(b"\n"))


@pytest.mark.parametrize("seed", range(3))
def test_at_every_moment_a_gap_is_between_two_lines(store: Store, seed: int) -> None:
    random, keep, at = Random(seed), 16_384, 0
    text = b"".join(b"%d\n" % number for number in range(100_000, 130_000))
    while at < len(text):
        size = random.randint(1, random.choice([100, 1_000, 9_000, 60_000]))
        write(store, log(at, text[at : at + size], keep=keep))
        at = min(len(text), at + size)
        for chunk in store.logs("j", 1, 0, 0, 9999):
            if chunk.offset > chunk.before:
                assert (text[chunk.before - 1], text[chunk.offset - 1]) == (10, 10)


def test_a_line_that_a_gap_cuts_short_is_not_kept(store: Store) -> None:
    write(store, log(0, b"one\ntwo\nth", keep=4096))
    write(store, log(100, b"later\n", keep=4096))
    assert [(chunk.before, chunk.offset, chunk.data) for chunk in store.logs("j", 1, 0, 0, 9)] == [
        (0, 0, b"one\ntwo\n"),
        (8, 100, b"later\n"),
    ]
    (size,) = store.log_sizes("j")
    assert (size.written, size.kept) == (106, 14)


def test_a_gap_cuts_what_came_before_it_in_the_same_batch(store: Store) -> None:
    write(store, log(0, b"first\nhalf", keep=4096))
    write(store, log(10, b" a line\nnext", keep=4096), log(100, b"later\n", keep=4096))
    assert [chunk.data for chunk in store.logs("j", 1, 0, 0, 9)] == [b"first\nhalf", b" a line\n", b"later\n"]
