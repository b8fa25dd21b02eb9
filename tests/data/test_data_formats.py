"""One contract over every data format, and shards that the real libraries wrote."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from muster.data import FORMATS, DataError, Sample, Stored, open_dataset
from muster.data.formats import mds, tar
from muster.data.formats.mds_codec import codec

FIXTURES = Path(__file__).with_name("fixtures")


@dataclass(frozen=True)
class Kit:
    """How to try one format: what to write, with which options, into several shards, and what must come back."""

    written: list[Sample]
    write: dict[str, Any]
    open: dict[str, Any]
    read: list[Sample]
    shards: str  # pattern of its files


TAR = [
    {"__key__": f"k/{n:03d}", "cls": n, "txt": "ü" * n, "npy": np.arange(n + 1), "seg.bin": bytes(n)} for n in range(7)
]
MDS = [{"image": np.full((2, n + 1), n, np.uint8), "label": n, "name": "ü" * n} for n in range(7)]
KITS = {
    "tokens": Kit(
        [{"tokens": np.arange(n, n + 5)} for n in range(7)],
        {"vocab": 50, "shard": 8},
        {"length": 5},
        [{"tokens": np.array([n, n + 1, n + 2, n + 3, n + 4, n + 1])} for n in range(6)],
        "*.tokens",
    ),
    "tar": Kit(TAR, {"shard": 3}, {}, TAR, "*.tar"),
    "mds": Kit(
        MDS, {"columns": {"image": "ndarray:uint8", "label": "int", "name": "str"}, "limit": 70}, {}, MDS, "*.mds"
    ),
}


def _same(found: Sample, expected: Sample) -> bool:
    return set(found) == set(expected) and all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.fixture(params=sorted(FORMATS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    FORMATS[name].write(tmp_path / "data", KITS[name].written, **KITS[name].write)
    return tmp_path / "data"


def _open(name: str, folder: Path) -> Stored:
    return open_dataset(name, folder, **KITS[name].open)


def _shards(name: str, folder: Path) -> list[Path]:
    return sorted(folder.glob(KITS[name].shards))


def test_every_format_is_tried() -> None:
    assert set(KITS) == set(FORMATS)


def test_a_round_trip_in_any_order_over_several_shards(name: str, folder: Path) -> None:
    found, expected = _open(name, folder), KITS[name].read
    assert len(_shards(name, folder)) > 1
    assert len(found) == len(expected)
    for index in [*range(len(expected)), *reversed(range(len(expected)))]:
        assert _same(found.read(index), expected[index])
    found.verify()
    found.close()
    assert _same(found.read(1), expected[1])


def test_many_threads_read_at_once(name: str, folder: Path) -> None:
    found, expected = _open(name, folder), KITS[name].read
    with ThreadPoolExecutor(8) as pool:
        indices = [index % len(expected) for index in range(400)]
        for index, sample in zip(indices, pool.map(found.read, indices), strict=True):
            assert _same(sample, expected[index])


@pytest.mark.parametrize("index", [-1, 7])
def test_a_sample_that_is_not_there_is_refused(name: str, folder: Path, index: int) -> None:
    with pytest.raises(DataError, match=f"sample {index} was asked for; there are {len(KITS[name].read)}"):
        _open(name, folder).read(index)


def test_a_missing_shard_is_refused_at_open(name: str, folder: Path) -> None:
    _shards(name, folder)[1].unlink()
    with pytest.raises(DataError, match=_shards(name, folder)[0].name[:5]):
        _open(name, folder)


@pytest.mark.parametrize("sidecars", [True, False])
def test_a_shard_that_is_cut_off_anywhere_is_refused_at_open(name: str, folder: Path, sidecars: bool) -> None:
    shard = _shards(name, folder)[-1]
    whole = shard.read_bytes()
    useful = len(whole.rstrip(b"\0"))
    for size in {0, 1, useful // 2, useful // 2 // 512 * 512, useful - 1}:
        shard.write_bytes(whole[:size])
        if not sidecars:
            for each in folder.glob("*.muster.json"):
                each.unlink()
        with pytest.raises(DataError, match=rf"{shard.name}.* {size} bytes"):
            _open(name, folder)


def test_a_changed_byte_is_found_by_verify(name: str, folder: Path) -> None:
    shard = _shards(name, folder)[-1]
    found = _open(name, folder)
    data = bytearray(shard.read_bytes())
    data[len(data.rstrip(b"\0")) - 1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DataError, match=rf"{shard.name} is .*damaged"):
        found.verify()


def test_a_write_that_is_cut_off_leaves_no_dataset(name: str, tmp_path: Path) -> None:
    def samples() -> Iterator[Sample]:
        yield from KITS[name].written[:5]
        raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        FORMATS[name].write(tmp_path / "data", samples(), **KITS[name].write)
    with pytest.raises(DataError):
        _open(name, tmp_path / "data")


def test_nothing_is_written_over(name: str, folder: Path) -> None:
    with pytest.raises(DataError, match="holds a dataset already"):
        FORMATS[name].write(folder, KITS[name].written, **KITS[name].write)


def test_no_samples_and_wrong_options_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no (sample|token) was written"):
        FORMATS[name].write(tmp_path / "data", [], **KITS[name].write)
    with pytest.raises(DataError, match="don't fit the format"):
        open_dataset(name, tmp_path, wrong=1)
    with pytest.raises(DataError, match=r"'zip' isn't known\. Give one of mds, tar, tokens"):
        open_dataset("zip", tmp_path)


# -- tar


def _wds(tmp_path: Path) -> Path:
    return shutil.copytree(FIXTURES / "wds", tmp_path / "wds")


def _expected_wds(number: int) -> Sample:
    return {
        "__key__": f"class{number % 2}/sample{number:04d}",
        "txt": f"sample {number} ü",
        "cls": number * 3,
        "json": {"number": number, "half": number / 2},
        "npy": np.arange(number + 1, dtype=np.float32) * 0.5,
        "seg.bin": bytes(range(number)),
    }


def test_shards_that_webdataset_wrote(tmp_path: Path) -> None:
    folder = _wds(tmp_path)
    for _ in range(2):  # from the headers, then from what was remembered of them
        found = tar.open(folder)
        assert len(found) == 3
        assert all(_same(found.read(number), _expected_wds(number)) for number in range(3))
        found.verify()
        assert (folder / "wds-000000.tar.muster.json").exists()
    assert tar.open(folder / "wds-000001.tar").read(0)["cls"] == 6
    assert tar.open(folder, decode=False).read(1)["cls"] == b"3"


def test_what_was_remembered_of_another_tar_is_not_used(tmp_path: Path) -> None:
    folder = _wds(tmp_path)
    tar.open(folder)
    shutil.copy(folder / "wds-000001.tar", folder / "wds-000000.tar")
    assert [tar.open(folder).read(number)["cls"] for number in range(2)] == [6, 6]
    (folder / "wds-000000.tar.muster.json").write_text("{")
    assert len(tar.open(folder)) == 2


def test_a_place_that_cannot_be_written_to_is_read_all_the_same(tmp_path: Path) -> None:
    folder = _wds(tmp_path)
    (
        folder / "wds-000000.tar.muster.json"
    ).mkdir()  # root could write to a folder without permission, but not over this
    for _ in range(2):
        assert len(tar.open(folder)) == 3
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def _tar(path: Path, files: list[tuple[str, bytes]], folders: list[str] = []) -> None:  # noqa: B006
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as out:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
        for name in folders:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            out.addfile(info)


def test_long_names_folders_and_files_that_are_no_samples(tmp_path: Path) -> None:
    long = "d/" * 80 + "x.y.z" + "/" + "n" * 120
    files = [(f"{long}.TXT", b"a"), (f"{long}.seg.png", b"b"), (".DS_Store", b"c"), ("README", b"d"), ("k.txt", b"e")]
    _tar(tmp_path / "a.tar", files, folders=["late"])
    found = tar.open(tmp_path / "a.tar")
    assert [found.read(index) for index in range(len(found))] == [
        {"__key__": long, "txt": "a", "seg.png": b"b"},
        {"__key__": "k", "txt": "e"},
    ]


def test_tars_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no \.tar file is there"):
        tar.open(tmp_path)
    (tmp_path / "a.tar.gz").write_bytes(b"x")
    with pytest.raises(DataError, match=r"a\.tar\.gz is compressed"):
        tar.open(tmp_path)
    _tar(tmp_path / "a.tar", [])
    with pytest.raises(DataError, match="1 tar shards and no sample"):
        tar.open(tmp_path)
    _tar(tmp_path / "b.tar", [("k.txt", b"a"), ("k.txt", b"b")])
    with pytest.raises(DataError, match=r"k\.txt is there twice"):
        tar.open(tmp_path / "b.tar")
    _tar(tmp_path / "c.tar", [("k.json", b"{"), ("l.npy", b"x")])
    with pytest.raises(DataError, match="part 'json' of 'k' cannot be decoded"):
        tar.open(tmp_path / "c.tar").read(0)
    with pytest.raises(DataError, match="part 'npy' of 'l' cannot be decoded"):
        tar.open(tmp_path / "c.tar").read(1)
    with pytest.raises(DataError, match="part 'xyz' is a float"):
        tar.write(tmp_path / "d", [{"__key__": "a", "xyz": 1.5}])
    for key, says in (({}, "has no `__key__`"), ({"__key__": "a.b"}, "'a.b' has a dot")):
        with pytest.raises(DataError, match=says):
            tar.write(tmp_path / f"e{says[:4]}", [{"txt": "a", **key}])


# -- MDS


def _expected_mds(number: int) -> Sample:
    return {
        "raw": bytes(range(number)),
        "text": f"sample {number} ü",
        "number": number - 3,
        "any": np.arange(2 * (number + 1), dtype=np.int32).reshape(2, number + 1),
        "typed": np.arange(number + 1, dtype=np.uint16),
        "fixed": np.arange(6, dtype=np.float32).reshape(2, 3) + number,
        "u8": number,
        "f64": number / 8,
        "i16": -number,
        "digits": 10**20 + number,
        "real": number / 4,
        "exact": Decimal(f"{number}.10"),
        "object": {"number": number, "list": [1, None, "x"]},
        "image": (np.arange(18, dtype=np.uint8) + number).reshape(2, 3, 3),
    }


@pytest.mark.parametrize("folder", ["mds", "mds-gz"])
def test_shards_that_mosaicml_streaming_wrote(folder: str) -> None:
    found = mds.open(FIXTURES / folder)
    assert len(found) == 7
    for number in [3, 0, 6, 1, 2, 4, 5]:
        assert _same(found.read(number), _expected_mds(number))
        assert found.read(number)["any"].dtype == np.int32
    found.verify()


def test_zstd_is_read_where_a_module_for_it_is_and_else_named() -> None:
    if any(importlib.util.find_spec(module) for module in ("zstandard", "zstd")):
        assert _same(mds.open(FIXTURES / "mds-zstd").read(3), _expected_mds(3))
    else:
        with pytest.raises(DataError, match=r"shard\.00000\.mds\.zstd is compressed with zstd.*pip install zstandard"):
            mds.open(FIXTURES / "mds-zstd")


def test_pickles_are_refused() -> None:
    with pytest.raises(DataError, match=r"shard\.00000\.mds: column 'thing' is pickled"):
        mds.open(FIXTURES / "mds-pkl")


def test_a_packed_shard_that_is_damaged_or_of_an_unknown_kind(tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / "mds-gz", tmp_path / "gz")
    shard = folder / "shard.00000.mds.gz"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0xFF
    shard.write_bytes(data)
    with pytest.raises(DataError, match="cannot be unpacked"):
        mds.open(folder).read(0)
    with pytest.raises(DataError, match="is damaged: its sha1"):
        mds.open(folder).verify()
    index = folder / "index.json"
    index.write_text(index.read_text().replace('"compression": "gz"', '"compression": "snappy"'))
    with pytest.raises(DataError, match="compressed with 'snappy'; zstd, gz and bz2"):
        mds.open(folder)


def test_offsets_past_the_end_are_damage(tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / "mds", tmp_path / "mds")
    shard = folder / "shard.00000.mds"
    data = bytearray(shard.read_bytes())
    data[8:12] = (10**6).to_bytes(4, "little")
    shard.write_bytes(data)
    with pytest.raises(DataError, match=r"shard\.00000\.mds is damaged: sample 0 is said to end at byte 1000000"):
        mds.open(folder).read(0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 1}, "of version 1; 2 was expected"),
        ({"shards": [{"format": "csv", "version": 2}]}, "a shard of csv 2"),
        ({"shards": [{}]}, "no index of MDS shards"),
        ({"shards": []}, "0 shards and no sample"),
    ],
)
def test_an_index_of_something_else_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": [], **change}))
    with pytest.raises(DataError, match=says):
        mds.open(tmp_path)


@pytest.mark.parametrize("encoding", ["list[pil]", "nonsense", "ndarray:complex64", "ndarray:uint8:a,b"])
def test_an_encoding_that_is_not_read_is_named(encoding: str) -> None:
    with pytest.raises(DataError, match="column 'x'"):
        codec("x", encoding)


@given(arrays(st.sampled_from([np.uint8, np.int16, np.float32, np.int64]), array_shapes(max_dims=4, max_side=5)))
@settings(max_examples=60, deadline=None)
def test_arrays_of_any_type_and_shape_come_back(value: np.ndarray) -> None:
    shape = ",".join(map(str, value.shape))
    for encoding in ("ndarray", f"ndarray:{value.dtype.name}", f"ndarray:{value.dtype.name}:{shape}"):
        each = codec("x", encoding)
        raw = each.encode(value)
        assert each.size in (None, len(raw))
        found = each.decode(raw)
        assert found.dtype == value.dtype
        assert np.array_equal(found, value, equal_nan=value.dtype.kind == "f")


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("ndarray:uint8", np.zeros(2, np.int8)),
        ("ndarray:uint8:3", np.zeros(2, np.uint8)),
        ("str", b"x"),
        ("uint8", 300),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_refused(tmp_path: Path, encoding: str, value: object) -> None:
    with pytest.raises(DataError, match="column 'x' of sample 0 cannot be written"):
        mds.write(tmp_path / "data", [{"x": value}], columns={"x": encoding})
