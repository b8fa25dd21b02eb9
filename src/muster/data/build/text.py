"""Turns text and JSONL files into token shards, with the bytes of UTF-8 as tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.data.errors import DataError
from muster.data.formats.tokens import Writer

END: Final = 256  # the token that ends a document: the first value that is no byte
VOCAB: Final = 257
_PART: Final = 4 << 20  # characters read at once from a text file: bytes may be split anywhere, words may not
_EVERY: Final = 1000  # documents between two progress reports

Tokenizer = Callable[[str], Iterable[int]]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a build."""

    file: Path
    files: int  # files begun
    documents: int
    tokens: int


def byte_tokens(text: str) -> bytes:
    """The UTF-8 bytes of a text. Every text has them, and they can be decoded without a tokenizer."""
    return text.encode()


def tokens(
    paths: Iterable[Path | str],
    out: Path | str,
    tokenizer: Tokenizer = byte_tokens,
    *,
    vocab: int = VOCAB,
    end: int | None = END,
    field: str = "text",
    shard: int = 64 << 20,
    progress: Callable[[Progress], None] = lambda state: None,
) -> Progress:
    """Writes all documents to the folder `out`, each followed by the token `end`.

    A text file is one document. Each line of a .jsonl file is one document, with its text under `field`. A missing file
    is refused before anything is written.
    """
    files = [Path(path) for path in paths]
    _check(files, vocab, end)
    documents = count = 0
    state = Progress(files[0], 0, 0, 0)
    with Writer(Path(out), vocab, shard) as writer:
        for number, file in enumerate(files, 1):
            for text, closes in _pieces(file, field, _PART if tokenizer is byte_tokens else -1):
                found = _row(tokenizer(text))
                writer.append(found)
                count += len(found)
                if closes:
                    if end is not None:
                        writer.append([end])
                        count += 1
                    documents += 1
                    state = Progress(file, number, documents, count)
                    if documents % _EVERY == 0:
                        progress(state)
            progress(state)
    return state


def _check(files: list[Path], vocab: int, end: int | None) -> None:
    if not files:
        raise DataError("no file was given to build tokens from.")
    for file in files:
        if not file.is_file():
            raise DataError(f"{file} is no file. Give text or .jsonl files.")
    if end is not None and not 0 <= end < vocab:
        raise DataError(f"the end token {end} is outside the vocabulary of {vocab}.")


def _row(found: Iterable[int]) -> NDArray[np.integer]:
    return np.frombuffer(found, np.uint8) if isinstance(found, bytes) else np.array(list(found), np.int64)


def _pieces(file: Path, field: str, part: int) -> Iterator[tuple[str, bool]]:
    """Parts of text of at most `part` characters (-1: whole documents), and whether each one ends a document."""
    try:
        with file.open(encoding="utf-8", newline="\n") as stream:
            if file.suffix == ".jsonl":
                for number, line in enumerate(stream, 1):
                    if line.strip():
                        yield _text(file, number, line, field), True
            else:
                while text := stream.read(part):
                    yield text, False
                yield "", True
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8: {error.reason} at byte {error.start} of a part read.") from error


def _text(file: Path, number: int, line: str, field: str) -> str:
    try:
        found = json.loads(line)[field]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}, line {number}: no JSON object with the text under {field!r}: {error!r}") from error
    if not isinstance(found, str):
        raise DataError(f"{file}, line {number}: {field!r} is a {type(found).__name__}; a text was expected.")
    return found
