"""A browser's session as a signed text: what it stands for, readable by anybody, made by this server alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from muster.core.errors import NotAllowed

LONGEST: Final = 4000  # characters of a signed text

# What a text was signed for: the cookie of a session, or the link that a session for one run begins with.
Purpose = Literal["session", "share"]


@dataclass(frozen=True, slots=True)
class Share:
    """One run that a session may read, and nothing else."""

    id: str
    run: str
    project: str


@dataclass(frozen=True, slots=True)
class Session:
    """It stands for a token, and is valid no longer than that."""

    id: str
    token: str  # the token's id
    began_at: float
    expires_at: float
    share: Share | None = None
    page: str = "/"  # of the link of a share: where it leads


def only_shared(share: Share) -> NotAllowed:
    return NotAllowed(
        f"This link shows the run {share.run}, and nothing else.", "Sign in with a link of your own: `muster open`."
    )


class SessionKey:
    """Signs sessions; derived from the server's key, so that they outlive a restart."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, session: Session, purpose: Purpose) -> str:
        raw = json.dumps(asdict(session), separators=(",", ":")).encode()
        text = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        return f"{text}.{self._mac(purpose, text)}"

    def read(self, signed: str, purpose: Purpose) -> Session | None:
        """The session; None if it was not signed here, or for another purpose."""
        text, _, mac = signed.rpartition(".")
        if len(signed) > LONGEST or not hmac.compare_digest(mac.encode(), self._mac(purpose, text).encode()):
            return None
        found: Mapping[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return Session(**{**found, "share": Share(**found["share"]) if found["share"] else None})

    def csrf(self, session: Session) -> str:
        """What the page sends with whatever changes something; other sites can't know it."""
        return self._mac("csrf", session.id)

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()
