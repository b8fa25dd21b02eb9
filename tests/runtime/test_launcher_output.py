"""A rank's output between the pipe and the server: masking wherever it is cut, rotation, renumbering, a full disk."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components import small_disk
from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, read_exit
from muster import wire
from muster.masking import Masker
from muster.runtime.segments import TIMES, LogStore

SMALL = "ab\n"  # few letters, so that secrets overlap each other and the cuts
LIMIT = 8 * 4096


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def masked(secrets: list[str], text: str) -> str:
    """All at once: leftmost, then longest."""
    whole = sorted(filter(None, secrets), key=len, reverse=True)
    return re.sub("|".join(map(re.escape, whole)), "***", text) if whole else text


@given(
    st.lists(st.text(SMALL, max_size=6), max_size=4),
    st.text(SMALL, max_size=60),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_masking_does_not_depend_on_where_the_chunks_are_cut(secrets: list[str], text: str, cuts: list[int]) -> None:
    masker, out, at = Masker(secrets), b"", 0
    for cut in [*sorted(cuts), len(text)]:
        out += masker.feed(text[at:cut].encode())
        at = max(at, cut)
    assert (out + masker.finish()).decode() == masked(secrets, text)


@given(st.lists(st.text(SMALL, min_size=1, max_size=6), min_size=1, max_size=4), st.text(SMALL, max_size=60))
def test_only_the_beginning_of_a_secret_is_held_back(secrets: list[str], text: str) -> None:
    masker = Masker(secrets)
    masker.feed(text.encode())
    held = masker.finish().decode()
    whole = masked(secrets, text)
    assert whole.endswith(held)
    assert held == "" or any(secret.startswith(text[at:]) for secret in secrets for at in range(len(text)))


def test_a_line_goes_through_at_once_and_a_secret_in_three_parts_does_not() -> None:
    masker = Masker(["hunter2"])
    assert masker.feed(b"a line\n") == b"a line\n"
    assert masker.feed(b"prompt: ") == b"prompt: "
    assert masker.feed(b"hun") == b""
    assert masker.feed(b"ter") == b""
    assert masker.feed(b"2!") == b"***!"
    assert masker.feed(b"hungry") == b"hungry"


def test_the_lines_of_a_long_secret_are_secret_too() -> None:
    masker = Masker(["-----BEGIN KEY-----\nMIIEvQIBADAN\n=\n"])
    assert masker.mask("key MIIEvQIBADAN = 3") == "key *** = 3"


class Server:
    """Takes pieces as the real one does: what it has is cut off, and a gap shows in the offsets."""

    def __init__(self) -> None:
        self.acked = 0
        self.pieces: list[tuple[int, bytes]] = []

    def take(self, offset: int, data: bytes) -> None:
        new = data[max(0, self.acked - offset) :]
        if new:
            self.pieces.append((offset + len(data) - len(new), new))
            self.acked = offset + len(data)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 9_000)),
        st.tuples(st.just("ship"), st.integers(1, 20_000)),
        st.tuples(st.just("lose the reply"), st.integers(1, 20_000)),
        st.tuples(st.just("crash"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_a_log_reaches_the_server_and_what_is_dropped_is_a_gap_between_lines(operations: list[tuple[str, int]]) -> None:
    folder = Path(tempfile.mkdtemp())
    store, server, written, crashed = LogStore(folder, LIMIT), Server(), b"", False
    for what, size in operations:
        if what == "write" and not crashed:
            lines = b"".join(b"%09d\n" % (len(written) + at) for at in range(0, size, 10))
            store.append(lines)
            written += lines
        elif what == "crash":
            store.close()
            store, crashed = LogStore(folder, LIMIT), True
            store.recover()
        elif what == "ship":
            server.take(*store.read(server.acked, size))
            store.ack(server.acked)
        else:
            server.take(*store.read(server.acked, size))
        assert sum(path.stat().st_size for path in folder.glob("log.*")) <= LIMIT + 3 * 4096
    assert store.end == len(written)
    while server.acked < store.end:
        server.take(*store.read(server.acked, 10_000))
    store.close()
    shutil.rmtree(folder)
    assert all(written[offset : offset + len(data)] == data for offset, data in server.pieces)
    assert not written or server.acked == len(written)
    gaps, end = [], 0
    for offset, data in server.pieces:
        if offset > end:
            gaps.append((end, offset))
        end = offset + len(data)
    assert not gaps or len(written) > LIMIT
    for begin, stop in gaps:  # within the limit from either end nothing is missing
        assert begin >= LIMIT // 2
        assert (begin % 10, stop % 10) == (0, 0)
    assert not gaps or gaps[-1][1] <= len(written) - LIMIT // 2


@pytest.mark.parametrize("size", [1, 13, 4096, 100_000])
def test_the_first_and_the_last_part_stay_while_the_server_is_away(tmp_path: Path, size: int) -> None:
    text = b"".join(b"line %06d\n" % number for number in range(2000 if size == 1 else 40_000))
    limit = LIMIT if size > 1 else 4096
    store = LogStore(tmp_path, limit)
    for at in range(0, len(text), size):
        store.append(text[at : at + size])
    (first, head), (second, tail) = store.read(0, len(text)), store.read(limit, len(text))
    assert store.read(len(head), len(text)) == (second, tail)  # it goes on behind the gap
    store.close()
    assert (first, head) == (0, text[: len(head)])
    assert tail == text[second:]
    assert min(len(head), len(tail)) >= limit // 2
    assert (head[-1:], tail[:5]) == (b"\n", b"line ")


def test_a_line_that_does_not_end_is_cut(tmp_path: Path) -> None:
    store = LogStore(tmp_path, LIMIT)
    for _ in range(100):
        store.append(b"x" * 4096)
    assert store.end == 100 * 4096
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LIMIT + 4 * 4096
    store.close()


def test_what_the_server_has_goes_first(tmp_path: Path) -> None:
    store = LogStore(tmp_path, LIMIT)
    for number in range(100):
        store.append(b"%04d" % number * 1024)
        assert store.read(4096 * number, 4096) == (4096 * number, b"%04d" % number * 1024)
        store.ack(4096 * (number + 1))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LIMIT + 3 * 4096
    assert store.end == 100 * 4096
    store.close()


@pytest.mark.component("mount")
@pytest.mark.parametrize("relief", ["rm $MUSTER_RANK_DIR/../ballast", "true"])
def test_a_full_disk_costs_no_output_and_no_rank(shop: LauncherFixture, relief: str) -> None:
    shop.server.go_away()
    fill = "head -c 4000000 /dev/zero > $MUSTER_RANK_DIR/../ballast || true"
    with small_disk(shop.root / "disk", "2m") as disk:
        given = shop.folder(f"{fill}; seq 300000; {relief}; seq 10; exit 5", log_limit=64 << 20)
        folder = Path(shutil.copytree(given, disk / "worker"))
        launcher = shop.start(folder)
        ended = wait_for(lambda: read_exit(folder))
        shop.server.come()
        assert launcher.wait(PATIENCE) == 0
    assert ended.exit_code == 5
    assert shop.server.attempt().exits[0] == ended
    lines = shop.server.log().splitlines()
    first = lines.index("1")
    assert lines[first : first + 300_000] == [str(n) for n in range(1, 300_001)]
    assert lines[-10:] == [str(n) for n in range(1, 11)]


def test_the_moments_of_output_that_was_not_shipped_yet_stay_few_and_in_order(tmp_path: Path, monkeypatch) -> None:
    clock = iter(float(second) for second in range(1000, 1_000_000, 1))
    monkeypatch.setattr("muster.runtime.segments.time.time", lambda: next(clock))
    store = LogStore(tmp_path, LIMIT)
    for _ in range(3 * TIMES):
        store.append(b"line\n")
    first, data = store.read(0, 1000)
    found = store.times(first, first + len(data))
    assert found[0] == (0, 1000.0)
    assert list(found) == sorted(found)
    assert all(abs(offset // 5 - (moment - 1000)) <= 8 for offset, moment in found), "a moment is that of its bytes"
    assert len(store.times(0, store.end)) <= wire.PIECE_TIMES
    store.ack(5000)
    assert store.times(5000, 5001)[0][0] == 5000, "the moment of what is still to be shipped is kept"
    assert not [offset for offset, _ in store.times(5100, store.end) if offset < 5100]
    store.close()
