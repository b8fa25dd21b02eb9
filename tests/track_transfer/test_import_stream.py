"""The stream that an import becomes: what the server decodes is what the importer read, and twice it is the same."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from muster import wire
from muster.control.decode import decode
from muster.track.importers import IMPORTERS
from muster.track.importers.base import Ended, Facts, ImportedFile, ImportedMedium, LeftOut, Rows
from muster.track.importers.spool import Encoder
from transfer_kit import FIXTURES

NAN, INF = float("nan"), float("inf")


def stream(*items: object) -> bytes:
    return b"".join(piece.data for piece in Encoder(5.0).pieces(items))  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1), st.floats(0, 4e9), st.floats(), st.floats(allow_nan=True, width=64)
        ),
        min_size=1,
        max_size=30,
    )
)
def test_rows_arrive_as_they_are(rows: list[tuple[int, float, float, float]]) -> None:
    steps, times, *values = zip(*rows, strict=True)
    made = Rows(("a", "b/ü"), list(steps), list(times), [list(pair) for pair in zip(*values, strict=True)])
    found = decode(stream(made), {}).columns
    for place, name in enumerate(("a", "b/ü")):
        assert list(found[name].steps) == list(steps)
        assert list(found[name].times) == list(times)
        assert [repr(value) for value in found[name].values] == [repr(value) for value in values[place]]


def test_documents_are_ones_that_a_rank_could_have_written() -> None:
    facts = Facts({"lr": NAN, "s": "a\0b\ud800"}, {"t": "x"}, "a note", {"host": {"name": "h"}})
    docs = decode(stream(facts), {}).docs
    assert [doc["type"] for doc in docs] == ["params", "tags", "note", "environment"]
    assert docs[0]["values"]["lr"] == "nan"
    assert "\0" not in docs[0]["values"]["s"]
    assert all(doc["time"] == 5.0 for doc in docs)


def test_content_is_named_by_its_digest(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"file")
    items = [
        ImportedMedium("pic", "image", 1, 2.0, content=b"png", mime="image/png"),
        ImportedFile("out/f", tmp_path / "f"),
    ]
    pieces = list(Encoder(5.0).pieces(items))
    media, artifact = (decode(piece.data, {}).docs[0] for piece in pieces)
    assert media["digest"] == pieces[0].contents[0].digest == hashlib.sha256(b"png").hexdigest()
    assert (media["bytes"], media["mime"], media["time"]) == (3, "image/png", 2.0)
    assert (artifact["path"], artifact["bytes"]) == ("out/f", 4)
    assert pieces[1].contents[0].file == tmp_path / "f"


def test_a_large_table_goes_as_content() -> None:
    rows = [["x" * 100, n] for n in range(5000)]
    (piece,) = Encoder(5.0).pieces([ImportedMedium("t", "table", 1, 2.0, {"columns": ["a", "b"], "rows": rows})])
    assert len(piece.data) < 1000
    assert piece.contents[0].size > 200_000


def test_what_can_not_be_kept_is_said_and_costs_nothing_else() -> None:
    encoder = Encoder(5.0)
    items = [
        Rows(("n" * 10_000, "ok"), [1], [1.0], [[1.0, 2.0]]),
        Facts({"k" * 300: 1, "long": "v" * 9000, "lr": 1}),
        LeftOut("3 graphs"),
        Ended("failed", 9.0),
    ]
    found = decode(b"".join(piece.data for piece in encoder.pieces(items)), {})
    assert list(found.columns) == ["ok"]
    assert found.docs[0]["values"] == {"lr": 1}
    assert len(encoder.problems) == 4
    assert encoder.ended == Ended("failed", 9.0)


def test_more_sets_of_names_than_there_are_numbers() -> None:
    items = [Rows((f"m{n}",), [n], [1.0], [[float(n)]]) for n in range(wire.SHAPES_MAX + 10)]
    found = decode(stream(*items), {}).columns
    assert all(list(found[f"m{n}"].values) == [float(n)] for n in range(wire.SHAPES_MAX + 10))


def test_the_same_files_make_the_same_bytes() -> None:
    reader = IMPORTERS.get("wandb")
    (found,) = reader.find(FIXTURES / "wandb-0.31")
    first, second = stream(*reader.read(found)), stream(*reader.read(found))
    assert first == second
    columns = decode(first, {}).columns
    assert math.isnan(columns["bad"].values[0])
    assert len(columns["loss"].values) == 20
