"""Keys: made once, private, and what they sign can't be forged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.secrets import Keyring, load_keyring
from muster.core.errors import ConfigError

RING = Keyring(b"k" * 32)


def test_a_key_is_made_once_and_private(tmp_path) -> None:
    path = tmp_path / "key"
    cipher = load_keyring(path).seal("hunter2")
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"hunter2" not in cipher
    assert load_keyring(path).unseal(cipher) == "hunter2"


def test_a_readable_or_damaged_key_is_refused(tmp_path) -> None:
    path = tmp_path / "key"
    load_keyring(path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_keyring(path)
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="holds 5 bytes"):
        load_keyring(path)


def test_another_key_opens_nothing() -> None:
    with pytest.raises(ConfigError, match="another key"):
        Keyring(b"x" * 32).unseal(RING.seal("value"))


@given(job=st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True), attempt=st.integers(1, 10**6))
def test_attempt_tokens_name_their_attempt(job: str, attempt: int) -> None:
    assert RING.attempt_of(RING.attempt_token(job, attempt)) == (job, attempt)


@given(token=st.text(max_size=200))
def test_anything_else_is_nobody(token: str) -> None:
    assert RING.attempt_of(token) is None


def test_a_token_is_not_good_for_another_attempt() -> None:
    token = RING.attempt_token("job-1", 1)
    assert RING.attempt_of(token.replace("job-1.1.", "job-1.2.")) is None
