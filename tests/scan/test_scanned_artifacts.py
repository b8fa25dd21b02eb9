"""Artifacts by what is in them: none of the malicious ones passes, whatever its name; benign ones do."""

from __future__ import annotations

import collections
import datetime
import gzip
import io
import os
import pickle
import struct
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pickle_kit import MALICIOUS, MARKER, acts, safetensors, tarred, torch_zip, zipped
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from muster.scan.apart import Scanner
from muster.scan.artifacts import look_at_artifact
from muster.scan.limits import Budget

PLAIN = pickle.dumps({"a": [1, 2.5, "x", b"y", None, True, {1}, (1, 2)]})


def look(name, data, **limits):
    return look_at_artifact(io.BytesIO(data), len(data), name, Budget(**limits))


@pytest.mark.parametrize("case", MALICIOUS)
def test_what_could_act_is_told_and_does_not_act(case):
    name, data = MALICIOUS[case]
    found = look(name, data)
    assert found
    assert found[0].sort == "unsafe", str(found[0])
    assert "safetensors" in found[0].hint
    assert not Path(MARKER).exists()


def saved(model, **how):
    made = io.BytesIO()
    torch.save(model, made, **how)
    return made.getvalue()


def dumped(model, **how):
    made = io.BytesIO()
    joblib.dump(model, made, **how)
    return made.getvalue()


def trained(*estimators):
    return make_pipeline(*estimators).fit(np.arange(40.0).reshape(20, 2), [0, 1] * 10)


def layers():
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())


def optimizer():
    layer = torch.nn.Linear(3, 2)
    made = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    made.step()
    return {"model": layer.state_dict(), "optimizer": made.state_dict(), "rng": torch.get_rng_state(), "step": 3}


def compressed_npz():
    made = io.BytesIO()
    np.savez_compressed(made, a=np.arange(9), b=np.zeros((4, 4), "f4"))
    return made.getvalue()


def objects():
    return {"a": np.array(["x", 1, None], dtype=object), "b": np.arange(3)}


def npy(array):
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


BENIGN = {
    "state of a training": ("last.pt", lambda: saved(optimizer())),
    "an old file of torch": ("last.pth", lambda: saved(optimizer(), _use_new_zipfile_serialization=False)),
    "a whole model of torch's layers": ("m.pt", lambda: saved(layers())),
    "bfloat16 and a parameter": ("m.pt", lambda: saved([torch.ones(3).bfloat16(), layers()[0].bias])),
    "storages that begin like a pickle": (
        "m.pt",
        lambda: zipped({"m/data.pkl": PLAIN, "m/version": b"3\n", "m/data/0": b"\x80\x04\x82\x01)R."}),
    ),
    "plain values": ("a.pkl", lambda: PLAIN),
    "plain values, protocol 0": ("a.pkl", lambda: pickle.dumps({"a": [1, "x", 2.5]}, 0)),
    "the standard library": (
        "a.pickle",
        lambda: pickle.dumps([collections.OrderedDict(a=1), collections.Counter("aa"), datetime.datetime(2026, 1, 1),
                              Path("a"), complex(1, 2), collections.defaultdict(list)], 2),
    ),
    "arrays": ("a.pkl", lambda: pickle.dumps({"a": np.arange(9), "b": np.float32(2), "c": np.random.RandomState(0)})),
    "scikit-learn by joblib": ("m.joblib", lambda: dumped(trained(StandardScaler(), RandomForestClassifier(3)))),
    "scikit-learn, packed": ("m.joblib", lambda: dumped(trained(StandardScaler(), LogisticRegression()), compress=3)),
    "scikit-learn by pickle": ("m.pkl", lambda: pickle.dumps(trained(LogisticRegression()))),
    "objects in an array of joblib": ("m.joblib", lambda: dumped(objects())),
    "npy": ("a.npy", lambda: npy(np.zeros((3, 4), [("a", "f4"), ("b", "U5")]))),
    "npz": ("a.npz", compressed_npz),
    "safetensors": (
        "m.safetensors",
        lambda: safetensors(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
                            b'"b":{"dtype":"F16","shape":[4],"data_offsets":[8,16]}}'),
    ),
    "text": ("notes.txt", lambda: b"config\nname\nis what I say.\n" * 50),
    "json": ("config.json", lambda: b'{"layers": 3}'),
    "nothing": ("empty.pt", lambda: b""),
    "random bytes": ("tokens.bin", lambda: os.urandom(5000)),
    "bytes that begin as a name": ("tokens.bin", lambda: b"\x82\x01\xff" + bytes(5000)),
    "gz of text": ("log.gz", lambda: gzip.compress(b"line\n" * 1000)),
    "a tar of pictures": ("shard.tar", lambda: tarred({"1.png": b"\x89PNG\r\n\x1a\n" + os.urandom(99), "1.cls": b"3"})),
    "a zip in a zip": ("a.zip", lambda: zipped({"b.zip": zipped({"c.txt": b"x"}, zipfile.ZIP_DEFLATED)})),
    "a notebook": ("a.ipynb", lambda: b'{"cells": []}'),
}  # fmt: skip


@pytest.mark.parametrize("case", BENIGN)
def test_what_is_benign_passes(case):
    name, make = BENIGN[case]
    assert look(name, make()) == []


def patched(raw, at, value):
    return raw[:at] + value + raw[at + len(value) :]


def flagged(raw):
    """The flag of encryption in the directory alone, which some readers pass over."""
    at = raw.rindex(b"PK\x01\x02")
    return patched(raw, at + 8, b"\x01")


def renamed(raw):
    """Another name in the member's own header."""
    return patched(raw, raw.index(b"data.pkl"), b"data.txt")


def bad_sum(raw):
    at = raw.rindex(b"PK\x01\x02")
    return patched(raw, at + 16, b"\1\2\3\4")


def linked(kind, target=""):
    def change(info):
        info.type, info.linkname, info.size = kind, target, 0

    return change


def twice():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("data.pkl", PLAIN)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("data.pkl", acts(2))
    return made.getvalue()


def overlapping():
    raw = zipped({"a": b"x" * 100, "b": b"y" * 100})
    at = raw.rindex(b"PK\x01\x02")
    return patched(raw, at + 42, struct.pack("<I", 0))


PICKLED = zipped({"data.pkl": PLAIN}, zipfile.ZIP_DEFLATED)
UNREADABLE = {
    "encrypted by a flag": ("m.pt", flagged(PICKLED)),
    "two names": ("m.pt", renamed(PICKLED)),
    "a wrong checksum": ("m.pt", bad_sum(PICKLED)),
    "cut": ("m.pt", PICKLED[:-10]),
    "something after the directory": ("m.pt", PICKLED + b"x" * 30),
    "a member twice": ("m.pt", twice()),
    "members that overlap": ("m.zip", overlapping()),
    "a path out": ("m.zip", zipped({"../../etc/x": b"x"})),
    "a bomb": ("m.zip", zipped({str(n): b"\0" * 40_000_000 for n in range(8)}, zipfile.ZIP_DEFLATED)),
    "a bomb of gz": ("m.gz", gzip.compress(b"\0" * 300_000_000, 6)),
    "7z": ("m.pt", b"7z\xbc\xaf\x27\x1c" + b"\0" * 90),
    "zstd": ("m.tar.zst", b"\x28\xb5\x2f\xfd" + b"\0" * 90),
    "tar: a path out": ("m.tar", tarred({"/etc/x": b"x"})),
    "tar: a link out": ("m.tar", tarred({"x": b""}, linked(tarfile.SYMTYPE, "../../etc/passwd"))),
    "tar: a device": ("m.tar", tarred({"x": b""}, linked(tarfile.CHRTYPE))),
    "tar: cut": ("m.tar", tarred({"x": b"y" * 4000})[:2000]),
    "a pickle that is cut": ("m.pkl", PLAIN[:-5]),
    "bytes after a pickle": ("m.pkl", PLAIN + b"\xff\xfe\xfd"),
    "text that says it is a model": ("m.pt", b"hello"),
    "safetensors: overlap": (
        "m.safetensors",
        safetensors(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
                    b'"b":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}}'),
    ),
    "safetensors: past the end": (
        "m.safetensors", safetensors(b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'),
    ),
    "safetensors: a size": ("m.safetensors", safetensors(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,16]}}')),
    "safetensors: twice": ("m.safetensors", safetensors(b'{"a":1,"a":2}')),
    "safetensors: no header": ("m.safetensors", struct.pack("<Q", 1 << 62) + b"{}"),
    "npy: a header": ("a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 30) + b"{'descr': __import__('os')}   "),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_looked_at_has_not_passed(case):
    name, data = UNREADABLE[case]
    found = look(name, data)
    assert found
    assert found[0].sort == "not_scanned"
    assert found[0].what
    assert found[0].hint


def test_deep_nests_are_given_up():
    raw = acts(4)
    for n in range(8):
        raw = zipped({f"{n}.zip": raw})
    assert [one.sort for one in look("a.zip", raw)] == ["not_scanned"]


def test_limits_of_time_and_size():
    many = pickle.dumps(list(range(200_000)))
    assert look("a.pkl", many) == []
    for limits in ({"opcodes": 1000}, {"seconds": 0.0}, {"read": 1000}):
        assert [one.sort for one in look("a.pkl", many, **limits)] == ["not_scanned"]
    shards = tarred({f"{n}.txt": b"x" for n in range(50)})
    assert [one.sort for one in look("a.tar", shards, members=20)] == ["not_scanned"]


NAMES = ["a.pkl", "a.pt", "a.zip", "a.npy", "a.tar", "a.safetensors", "a"]
STARTS = [b"", b"\x80\x04", b"PK\x03\x04", b"\x93NUMPY", b"\x1f\x8b", b"\x78\x9c", b"\x89HDF\r\n\x1a\n"]


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=300), st.sampled_from(NAMES), st.sampled_from(STARTS))
def test_anything_at_all_ends_with_a_verdict(data, name, start):
    assert isinstance(look(name, start + data, seconds=5.0), list)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 200), st.binary(min_size=1, max_size=4), st.sampled_from(["torch zip", "tar.gz", "protocol 4"]))
def test_damaged_ones_never_pass_as_pickles_that_act(at, value, case):
    """A byte changed: either it is told, or what it did before can no longer be reached by the unpickler."""
    name, data = MALICIOUS[case]
    raw = patched(data, at % len(data), value)
    if not look(name, raw) and case == "protocol 4":
        assert b"open" not in raw or b"io" not in raw


# --- the scanner's own process ----------------------------------------------------------------------------------------
def reader(data):
    return lambda start, stop: data[start:stop]


def test_a_process_scans_one_after_the_other():
    scanner = Scanner()
    try:
        for data in (b"", b"x", b"shown", b"PNG" * 50, PLAIN):
            assert scanner.scan("a.txt", len(data), reader(data)) == []
        for name, data in (MALICIOUS["torch zip"], ("m.pt", torch_zip(PLAIN)), MALICIOUS["gz"]):
            found = scanner.scan(name, len(data), reader(data))
            assert [one.sort for one in found] == ([] if data == torch_zip(PLAIN) else ["unsafe"])
    finally:
        scanner.close()


@pytest.mark.parametrize(
    "program", ["raise SystemExit(1)", "import os; os.kill(os.getpid(), 9)", "print('x' * 99, flush=True)"]
)
def test_a_scanner_that_crashes_has_passed_nothing(program):
    scanner = Scanner(command=(sys.executable, "-c", program))
    (found,) = scanner.scan("m.pt", 10, reader(b"x" * 10))
    assert (found.sort, found.place) == ("not_scanned", "m.pt")
    assert "ended while it looked" in found.what
    scanner.close()


def test_a_scanner_that_hangs_is_ended():
    scanner = Scanner(seconds=-4.8, command=(sys.executable, "-c", "import time; time.sleep(60)"))
    began = time.monotonic()
    (found,) = scanner.scan("m.pt", 10, reader(b"x" * 10))
    assert found.sort == "not_scanned"
    assert "seconds" in found.what
    assert time.monotonic() - began < 20
    scanner.close()


def test_content_that_cannot_be_read_is_no_verdict():
    def gone(start, stop):
        raise OSError("the disk is away")

    scanner = Scanner()
    with pytest.raises(RuntimeError, match="the disk is away"):
        scanner.scan("m.pt", 10, gone)
    assert scanner.scan("m.pkl", len(PLAIN), reader(PLAIN)) == []
    scanner.close()
