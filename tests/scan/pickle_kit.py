"""Pickles and archives that a scan must tell, made by construction; loading one makes at most a marker file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

import numpy as np

MARKER = "/tmp/muster-scan-marker"


class Acts:
    """Makes a marker file when it is loaded."""

    def __reduce__(self):
        return (open, (MARKER, "w"))


def acts(protocol: int = 4) -> bytes:
    return pickle.dumps({"w": [1, 2], "x": Acts()}, protocol=protocol)


def short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


def tarred(members: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda info: None) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            change(info)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def torch_zip(data: bytes) -> bytes:
    return zipped({"m/data.pkl": data, "m/version": b"3\n", "m/data/0": b"\0" * 64})


def damaged(raw: bytes, at: int, value: bytes) -> bytes:
    return raw[:at] + value + raw[at + len(value) :]


def local_header(raw: bytes, name: str) -> int:
    return raw.index(b"PK\x03\x04" + raw[4:4]) if not name else raw.index(name.encode()) - 30


def npy_of_objects(protocol: int = 4) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    return made.getvalue() + acts(protocol)


def safetensors(header: bytes, data: bytes = b"\0" * 16) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def raw_global(module: str, name: str, *more: bytes) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n" + b"".join(more)


CALL = b"(S'" + MARKER.encode() + b"'\nS'w'\ntR."

# fmt: off
MALICIOUS: dict[str, tuple[str, bytes]] = {
    **{f"protocol {n}": ("model.pkl", acts(n)) for n in range(6)},
    "a name that says nothing": ("notes.txt", acts(0)),
    "an innocent suffix": ("weights.safetensors", acts(4)),
    "no suffix": ("weights", acts(2)),
    "inst": ("a.pkl", b"(S'" + MARKER.encode() + b"'\nS'w'\ni__builtin__\nopen\n."),
    "obj": ("a.pkl", b"(cbuiltins\nopen\nS'" + MARKER.encode() + b"'\nS'w'\no."),
    "newobj": ("a.pkl", b"\x80\x02cbuiltins\nopen\nX\x01\0\0\0a\x85\x81."),
    "memo": (
        "a.pkl",
        b"\x80\x04" + short("builtins") + b"\x94" + short("open") + b"\x940h\x00h\x01\x93" + CALL,
    ),
    "memo by number, mixed up": (
        "a.pkl",
        b"\x80\x04" + short("open") + b"q\x07" + short("collections") + b"q\x08" + b"00"
        + short("builtins") + b"h\x07\x93" + CALL,
    ),
    "names made by a call": (
        "a.pkl",
        b"\x80\x04" + raw_global("builtins", "str", b"X\x02\0\0\0os\x85R") + short("system") + b"\x93" + CALL,
    ),
    "names with a pop between": ("a.pkl", b"\x80\x04" + short("builtins") + b"N0" + short("open") + b"\x93" + CALL),
    "a dotted name": ("a.pkl", b"\x80\x04" + short("collections") + short("abc.sys.modules") + b"\x93" + CALL),
    "broken after it acts": ("a.pkl", acts(4)[:-1] + b"\xff\xff"),
    "cut after it acts": ("a.bin", acts(4)[:-3]),
    "an unclosed string before": ("a.dat", b"S'open\n0" + raw_global("builtins", "open", CALL)),
    "a number that is none": ("a.dat", b"Inot a number\n0" + raw_global("builtins", "open", CALL)),
    "attributes of a class": (
        "a.pkl", b"\x80\x02" + raw_global("collections", "OrderedDict", b"N}X\x01\0\0\0aK\x01s\x86b."),
    ),
    "extension registry": ("a.pkl", b"\x80\x02\x82\x01)R."),
    "a call of what a call made": ("a.pkl", b"\x80\x02" + raw_global("collections", "OrderedDict", b")R)R.")),
    "an import alone": ("a.pkl", b"\x80\x02" + raw_global("antigravity", "x", b".")),
    "getattr": ("a.pkl", b"\x80\x02" + raw_global("builtins", "getattr", b"(K\x01X\x01\0\0\0ntR.")),
    "the old name of a module": ("a.pkl", b"c__builtin__\neval\n(S'1'\ntR."),
    "functools.partial": ("a.pkl", b"\x80\x02" + raw_global("functools", "partial", b")R.")),
    "another codec": ("a.pkl", b"\x80\x02" + raw_global("_codecs", "encode", b"X\x01\0\0\0aX\x05\0\0\0rot13\x86R.")),
    "default factory": (
        "a.pkl", b"\x80\x02" + raw_global("collections", "defaultdict", raw_global("os", "getcwd", b"\x85R.")),
    ),
    "a second pickle": ("a.pkl", pickle.dumps({"a": 1}) + acts(4)),
    "nested in torch's storage": (
        "a.pt",
        b"\x80\x02" + raw_global("torch.storage", "_load_from_bytes")
        + b"B" + struct.pack("<I", len(acts())) + acts() + b"\x85R.",
    ),
    "torch zip": ("model.pt", torch_zip(acts(2))),
    "torch zip, another suffix inside": ("model.pt", zipped({"m/data.pkl": pickle.dumps({}), "m/data/0": acts(2)})),
    "torch zip, deflated": ("m.bin", zipped({"m/data.pkl": acts(2)}, zipfile.ZIP_DEFLATED)),
    "a pickle before a zip": ("m.pt", acts(2) + torch_zip(pickle.dumps({}))),
    "zip in zip": ("a.zip", zipped({"b.zip": zipped({"c": acts(4)})})),
    "tar": ("a.tar", tarred({"x/y": acts(4)})),
    "gz": ("a.gz", gzip.compress(acts(3))),
    "bz2": ("a.joblib", bz2.compress(acts(3))),
    "xz": ("a.pkl.xz", lzma.compress(acts(3))),
    "lzma": ("a.pkl", lzma.compress(acts(3), format=lzma.FORMAT_ALONE)),
    "zlib": ("a.joblib", zlib.compress(acts(3))),
    "tar.gz": ("a.tgz", gzip.compress(tarred({"m.pkl": acts(4)}))),
    "npy of objects": ("a.npy", npy_of_objects()),
    "npz of objects": ("a.npz", zipped({"a.npy": npy_of_objects()})),
    "keras, lambda": ("m.keras", zipped({"config.json": b'{"layers": [{"class_name": "Lambda"}]}'})),
    "h5, lambda": ("m.h5", b"\x89HDF\r\n\x1a\n" + b"\0" * 3000 + b'{"class_name": "Lambda", "config": {}}'),
}
# fmt: on
