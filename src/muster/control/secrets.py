"""Encryption of stored secrets, and the keys: one key file, readable by its owner only, from which all are derived."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from muster.core.errors import ConfigError

_BYTES = 32


class Keyring:
    """Encrypts secrets, and signs the tokens of launchers: one for each attempt, stored nowhere."""

    def __init__(self, master: bytes) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(_derive(master, b"secrets at rest")))
        self._attempts = _derive(master, b"attempt tokens")
        self._others = _derive(master, b"keys of other tools")
        self.sessions = _derive(master, b"sessions of browsers")
        self.sign_ins = _derive(master, b"sign-ins through a provider")
        # Engines derive names and signatures from it, in clusters that are shared with others.
        self.engines = _derive(master, b"engines")
        # A public id of this installation, to find its own objects in clusters that are shared with others.
        self.installation = _derive(master, b"installation").hex()[:10]

    def passphrase(self, purpose: str) -> str:
        """A separate passphrase for a tool that does its own encryption."""
        return _derive(self._others, purpose.encode()).hex()

    def seal(self, value: str) -> bytes:
        return self._fernet.encrypt(value.encode())

    def unseal(self, cipher: bytes) -> str:
        try:
            return self._fernet.decrypt(cipher).decode()
        except InvalidToken:
            raise ConfigError(
                "A secret was encrypted with another key than the one in use.",
                "Put the right key file back, or set the secret anew.",
            ) from None

    def attempt_token(self, job: str, attempt: int) -> str:
        return f"att_{job}.{attempt}.{self._sign(job, attempt)}"

    def attempt_of(self, token: str) -> tuple[str, int] | None:
        """The attempt that a launcher's token is for; None when the token is not valid."""
        rest, _, signature = token.removeprefix("att_").rpartition(".")
        job, _, number = rest.rpartition(".")  # an id may contain dots
        if not token.startswith("att_") or not (number.isascii() and number.isdigit()) or len(number) > 9:
            return None
        good = hmac.compare_digest(signature.encode(), self._sign(job, int(number)).encode())
        return (job, int(number)) if good else None

    def _sign(self, job: str, attempt: int) -> str:
        return hmac.new(self._attempts, f"{job}\0{attempt}".encode(), hashlib.sha256).hexdigest()


def load_keyring(path: Path) -> Keyring:
    """Reads the key file, or creates it: never readable by others, never half written."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raw = secrets.token_bytes(_BYTES)
        temporary = path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    if len(raw) != _BYTES:
        raise ConfigError(
            f"The key file {path} holds {len(raw)} bytes, {_BYTES} are expected.", "Restore it from a backup."
        )
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"The key file {path} can be read by others.", f"Run `chmod 600 {path}`.")
    return Keyring(raw)


def _derive(master: bytes, purpose: bytes) -> bytes:
    return hmac.new(master, purpose, hashlib.sha256).digest()
