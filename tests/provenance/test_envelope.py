"""Signed envelopes: what is good opens, and nothing that an attacker changes, cuts, swaps or repeats does."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.envelope import ENVELOPE_BYTES, encoded, key_id, open_envelope, pem_of, public_of, read_keys, seal
from muster.core.errors import Invalid, MusterError
from muster.track.provenance.statement import PAYLOAD_TYPE, Statement, Subject, read_statement

MINE, OTHER = b"\x01" * 32, b"\x02" * 32
KEYS = {key_id(public_of(MINE)): public_of(MINE)}
FILE = Subject("model.pt", "ab" * 32, "attempt 1")


def envelope(payload: bytes = b"{}", private: bytes = MINE, kind: str = PAYLOAD_TYPE) -> bytes:
    return seal(payload, kind, private)


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(envelope()), **fields}).encode()


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32))
def test_what_was_sealed_opens_with_its_key_alone(payload: bytes, private: bytes):
    sealed, public = seal(payload, PAYLOAD_TYPE, private), public_of(private)
    opened = open_envelope(sealed, PAYLOAD_TYPE, {key_id(public): public})
    assert (opened.payload, opened.key) == (payload, key_id(public))
    assert seal(payload, PAYLOAD_TYPE, private) == sealed
    with pytest.raises(Invalid, match="not signed by a trusted key"):
        open_envelope(sealed, PAYLOAD_TYPE, KEYS if private != MINE else {})


@given(st.data())
def test_no_changed_byte_gets_through(data: st.DataObject):
    """A change that leaves the signed bytes as they are, as in the key's id, gives the same payload."""
    sealed = envelope(b'{"a":1}')
    at = data.draw(st.integers(0, len(sealed) - 1))
    new = data.draw(st.integers(0, 255).filter(lambda byte: byte != sealed[at]))
    try:
        opened = open_envelope(sealed[:at] + bytes([new]) + sealed[at + 1 :], PAYLOAD_TYPE, KEYS)
    except Invalid:
        return
    assert opened.payload == b'{"a":1}'


@given(st.integers(0, 200))
def test_no_cut_envelope_opens(length: int):
    with pytest.raises(Invalid):
        open_envelope(envelope()[:length], PAYLOAD_TYPE, KEYS)


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_never_crashes(data: bytes):
    for read in (lambda: open_envelope(data, PAYLOAD_TYPE, KEYS), lambda: read_statement(data)):
        with pytest.raises(MusterError):
            read()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (changed(payloadType="text/plain"), "payloadType"),
        (envelope(kind="text/plain"), "payloadType"),
        (envelope(private=OTHER), "not signed by a trusted key"),
        (changed(payload=base64.b64encode(b"{ }").decode()), "was changed after it was signed"),
        (changed(signatures=[]), "signatures"),
        (changed(signatures=[{}] * 17), "signatures"),
        (changed(signatures=[None]), "not signed"),
        (changed(signatures="x"), "signatures"),
        (changed(payload="*"), "base64"),
        (changed(payload=7), "no DSSE envelope"),
        (b"[]", "no DSSE envelope"),
        (b'{"payload": "e30=", "payload": "e30="}', "twice"),
        (b"[" * 100_000, "nested"),
        (b'{"a": NaN}', "no number"),
        (b"\xff\xfe", "JSON"),
        (b" " * (ENVELOPE_BYTES + 1), "at most"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, match: str):
    with pytest.raises(Invalid, match=match):
        open_envelope(data, PAYLOAD_TYPE, KEYS)


def test_a_payload_is_never_taken_for_one_of_another_type():
    assert encoded("a", b"b c") != encoded("a 1 b", b"c")
    assert encoded("http://x", b"hi") == b"DSSEv1 8 http://x 2 hi"


def statement(*subjects: dict[str, object], **fields: object) -> bytes:
    doc = json.loads(Statement((FILE,), {}).encode())
    return json.dumps({**doc, **({"subject": list(subjects)} if subjects else {}), **fields}).encode()


def subject(name: object, sha256: object = "ab" * 32) -> dict[str, object]:
    return {"name": name, "digest": {"sha256": sha256}}


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "a//b", ".", "", "~/x", "c:\\x", "a\x00b", "a\nb", "x" * 300, None, 7]
)
def test_a_file_never_leads_elsewhere(name: object):
    with pytest.raises(Invalid):
        read_statement(statement(subject(name)))


@pytest.mark.parametrize(
    "raw",
    [
        statement(subject("a"), subject("a")),
        statement(subject("a", "AB" * 32)),
        statement(subject("a", "ab")),
        statement({"name": "a"}),
        statement(subject("a"), predicate=[]),
        statement(subject("a"), predicateType="https://example.org/other"),
        statement(subject("a"), _type="https://in-toto.io/Statement/v0.1"),
        statement(subject=[]),
    ],
)
def test_a_statement_that_names_no_files_for_certain_is_refused(raw: bytes):
    with pytest.raises(Invalid):
        read_statement(raw)


def test_a_statement_reads_back():
    made = Statement((FILE, Subject("a/b", "cd" * 32)), {"runDetails": {"builder": {"id": "x"}}})
    read = read_statement(made.encode())
    assert sorted(read.subjects, key=lambda one: one.name) == sorted(made.subjects, key=lambda one: one.name)
    assert (read.predicate, read.builder, read.built) == (made.predicate, "x", False)


def test_keys_are_read_from_pem_and_from_nothing_else():
    text = pem_of(public_of(MINE)) + pem_of(public_of(OTHER))
    assert read_keys(text) == {key_id(public): public for public in map(public_of, (MINE, OTHER))}
    private = "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----"
    for bad in ("", "x", private, text[:60], "-----BEGIN PUBLIC KEY-----", "x" * 100_000):
        with pytest.raises(Invalid):
            read_keys(bad)
