"""A search finds every line that it looks for, once, however the output was cut into chunks and wherever it stops."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from muster.core.errors import Invalid
from muster.server import log_search
from muster.server.log_context import Context, compiled, shown
from muster.server.log_search import LogQuery, Place, search
from muster.store.base import Entry, Store, StreamWrite
from muster.store.registry import open_store
from scheduler_kit import job_event


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/muster.db")
    opened.append([job_event(1)])
    yield opened
    opened.close()


def job_of(store: Store) -> str:
    return next(iter(store.state().jobs))


def write(store: Store, attempt: int, rank: int, offset: int, data: bytes) -> None:
    made = StreamWrite(job_of(store), attempt, rank, "log", offset, offset + len(data), log=data, time=100.0 + offset)
    assert store.transact([lambda state: Entry(streams=[made])]) == [[]]


def fill(
    store: Store,
    texts: dict[tuple[int, int], bytes],
    random: Random,
    sizes: Sequence[int] = (1, 7, 30, 200),
) -> None:
    """Writes the output of each (attempt, rank) in chunks of any size, the ranks of an attempt in turns."""
    for attempt in sorted({attempt for attempt, _ in texts}):
        at = {rank: 0 for of, rank in texts if of == attempt}
        while at:
            rank = random.choice(sorted(at))
            begin = at[rank]
            at[rank] = begin + random.choice(sizes)
            write(store, attempt, rank, begin, texts[attempt, rank][begin : at[rank]])
            if at[rank] >= len(texts[attempt, rank]):
                del at[rank]


def searched(store: Store, pattern: Any, rank: int | None = None, limit: int = 1000, stop: Random | None = None) -> Any:
    """All that is found, over as many answers as it takes: (attempt, rank, offset) of each line."""
    found, place, answers = [], None, 0
    want = LogQuery(job_of(store), [1, 2], rank, pattern, limit)
    while True:
        answer = search(store, want, place, lambda: stop is not None and stop.random() < 0.5)
        found += [(line.attempt, line.chunk.rank, line.offset) for line in answer.lines]
        assert len(answer.lines) <= limit
        answers += 1
        assert answers < 1_000, (answer, place)
        if answer.goes_on is None:
            return found
        place = Place(*map(int, str(answer.goes_on).split(".")))


def expected(texts: dict[tuple[int, int], bytes], word: bytes, rank: int | None = None) -> list[tuple[int, int, int]]:
    return [one for one in line_by_line(texts, lambda line: word in line) if rank in (None, one[1])]


def line_by_line(texts: dict[tuple[int, int], bytes], matches: Callable[[bytes], bool]) -> list[tuple[int, int, int]]:
    found = []
    for (attempt, rank), text in texts.items():
        at = 0
        for line in text.split(b"\n"):
            if matches(line) and at < len(text):
                found.append((attempt, rank, at))
            at += len(line) + 1
    return sorted(found)


@pytest.mark.parametrize("seed", range(2))
def test_every_line_is_found_once(store: Store, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    monkeypatch.setattr(log_search, "_BLOCK", 500)
    words = [b"loss", b"step", b"x", b"", b"a longer word of a line"]
    texts = {
        (attempt, rank): b"\n".join(
            b" ".join(random.choices(words, k=random.randrange(6))) for _ in range(random.randrange(25))
        )
        for attempt in (1, 2)
        for rank in (0, 1, 5)
    }
    fill(store, texts, random)
    pattern = compiled("LOSS", None, case=False)
    for rank in (None, 1):
        wanted = expected(texts, b"loss", rank)
        for limit in (2, 1000):
            for stop in (None, Random(seed)):
                found = searched(store, pattern, rank, limit, stop)
                assert sorted(found) == wanted
    assert [attempt for attempt, _, _ in searched(store, pattern)] == sorted(a for a, _, _ in expected(texts, b"loss"))


@pytest.mark.parametrize("seed", range(2))
def test_what_few_blocks_have_is_found_as_line_by_line(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Most blocks have no hit, so that only the lines that go over their ends are looked at."""
    random = Random(seed)
    monkeypatch.setattr(log_search, "_BLOCK", 1000)
    texts: dict[tuple[int, int], bytes] = {}
    for key in ((1, 0), (1, 3), (2, 0)):
        lines = [b"a line of %d" % at + b"." * random.choice([0, 5, 60, 500]) for at in range(40)]
        for at in random.sample(range(40), 3):
            lines[at] = lines[at][:4] + random.choice([b"needle", b"NEEDLE 7", b"needles"]) + lines[at][4:]
        texts[key] = b"\n".join(lines) + random.choice([b"", b"\n"])
    fill(store, texts, random, sizes=(30, 200, 900))
    for regex in ("^a .*needle", "(?i)needle ?7?", "line[0-9 of]+$", "xyz"):
        plain = re.compile(regex.encode())
        wanted = line_by_line(texts, lambda line, plain=plain: plain.search(line) is not None)
        for limit, stop in ((1000, None), (3, random)):
            assert sorted(searched(store, compiled(None, regex, case=True), None, limit, stop)) == wanted, regex


@pytest.mark.parametrize("seed", range(4))
def test_what_is_missing_ends_a_line(store: Store, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    monkeypatch.setattr(log_search, "_BLOCK", random.choice([40, 300, 5000]))
    at = 0
    for _ in range(12):
        text = b"".join(random.choice([b"need", b"le", b"needle", b".....", b"\n"]) for _ in range(random.randrange(9)))
        for begin in range(0, len(text), size := random.choice([1, 3, 20])):
            write(store, 1, 0, at + begin, text[begin : begin + size])
        at += len(text) + 7
    lines: list[tuple[int, bytes]] = []
    whole, last = b"", 0
    for chunk in store.logs(job_of(store), 1, 0, 0, 1000):
        if chunk.offset != last:
            lines, whole = [*lines, (last - len(whole), whole)], b""
        begin = chunk.offset - len(whole)
        *ended, whole = (whole + chunk.data).split(b"\n")
        for line in ended:
            lines.append((begin, line))
            begin += len(line) + 1
        last = chunk.end
    lines.append((last - len(whole), whole))
    for regex in ("needle", "^needle$", "le$"):
        wanted = [(1, 0, begin) for begin, line in lines if re.search(regex.encode(), line)]
        for limit, stop in ((1000, None), (2, random)):
            assert sorted(searched(store, compiled(None, regex, case=True), None, limit, stop)) == wanted, regex


def test_the_first_page_costs_the_same_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read for the first lines that are found, also with the lines around them, is a few blocks."""
    monkeypatch.setattr(log_search, "_BLOCK", 1000)
    for chunks in (100, 1000):
        store = open_store("memory:")
        store.append([job_event(1)])
        for at in range(chunks):
            write(store, 1, 0, 100 * at, b"one line with loss" + b"." * 81 + b"\n")
        counted = Counted(store)
        want = LogQuery(job_of(store), [1], None, compiled("loss", None, case=False), 5)
        found = search(counted, want, None, lambda: False)
        show = Context(counted, want.job, want.pattern, 3).show
        assert [len(show(line)["after"]) for line in found.lines] == [3] * 5
        assert found.searched <= 2 * 1000
        ahead = (log_search._THREADS + 2) * 1000 // 100
        assert 0 < counted.chunks <= ahead + 5 * 4 * 16, chunks  # and 16 on either side of each line, twice at most


class Counted:
    """A store that counts the chunks which are read from it."""

    def __init__(self, store: Store) -> None:
        self._store, self.chunks = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def logs(self, *given: Any, **options: Any) -> Any:
        found = self._store.logs(*given, **options)
        self.chunks += len(found)
        return found


def test_context_comes_from_other_chunks_and_stops_where_output_is_missing(store: Store) -> None:
    lines = [f"line {at}".encode() for at in range(100)]
    text = b"\n".join(lines) + b"\n"
    for begin in range(0, len(text), 10):
        write(store, 1, 0, begin, text[begin : begin + 10])
        write(store, 1, 1, begin, b"something" + b"\n")
    write(store, 1, 0, len(text) + 1000, b"after the gap\nneedle\n")
    pattern = compiled(None, r"line (0|50|99)$", case=True)
    found = search(store, LogQuery(job_of(store), [1], None, pattern, 10), None, lambda: False)
    views = [Context(store, job_of(store), pattern, 2).show(line) for line in found.lines]
    assert [(view["before"], view["text"], view["after"]) for view in views] == [
        ([], "line 0", ["line 1", "line 2"]),
        (["line 48", "line 49"], "line 50", ["line 51", "line 52"]),
        (["line 97", "line 98"], "line 99", []),
    ]
    assert views[1]["spans"] == [(0, 7)]
    needle = search(store, LogQuery(job_of(store), [1], 0, compiled("needle", None, True), 10), None, lambda: False)
    view = Context(store, job_of(store), compiled("needle", None, True), 3).show(needle.lines[0])
    assert view["before"] == ["after the gap"]
    assert view["after"] == []


def test_lines_are_shown_as_a_terminal_leaves_them() -> None:
    pattern = compiled("50%", None, False)
    assert shown(b"\x1b[31mred\x1b[0m text") == ("red text", [])
    assert shown(b"10%\r50%\r90%\r") == ("90%", [])
    assert shown(b"10%\r50%\r90%\r", pattern) == ("50%", [(0, 3)])
    text, spans = shown(b"x" * 10_000 + b"50%" + b"y" * 10_000, pattern)
    assert len(text) == 2000
    assert text[slice(*spans[0])] == "50%"
    assert shown("é 50%".encode(), pattern) == ("é 50%", [(2, 5)])


def test_a_search_needs_one_valid_pattern() -> None:
    for text, regex in ((None, None), ("a", "b"), (None, "(")):
        with pytest.raises(Invalid):
            compiled(text, regex, case=False)
