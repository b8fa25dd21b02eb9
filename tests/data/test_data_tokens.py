"""Token shards: windows across shard borders, damage, cut-off writes; and building them from text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.data import DataError, Sample
from muster.data.build import Progress
from muster.data.build import tokens as build_tokens
from muster.data.formats import tokens

DOCUMENTS = st.lists(st.lists(st.integers(0, 299), max_size=25), min_size=1, max_size=12)


def _write(folder: Path, row: list[int], vocab: int = 300, shard: int = 10) -> None:
    tokens.write(folder, [{"tokens": np.array(row)}], vocab=vocab, shard=shard)


@given(DOCUMENTS, st.integers(1, 30), st.integers(1, 12), st.sampled_from([300, 70000]))
@settings(max_examples=40, deadline=None)
def test_windows_are_those_of_the_whole_row(documents: list[list[int]], shard: int, length: int, vocab: int) -> None:
    row = [token for document in documents for token in document]
    count = max(0, (len(row) - 1) // length)
    with TemporaryDirectory() as name:
        folder = Path(name) / "data"
        if not row:
            with pytest.raises(DataError, match="no token was written"):
                tokens.write(folder, [{"tokens": each} for each in documents], vocab=vocab, shard=shard)
            return
        tokens.write(folder, [{"tokens": each} for each in documents], vocab=vocab, shard=shard)
        if count == 0:
            with pytest.raises(DataError, match=f"holds {len(row)} tokens; one sample of length {length} needs"):
                tokens.open(folder, length=length)
            return
        found = tokens.open(folder, length=length)
        assert len(found) == count
        for index in range(count):
            window = found.read(index)["tokens"]
            assert window.tolist() == row[index * length : index * length + length + 1]
            assert window.dtype == (np.uint16 if vocab == 300 else np.uint32)
        assert found.row(0, len(row)).tolist() == row
        found.verify()


def test_what_was_read_outlives_the_maps(tmp_path: Path) -> None:
    _write(tmp_path / "d", list(range(100)), shard=10)
    found = tokens.open(tmp_path / "d", length=4)
    found._maps.limit = 2
    windows = [found.read(index)["tokens"] for index in range(len(found))]
    found.close()
    assert [int(window[0]) for window in windows] == list(range(0, 96, 4))
    assert found.read(3)["tokens"].tolist() == [12, 13, 14, 15, 16]


def test_sixteen_bits_where_the_vocabulary_fits(tmp_path: Path) -> None:
    for vocab, size in ((65536, 2), (65537, 4)):
        _write(tmp_path / str(vocab), [0, vocab - 1, 5], vocab)
        assert (tmp_path / str(vocab) / "shard-00000.tokens").stat().st_size == 64 + 3 * size
        assert tokens.open(tmp_path / str(vocab), length=2).read(0)["tokens"].tolist() == [0, vocab - 1, 5]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda shard: shard.unlink(), r"shard-00001\.tokens: No such file.*84 bytes were expected"),
        (lambda shard: shard.write_bytes(shard.read_bytes()[:-3]), "is cut off: it has 81 bytes and 84 were expected"),
        (lambda shard: shard.write_bytes(shard.read_bytes() + b"x"), "has grown: it has 85 bytes and 84 were expected"),
        (lambda shard: shard.write_bytes(b"?" + shard.read_bytes()[1:]), "its header isn't the one"),
    ],
)
def test_a_shard_that_is_missing_or_cut_off_is_refused_at_open(tmp_path: Path, damage: object, says: str) -> None:
    _write(tmp_path / "d", list(range(30)))
    damage(tmp_path / "d" / "shard-00001.tokens")
    with pytest.raises(DataError, match=says):
        tokens.open(tmp_path / "d", length=4)


def test_changed_tokens_are_found_by_verify(tmp_path: Path) -> None:
    _write(tmp_path / "d", list(range(30)))
    shard = tmp_path / "d" / "shard-00002.tokens"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    found = tokens.open(tmp_path / "d", length=4)
    with pytest.raises(DataError, match=r"shard-00002\.tokens is damaged: the CRC-32 of its tokens is"):
        found.verify()


def test_a_write_that_was_cut_off_is_no_dataset_and_may_be_done_again(tmp_path: Path) -> None:
    folder = tmp_path / "d"

    def cut_off() -> Iterator[Sample]:
        yield {"tokens": list(range(25))}
        raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        tokens.write(folder, cut_off(), vocab=300, shard=10)
    assert (folder / "shard-00001.tokens").exists()
    with pytest.raises(DataError, match=r"index\.json doesn't exist"):
        tokens.open(folder, length=4)
    _write(folder, list(range(40)))
    tokens.open(folder, length=4).verify()


def test_a_finished_dataset_is_not_written_over(tmp_path: Path) -> None:
    _write(tmp_path / "d", list(range(40)))
    with pytest.raises(DataError, match="holds a dataset already"):
        _write(tmp_path / "d", [1, 2, 3])
    assert len(tokens.open(tmp_path / "d", length=4)) == 9


def test_tokens_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for row, says in (([1, 300], "token 300 is outside the vocabulary of 300"), ([-1], "token -1 is outside")):
        with pytest.raises(DataError, match=says):
            _write(tmp_path / "d", row)
    with pytest.raises(DataError, match="type float64; give one row of integers"):
        tokens.write(tmp_path / "d", [{"tokens": np.array([1.5])}], vocab=300)
    with pytest.raises(DataError, match="vocabulary of 0"):
        _write(tmp_path / "d", [1], vocab=0)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "cannot be read"), ("[]", "no index of token shards"), ('{"format": "x", "version": 1}', "format 'x'")],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(DataError, match=says):
        tokens.open(tmp_path, length=4)


def test_text_and_jsonl_become_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abü\n")
    (tmp_path / "b.jsonl").write_text('{"text": "cd"}\n\n{"text": "", "more": 1}\n')
    told: list[Progress] = []
    last = build_tokens([tmp_path / "a.txt", tmp_path / "b.jsonl"], tmp_path / "out", shard=4, progress=told.append)
    expected = [*"abü\n".encode(), 256, *b"cd", 256, 256]
    assert (last.documents, last.tokens, last.files) == (3, len(expected), 2)
    assert told[-1] == last
    assert [each.files for each in told] == [1, 2]
    found = tokens.open(tmp_path / "out", length=3)
    assert found.row(0, len(expected)).tolist() == expected
    assert found.index.vocab == 257


def test_a_tokenizer_of_ones_own_and_no_end(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"body": "1 2 99999"}\n')
    words = lambda text: (int(word) for word in text.split())  # noqa: E731
    build_tokens([tmp_path / "b.jsonl"], tmp_path / "out", words, vocab=100_000, end=None, field="body")
    assert tokens.open(tmp_path / "out", length=2).row(0, 3).tolist() == [1, 2, 99999]


def test_a_build_that_cannot_be_says_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file was given"):
        build_tokens([], tmp_path / "out")
    with pytest.raises(DataError, match=r"none\.txt is no file"):
        build_tokens([tmp_path / "none.txt"], tmp_path / "out")
    for line, says in (
        ('{"txt": 1}', "line 2: no JSON object .* 'text'"),
        ("{", "line 2"),
        ('{"text": 1}', "is a int"),
    ):
        (tmp_path / "b.jsonl").write_text(json.dumps({"text": "fine"}) + "\n" + line)
        with pytest.raises(DataError, match=says):
            build_tokens([tmp_path / "b.jsonl"], tmp_path / "out")
    (tmp_path / "c.txt").write_bytes(b"ab\xff")
    with pytest.raises(DataError, match=r"c\.txt is not UTF-8"):
        build_tokens([tmp_path / "c.txt"], tmp_path / "out")
    assert not (tmp_path / "out" / "index.json").exists()
