"""Signatures of images as `cosign sign --key` makes them: Ed25519 or ECDSA P-256 over a payload that names the digest.

The signature lies in the image's repository under the tag `sha256-DIGEST.sig`. Certificates without a key (keyless
signing), transparency logs and the bundle format of the referrers API are not looked at.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from muster.core.errors import ConfigError
from muster.core.image_ref import DIGEST

Key = Ed25519PublicKey | ec.EllipticCurvePublicKey
PAYLOAD_MAX: Final = 64 << 10
_SIGNATURES_MAX: Final = 50  # of one image that are tried
_ANNOTATION: Final = "dev.cosignproject.cosign/signature"
_TYPE: Final = "cosign container image signature"


class Source(Protocol):
    """A repository of a registry."""

    def manifest(self, reference: str) -> tuple[str, dict[str, Any]]: ...

    def blob(self, digest: str, most: int) -> bytes: ...


def read_key(path: str) -> Key:
    """Raises ConfigError for a file that is no public key of these kinds."""
    try:
        key = load_pem_public_key(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The key {path} can't be read: {error}.", "Name a file that `cosign` wrote: cosign.pub."
        ) from None
    if isinstance(key, Ed25519PublicKey) or (
        isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
    ):
        return key
    raise ConfigError(
        f"The key {path} is neither Ed25519 nor ECDSA P-256.", "Make one with `cosign generate-key-pair`."
    )


def is_signed(source: Source, digest: str, keys: Sequence[Key]) -> bool:
    """Whether one of the keys has signed this digest. Raises what `source` raises, also if there is no signature."""
    _, manifest = source.manifest(f"{digest.replace(':', '-')}.sig")
    for blob, signature in _signatures(manifest):
        payload = source.blob(blob, PAYLOAD_MAX)
        if any(_verifies(key, signature, payload) for key in keys) and _names(payload, digest):
            return True
    return False


def _signatures(manifest: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    layers = manifest.get("layers")
    for layer in layers[:_SIGNATURES_MAX] if isinstance(layers, list) else ():
        annotations = layer.get("annotations") if isinstance(layer, dict) else None
        written = annotations.get(_ANNOTATION) if isinstance(annotations, dict) else None
        if not isinstance(written, str) or not DIGEST.fullmatch(str(layer.get("digest"))):
            continue
        try:
            yield str(layer["digest"]), base64.b64decode(written, validate=True)
        except ValueError:
            continue


def _verifies(key: Key, signature: bytes, payload: bytes) -> bool:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, payload)
        else:
            key.verify(signature, payload, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _names(payload: bytes, digest: str) -> bool:
    """Whether the payload is a signature of an image, of this one."""
    try:
        critical = json.loads(payload)["critical"]
        return bool(critical["type"] == _TYPE and critical["image"]["docker-manifest-digest"] == digest)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
