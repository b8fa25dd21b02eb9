"""The safetensors format: round trips, both ways with the format's own library, and damaged files."""

from __future__ import annotations

import json
import struct

import pytest
import safetensors.torch as official
import torch

from muster.train.errors import ModelFileError
from muster.train.models import safetensors

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SMALL_FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8)


def tensors():
    drawn = torch.randn(3, 5, generator=torch.Generator().manual_seed(8))
    found = {f"floats.{dtype}": drawn.to(dtype) for dtype in (*FLOATS, *SMALL_FLOATS)}
    found |= {f"integers.{dtype}": (drawn.abs() * 40).to(torch.int64).to(dtype) for dtype in INTEGERS}
    found |= {"flags": drawn > 0, "complex": torch.complex(drawn, -drawn), "turned": drawn.t(), "ünïcode": drawn[1]}
    return found | {"scalar": torch.tensor(3.5), "nothing": torch.empty(0, 4), "strided": drawn[:, ::2]}


def same(found, expected):
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert bytes_of(found[name]) == bytes_of(tensor), name


def bytes_of(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def test_round_trip_of_every_type(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.write(path, tensors(), {"made": "here"})
    found = safetensors.read(path)
    same(found, tensors())
    assert found.metadata == {"made": "here"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.safetensors"]


def test_the_library_reads_what_we_write(tmp_path):
    path = tmp_path / "ours.safetensors"
    safetensors.write(path, tensors(), {"format": "pt"})
    same(official.load_file(path), tensors())


def test_we_read_what_the_library_writes(tmp_path):
    path = tmp_path / "theirs.safetensors"
    official.save_file(
        {name: tensor.contiguous().clone() for name, tensor in tensors().items()}, path, {"format": "pt"}
    )
    found = safetensors.read(path)
    same(found, tensors())
    assert found.metadata == {"format": "pt"}


def test_writing_into_a_tensor_leaves_the_file_alone(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.write(path, {"x": torch.ones(4)})
    before = path.read_bytes()
    safetensors.read(path)["x"].zero_()
    assert path.read_bytes() == before
    assert torch.equal(safetensors.read(path)["x"], torch.ones(4))


def test_unaligned_data_is_read(tmp_path):
    path = tmp_path / "a.safetensors"
    values = torch.arange(3, dtype=torch.float64)
    raw(path, {"x": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}}, bytes_of(values), pad=3)
    assert torch.equal(safetensors.read(path)["x"], values)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.write(path, {"x": torch.ones(3), "y": torch.zeros(2, dtype=torch.int64)})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=rf"{length} bytes"):
            safetensors.read(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ModelFileError, match="bytes that belong to no tensor"):
        safetensors.read(path)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"x": entry(dtype="F33")}, "x is F33, expected one of F64"),
        ({"x": entry(shape=(3,))}, r"x has 8 bytes; F32 of shape \(3,\) takes 12"),
        ({"x": entry(shape=(-2,))}, "expected counts"),
        ({"x": entry(shape=(2.0,))}, "expected counts"),
        ({"x": entry(offsets=(8, 0))}, "x has -8 bytes"),
        ({"x": entry(), "y": entry()}, "y starts at byte .* a gap or an overlap"),
        ({"x": entry(offsets=(8, 16))}, "x starts at byte .* a gap or an overlap"),
        ({"x": {"dtype": "F32"}}, "x needs dtype, shape and data_offsets"),
        ({"x": 3}, "x needs dtype, shape and data_offsets"),
        ({"__metadata__": {"a": 1}}, "__metadata__ must map names to strings"),
        ([1, 2], "its header is a list"),
    ],
)
def test_a_header_with_mistakes_is_refused(tmp_path, header, said):
    path = tmp_path / "a.safetensors"
    raw(path, header, bytes(8))
    with pytest.raises(ModelFileError, match=said):
        safetensors.read(path)


def test_what_is_no_such_file_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"PK\x03\x04 something else altogether")
    with pytest.raises(ModelFileError, match="no safetensors file: its header would be"):
        safetensors.read(path)
    path.write_bytes(struct.pack("<Q", 4) + b"{no}")
    with pytest.raises(ModelFileError, match="no JSON"):
        safetensors.read(path)
    with pytest.raises(ModelFileError, match=r"b.safetensors cannot be read: No such file"):
        safetensors.read(tmp_path / "b.safetensors")


def test_a_failed_write_leaves_the_older_file(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.write(path, {"x": torch.ones(2)})
    with pytest.raises(ModelFileError, match=r"x is torch.complex128"):
        safetensors.write(path, {"x": torch.ones(2, dtype=torch.complex128)})
    with pytest.raises(NotImplementedError):
        safetensors.write(path, {"x": torch.ones(2, device="meta")})
    assert torch.equal(safetensors.read(path)["x"], torch.ones(2))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.safetensors"]


def test_folders_of_several_files(tmp_path):
    expected = {f"part.{number}": torch.full((10,), float(number)) for number in range(7)}
    safetensors.write_folder(tmp_path, expected, {}, limit=80)
    assert len(list(tmp_path.glob("model-*-of-00004.safetensors"))) == 4
    same(safetensors.read_folder(tmp_path), expected)
    index = json.loads((tmp_path / safetensors.INDEX).read_text())
    assert index["metadata"]["total_size"] == 280
    index["weight_map"]["part.0"] = "../elsewhere.safetensors"
    (tmp_path / safetensors.INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelFileError, match="a file of this folder"):
        safetensors.read_folder(tmp_path)
    index["weight_map"]["part.0"] = "model-00004-of-00004.safetensors"
    (tmp_path / safetensors.INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelFileError, match=r"names part.0 in model-00004-of-00004.safetensors, which does not"):
        safetensors.read_folder(tmp_path)
    safetensors.write_folder(tmp_path, expected, {})
    same(safetensors.read_folder(tmp_path), expected)


def raw(path, header, data, pad=0):
    text = json.dumps(header).encode()
    text += b" " * ((-len(text) % 8) + pad)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
