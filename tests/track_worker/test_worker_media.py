"""Pictures, histograms, tables and texts: what is recorded is what was given."""

from __future__ import annotations

import io
import json
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from muster.control.decode import decode
from muster.runtime import png
from muster.runtime.files import Files
from muster.runtime.media import INLINE, Media
from muster.runtime.png import Raster
from muster.runtime.reporter import Reporter
from muster.runtime.spool import SpoolReader


@pytest.fixture
def media(tmp_path: Path) -> Media:
    return Media(Files(Reporter(tmp_path)))


def inline(folder: Path) -> list[dict[str, Any]]:
    docs = decode(SpoolReader(folder).read(0, 1 << 30, final=True), {}).docs
    return [doc for doc in docs if doc["type"] == "media"]


def files(media: Media, folder: Path) -> list[tuple[dict[str, Any], bytes]]:
    media.files.flush()
    notes = sorted((folder / "files").glob("*.json"))
    return [(json.loads(note.read_text())["doc"], note.with_suffix(".data").read_bytes()) for note in notes]


def counted(folder: Path, media: Media) -> dict[str, Any]:
    media.files.flush()
    (doc,) = inline(folder)
    assert (doc["kind"], doc["name"], doc["step"]) == ("histogram", "w", 3)
    return doc["data"]


@given(
    st.integers(1, 9).flatmap(
        lambda w: st.integers(1, 9).flatmap(
            lambda h: st.sampled_from([1, 2, 3, 4]).flatmap(
                lambda c: st.binary(min_size=w * h * c, max_size=w * h * c).map(lambda data: Raster(w, h, c, data))
            )
        )
    )
)
def test_a_png_is_read_back_by_another_program(raster):
    with Image.open(io.BytesIO(png.encode(raster))) as picture:
        picture.load()
        assert picture.size == (raster.width, raster.height)
        assert len(picture.getbands()) == raster.channels
        assert picture.tobytes() == raster.samples


GREY = np.arange(48, dtype=np.uint8).reshape(6, 8)
RGB = np.arange(144, dtype=np.uint8).reshape(6, 8, 3)


@pytest.mark.parametrize(
    ("given_picture", "wanted"),
    [
        (GREY, GREY),
        (RGB, RGB),
        (RGB.astype(np.float32) / 255, RGB),
        (torch.from_numpy(RGB).permute(2, 0, 1), RGB),
        (torch.from_numpy(GREY).float().bfloat16()[None] / 255, GREY),
        (GREY > 20, (GREY > 20) * np.uint8(255)),
        (RGB.astype(np.int64) * 2, np.clip(RGB.astype(int) * 2, 0, 255)),
        (Image.fromarray(RGB), RGB),
        (Image.fromarray(RGB).convert("P"), None),
        (memoryview(RGB), RGB),
        (RGB[::-1, ::2], RGB[::-1, ::2]),
    ],
)
def test_every_kind_of_picture_is_taken(tmp_path, media, given_picture, wanted):
    media.image("sample", 7, given_picture, caption="a caption")
    ((doc, data),) = files(media, tmp_path)
    about = {"caption": "a caption", "width": doc["about"]["width"], "height": 6}
    assert (doc["kind"], doc["step"], doc["mime"], doc["about"]) == ("image", 7, "image/png", about)
    if wanted is not None:
        found = np.asarray(Image.open(io.BytesIO(data)))
        assert np.abs(found.astype(int) - wanted).max() <= (
            1 if "bfloat16" in str(getattr(given_picture, "dtype", "")) else 0
        )


def test_a_picture_in_a_file_is_given_away_as_it_is(tmp_path, media):
    path = tmp_path / "plot.jpg"
    path.write_bytes(b"not looked at")
    media.image("plot", 1, path)
    ((doc, data),) = files(media, tmp_path)
    assert (doc["mime"], data) == ("image/jpeg", b"not looked at")


@pytest.mark.parametrize(
    "picture", [np.zeros(5), np.zeros((2, 2, 7), np.uint8), np.zeros((0, 4), np.uint8), "absent.png", 5]
)
def test_what_is_no_picture_is_told(media, picture):
    with pytest.raises((ValueError, TypeError, FileNotFoundError)):
        media.image("x", 1, picture)


NUMBERS = st.lists(st.floats(-1e6, 1e6, width=32) | st.sampled_from([float("nan"), float("inf")]), max_size=60)


@settings(max_examples=40)
@given(NUMBERS, st.sampled_from([list, np.array, torch.tensor, lambda v: array("d", v)]), st.integers(1, 20))
def test_a_histogram_counts_as_numpy_does(tmp_path_factory, values, kind, bins):
    folder = tmp_path_factory.mktemp("rank")
    media = Media(Files(Reporter(folder)))
    media.histogram("w", 3, kind(values), bins)
    data = counted(folder, media)
    finite = np.array([value for value in values if np.isfinite(value)])
    assert data["count"] == len(finite)
    assert data["not_finite"] == len(values) - len(finite)
    if len(finite):
        counts, edges = np.histogram(finite, bins)
        assert sum(data["counts"]) == len(finite)
        assert np.allclose(data["edges"], edges)
        # A value on an edge may be counted on either side of it, by rounding.
        assert (
            np.abs(np.cumsum(data["counts"]) - np.cumsum(counts)).max()
            <= np.isclose(finite[:, None], edges[None], rtol=1e-5, atol=1e-5 * max(1e-9, float(np.ptp(finite)))).sum()
        )
        assert (data["low"], data["high"]) == (finite.min(), finite.max())


def test_a_tensor_is_counted_as_it_was_at_the_call(tmp_path, media):
    tensor = torch.zeros(100_000)
    media.histogram("w", 3, tensor, 4)
    tensor += 1
    assert counted(tmp_path, media)["high"] == 0.0


def test_a_long_list_is_counted_by_the_thread(tmp_path, media):
    media.histogram("w", 3, range(10_000), 10)
    assert counted(tmp_path, media)["counts"] == [1000] * 10


def test_tables_and_texts_stand_in_the_spool_while_they_are_small(tmp_path, media):
    media.table("t", 1, ["a", "b"], [[1, "x"], [float("nan"), None]])
    media.text("sample", 2, "**bold**")
    table, text = inline(tmp_path)
    assert table["data"] == {"columns": ["a", "b"], "rows": [[1, "x"], ["nan", None]]}
    assert text["data"] == {"text": "**bold**"}
    assert table["id"] != text["id"]


def test_what_is_large_becomes_a_file(tmp_path, media):
    media.text("long", 1, "x" * (INLINE + 1))
    media.table("wide", 2, ["a"] * 10, [[n] * 10 for n in range(5000)])
    found = {doc["name"]: (doc["mime"], json.loads(data)) for doc, data in files(media, tmp_path)}
    assert found["long"] == ("application/json", {"text": "x" * (INLINE + 1)})
    assert len(found["wide"][1]["rows"]) == 5000
    assert inline(tmp_path) == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.table("t", 1, ["a"], [[1, 2]]), "a row of 2 cells"),
        (lambda m: m.histogram("h", 1, "text"), "expected numbers"),
        (lambda m: m.histogram("h", 1, [1], bins=0), "1 to 4096"),
        (lambda m: m.text("n" * 10_240, 1, "x"), "1 to 250 characters"),
        (lambda m: m.text("n", 1.5, "x"), "whole number"),
        (lambda m: m.image("n", "1", b""), "whole number"),
    ],
)
def test_a_mistake_is_told_at_the_call(media, call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(media)
