"""Sessions of browsers: the one-time links that they begin with, their cookies, and those that were ended."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from muster.core.errors import Unauthenticated
from muster.core.event import Event
from muster.core.server_events import SessionEnded, ShareRevoked
from muster.server.web.signing import Session, SessionKey, Share
from muster.store.base import EventFilter, Store

LINK_SECONDS: Final = 300.0  # for which a one-time link is valid
_LINKS: Final = 20  # unused links of a token; the oldest goes first
_ENDED: Final = 10_000  # ended sessions that are read from the log at the start
_COOKIE: Final = "muster_session_"


@dataclass(frozen=True, slots=True)
class Link:
    """A one-time link that nobody has used yet."""

    token: str
    page: str
    expires_at: float


class Sessions:
    """Of the server that leads. Links are gone when it stops; sessions are not, and neither is that they were ended."""

    def __init__(self, key: bytes, installation: str, seconds: float) -> None:
        self._key, self.seconds = SessionKey(key), seconds
        # Cookies are shared by all ports of a host: another server on it has another name for its own.
        self.cookie = f"{_COOKIE}{installation}"
        self._links: dict[str, Link] = {}  # by the digest of the code
        self._ended: dict[str, float] = {}  # ids of sessions and shares → when they would have expired
        self._lock = threading.Lock()

    def restore(self, store: Store, now: float) -> None:
        """Learns from the log what was ended before this server began to lead."""
        for kind in (SessionEnded.KIND, ShareRevoked.KIND):
            self._learn(store.events(EventFilter(kind=kind, last=True, limit=_ENDED)), now)

    def link(self, token: str, page: str, now: float) -> tuple[str, float]:
        """The code of a new link, and when it expires."""
        code = secrets.token_urlsafe(32)
        link = Link(token, page, now + LINK_SECONDS)
        with self._lock:
            self._links = {name: one for name, one in self._links.items() if one.expires_at > now}
            mine = [name for name, one in self._links.items() if one.token == token]
            for name in mine[: max(0, len(mine) + 1 - _LINKS)]:
                del self._links[name]
            self._links[_digest(code)] = link
        return code, link.expires_at

    def use(self, code: str, now: float) -> Link:
        """The link of a code, which is then worthless. Raises Unauthenticated."""
        with self._lock:
            link = self._links.pop(_digest(code), None)
        if link is None or link.expires_at <= now:
            raise Unauthenticated(
                f"The link was used already, or is older than {LINK_SECONDS / 60:g} minutes.",
                "`muster open` prints a new one.",
            )
        return link

    def begin(self, token: str, now: float, until: float | None, share: Share | None = None) -> Session:
        """A new session. `until`: when it ends at the latest."""
        ends = min(now + self.seconds, until or now + self.seconds)
        return Session(secrets.token_hex(16), token, now, ends, share)

    def share(self, token: str, run: str, project: str, page: str, now: float, until: float) -> Session:
        """What the link of a share says; a session for each reader begins with it."""
        identity = secrets.token_hex(16)
        return Session(identity, token, now, until, Share(identity, run, project), page)

    def signed(self, session: Session) -> str:
        return self._key.sign(session, "session")

    def signed_share(self, session: Session) -> str:
        return self._key.sign(session, "share")

    def csrf(self, session: Session) -> str:
        return self._key.csrf(session)

    def known(self, cookie: str) -> bool:
        """Whether the cookie was made here, whatever became of it."""
        return self._key.read(cookie, "session") is not None

    def read(self, cookie: str, now: float) -> Session:
        """The session of a cookie. Raises Unauthenticated; the token is still to be looked at."""
        return self._live(self._key.read(cookie, "session"), now)

    def read_share(self, signed: str, now: float) -> Session:
        return self._live(self._key.read(signed, "share"), now)

    def end(self, identity: str, expires_at: float, now: float) -> None:
        """From now on the session, or every session of the share, is refused."""
        with self._lock:
            self._ended = {name: until for name, until in self._ended.items() if until > now} | {identity: expires_at}

    def _live(self, session: Session | None, now: float) -> Session:
        named = () if session is None else (session.id, session.share.id if session.share else "")
        if session is None or session.expires_at <= now or any(name in self._ended for name in named):
            raise Unauthenticated("The session is over.", "Sign in again: `muster open` prints a link.")
        return session

    def _learn(self, events: Iterable[Event], now: float) -> None:
        for event in events:
            data = event.data
            if isinstance(data, SessionEnded | ShareRevoked) and data.expires_at > now:
                self._ended[data.session if isinstance(data, SessionEnded) else data.share] = data.expires_at


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
