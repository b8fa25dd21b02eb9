"""Signed envelopes: DSSE (Dead Simple Signing Envelope) with Ed25519 keys; signing, and opening what others sent.

What is opened may come from anybody: nothing of it is believed before a signature by a trusted key was found good.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from muster.core.errors import Invalid
from muster.core.json_text import parse

ENVELOPE_BYTES: Final = 64 << 20  # of 100,000 files and their digests
SIGNATURES_MAX: Final = 16
KEYS_MAX: Final = 100
_PEM_BYTES: Final = 64 << 10
_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"


@dataclass(frozen=True, slots=True)
class Opened:
    """The payload of an envelope, and the id of the key whose signature of it is good."""

    payload: bytes
    key: str


def key_id(public: bytes) -> str:
    """The SHA-256 of a public key's 32 bytes, in hex."""
    return hashlib.sha256(public).hexdigest()


def public_of(private: bytes) -> bytes:
    """The public key of a private one; each has 32 bytes."""
    found = Ed25519PrivateKey.from_private_bytes(private).public_key()
    return found.public_bytes(Encoding.Raw, PublicFormat.Raw)


def pem_of(public: bytes) -> str:
    found = Ed25519PublicKey.from_public_bytes(public)
    return found.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def read_keys(text: str, source: str = "the key file") -> dict[str, bytes]:
    """The Ed25519 public keys of a PEM text, by id. Raises Invalid for anything else."""
    hint = "Write one with `muster models keys --pem > keys.pem`."
    if len(text) > _PEM_BYTES or text.count(_BEGIN) > KEYS_MAX:
        raise Invalid(f"{source}: it is too long to be a file of keys.", hint)
    found: dict[str, bytes] = {}
    for block in text.split(_BEGIN)[1:]:
        body, end, _ = block.partition(_END)
        try:
            key = load_pem_public_key(f"{_BEGIN}{body}{end}\n".encode())
        except ValueError:
            raise Invalid(f"{source}: a key in it can't be read.", hint) from None
        if not isinstance(key, Ed25519PublicKey):
            raise Invalid(f"{source}: it has a key that is not of Ed25519.", hint)
        raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        found[key_id(raw)] = raw
    if not found:
        raise Invalid(f"{source}: there is no public key in it; PEM with `{_BEGIN}` was expected.", hint)
    return found


def seal(payload: bytes, payload_type: str, private: bytes) -> bytes:
    """The envelope as JSON. The same payload and key give the same bytes."""
    signature = Ed25519PrivateKey.from_private_bytes(private).sign(encoded(payload_type, payload))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [{"keyid": key_id(public_of(private)), "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(envelope, separators=(",", ":")).encode()


def encoded(payload_type: str, payload: bytes) -> bytes:
    """What is signed: DSSE's pre-authentication encoding, so that a payload is never taken for one of another type."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def open_envelope(data: bytes, payload_type: str, keys: Mapping[str, bytes]) -> Opened:
    """The payload, once one of the keys is found to have signed it. Raises Invalid with what is wrong."""
    hint = "Get the statement again, from the server that signed it."
    if len(data) > ENVELOPE_BYTES:
        raise Invalid(f"The statement has {len(data):,} bytes; at most {ENVELOPE_BYTES:,} are expected.", hint)
    envelope = strict_json(data, "The statement")
    if not isinstance(envelope, dict) or not isinstance(envelope.get("payload"), str):
        raise Invalid("The statement is no DSSE envelope: an object with `payload` was expected.", hint)
    if envelope.get("payloadType") != payload_type:
        given = str(envelope.get("payloadType"))[:100]
        raise Invalid(f"The statement's payloadType is {given!r}; {payload_type!r} was expected.", hint)
    signatures = envelope.get("signatures")
    if not isinstance(signatures, list) or not 0 < len(signatures) <= SIGNATURES_MAX:
        raise Invalid(f"The statement has no list of 1 to {SIGNATURES_MAX} signatures.", hint)
    payload = _base64(envelope["payload"])
    if payload is None:
        raise Invalid("The statement's payload is not base64.", hint)
    signed, named = encoded(payload_type, payload), list[str]()
    for one in signatures:
        named.append(str(one.get("keyid", ""))[:64] if isinstance(one, dict) else "")
        signature = _base64(one.get("sig")) if isinstance(one, dict) else None
        for key, public in keys.items() if signature is not None else ():
            if _good(public, signature, signed):
                return Opened(payload, key)
    raise _not_signed(named, keys)


def strict_json(data: bytes, what: str) -> Any:
    """JSON without anything that two readers could read differently. Raises Invalid."""
    parse(data)  # its depth, and UTF-8
    try:
        return json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_refuse_constant)
    except ValueError as error:
        raise Invalid(f"{what} is not valid JSON: {str(error)[:200]}.", "Get it again.") from None


def _not_signed(named: Iterable[str], keys: Mapping[str, bytes]) -> Invalid:
    known = [one for one in named if one in keys]
    if known:
        return Invalid(
            f"The signature by the key {known[0][:16]} is not good: the statement was changed after it was signed.",
            "Don't use the files. Get the statement again, from the server that signed it.",
        )
    there = ", ".join(key[:16] for key in keys) or "none"
    return Invalid(
        f"The statement is not signed by a trusted key: it names {', '.join(one[:16] for one in named) or 'none'}; "
        f"trusted are {there}.",
        "Get the keys from the server that you trust (`muster models keys --pem`), and give them with --key.",
    )


def _good(public: bytes, signature: bytes | None, signed: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature or b"", signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def _base64(text: object) -> bytes | None:
    """DSSE allows both alphabets."""
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text.translate(_URL_SAFE), validate=True)
    except (binascii.Error, ValueError):
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


_URL_SAFE: Final = str.maketrans("-_", "+/")
