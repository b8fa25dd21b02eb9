"""A folder against its statement: every changed, missing and extra file is named, whatever it is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from muster.core.envelope import key_id, public_of, seal
from muster.core.errors import Invalid, NotFound
from muster.track.provenance.statement import FILE_NAME, PAYLOAD_TYPE, Statement, Subject
from muster.track.provenance.verify import Verdict, read_envelope, verify_digests, verify_folder

PRIVATE = b"\x01" * 32
KEYS = {key_id(public_of(PRIVATE)): public_of(PRIVATE)}
FILES = {"model.safetensors": b"weights", "sub/config.json": b"{}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / FILE_NAME).write_bytes(signed())
    return tmp_path


def signed(ref: str = "model:gpt/3") -> bytes:
    subjects = tuple(Subject(name, hashlib.sha256(content).hexdigest()) for name, content in FILES.items())
    predicate = {"buildDefinition": {"internalParameters": {"ref": ref}}}
    return seal(Statement(subjects, predicate).encode(), PAYLOAD_TYPE, PRIVATE)


def check(folder: Path) -> Verdict:
    return verify_folder(folder, read_envelope(folder / FILE_NAME), KEYS)


def test_what_was_signed_is_good(folder: Path):
    verdict = check(folder)
    assert verdict.ok
    assert set(verdict.good) == set(FILES)
    assert verdict.key in KEYS


def test_a_changed_file_is_named(folder: Path):
    (folder / "model.safetensors").write_bytes(b"Weights")
    assert check(folder).changed == ("model.safetensors",)
    assert not check(folder).ok


def test_a_missing_file_is_named(folder: Path):
    (folder / "sub/config.json").unlink()
    assert check(folder).missing == ("sub/config.json",)


def test_extra_files_links_and_pipes_are_named(folder: Path):
    (folder / "sub/evil.py").write_text("")
    (folder / "link").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    (folder / "empty").mkdir()
    assert check(folder).extra == ("link", "pipe", "sub/evil.py")


def test_a_link_in_the_place_of_a_file_is_not_followed(folder: Path):
    outside = folder.parent / "outside"
    outside.write_bytes(FILES["model.safetensors"])
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(outside)
    verdict = check(folder)
    assert (verdict.missing, verdict.extra) == (("model.safetensors",), ("model.safetensors",))


def test_a_link_in_the_place_of_a_folder_is_not_followed(folder: Path):
    (folder / "sub").rename(folder.parent / "moved")
    (folder / "sub").symlink_to(folder.parent / "moved")
    assert (check(folder).missing, check(folder).extra) == (("sub/config.json",), ("sub",))


def test_another_statement_file_is_an_extra_file(folder: Path):
    own = folder.parent / "s.json"
    own.write_bytes(signed())
    verdict = verify_folder(folder, own.read_bytes(), KEYS, own)
    assert verdict.extra == (FILE_NAME,)


def test_without_a_statement_or_a_folder_it_is_said(folder: Path):
    with pytest.raises(NotFound, match="no statement"):
        read_envelope(folder / "none.json")
    with pytest.raises(NotFound, match="no folder"):
        verify_folder(folder / "none", signed(), KEYS)


def test_a_statement_of_another_version_is_refused_online():
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    assert verify_digests(signed(), KEYS, digests, "model:gpt/3").ok
    with pytest.raises(Invalid, match="was asked for"):
        verify_digests(signed("model:gpt/2"), KEYS, digests, "model:gpt/3")
    changed = {"model.safetensors": "ab" * 32, "new": "cd" * 32}
    verdict = verify_digests(signed(), KEYS, changed, "model:gpt/3")
    assert (verdict.changed, verdict.missing, verdict.extra) == (
        ("model.safetensors",), ("sub/config.json",), ("new",)
    )  # fmt: skip
