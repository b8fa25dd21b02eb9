"""One sign-in through the provider: the authorisation-code flow with PKCE, state and nonce.

What the server has to remember between its two requests is in a sealed cookie of the browser that began. So a sign-in
that somebody else began can't be ended in it, and nobody fills the server's memory by beginning many.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, TypeVar
from urllib.parse import quote_plus, urlencode

from cryptography.fernet import Fernet, InvalidToken

from muster.core.errors import Invalid, NotAllowed, TooMany, Unauthenticated, Unavailable
from muster.server.oidc.id_token import TokenRefused, check_id_token
from muster.server.oidc.provider import Doc, Provider, ProviderError
from muster.server.oidc.settings import OidcSettings

log = logging.getLogger("muster.server")

T = TypeVar("T")
SECONDS: Final = 600.0  # for which a sign-in that was begun can be ended
LONGEST: Final = 4000  # characters of the cookie
_USED: Final = 10_000  # sign-ins that were ended, remembered so that none is ended twice
_AT_ONCE: Final = 8  # requests that wait for the provider
_AGAIN: Final = "Begin again on the sign-in page."
# Errors of OAuth 2.0 (RFC 6749, 4.1.2.1) and OpenID Connect, in words. Other texts of the provider are not shown: an
# address may hold any.
_ERRORS: Final = {
    "access_denied": "The sign-in was cancelled, or the provider does not let this account use Muster.",
    "login_required": "The provider wants you to sign in there first.",
    "interaction_required": "The provider needs an answer of yours first.",
    "consent_required": "The provider needs your consent.",
    "account_selection_required": "The provider needs to know which account.",
    "temporarily_unavailable": "The provider can't answer now.",
    "server_error": "The provider had an error.",
    "unauthorized_client": "The provider does not know Muster as an application that may sign people in.",
    "invalid_scope": "The provider does not know a scope of Muster's settings.",
    "invalid_request": "The provider did not understand the request.",
    "unsupported_response_type": "The provider does not offer the authorization-code flow to Muster.",
}


@dataclass(frozen=True, slots=True)
class Flow:
    """A sign-in that was begun."""

    state: str
    nonce: str
    verifier: str  # of PKCE
    redirect_uri: str
    page: str  # where it leads in the end
    expires_at: float


class OidcFlows:
    """`key`: 32 bytes, by which cookies are sealed. `now`: wall time in seconds."""

    def __init__(self, settings: OidcSettings, key: bytes, installation: str, now: Callable[[], float]) -> None:
        self.settings, self.provider = settings, Provider(settings, now)
        self.cookie = f"muster_oidc_{installation}"
        self._fernet = Fernet(base64.urlsafe_b64encode(key))
        self._now = now
        self._used: dict[str, float] = {}  # states of ended sign-ins → when they would have expired
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_AT_ONCE)

    def begin(self, redirect_uri: str, page: str) -> tuple[str, str]:
        """The address at the provider that the browser is sent to, and the value of its cookie."""
        flow = Flow(_random(), _random(), _random(), redirect_uri, page, self._now() + SECONDS)
        try:
            address = self._waiting(lambda: self.provider.endpoints().authorization)
        except ProviderError as error:
            raise self._unavailable(error) from error
        challenge = base64.urlsafe_b64encode(hashlib.sha256(flow.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        sealed = self._fernet.encrypt(json.dumps(asdict(flow)).encode()).decode()
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", sealed

    def take(self, cookie: str | None, state: str) -> Flow:
        """The sign-in of a browser, which can't be taken again. Raises Unauthenticated."""
        flow = self._unsealed(cookie)
        now = self._now()
        if flow is None or not hmac.compare_digest(flow.state.encode(), state.encode()):
            raise Unauthenticated("This browser did not begin this sign-in, or began another one since.", _AGAIN)
        if flow.expires_at <= now:
            raise Unauthenticated(f"The sign-in took longer than {SECONDS / 60:g} minutes.", _AGAIN)
        with self._lock:
            if state in self._used:
                raise Unauthenticated("This sign-in is over already.", _AGAIN)
            if len(self._used) >= _USED:
                live = [(used, until) for used, until in self._used.items() if until > now]
                self._used = dict(live[1 - _USED :])
            self._used[state] = flow.expires_at
        return flow

    def end(self, flow: Flow, code: str | None, error: str | None, issuer: str | None) -> Doc:
        """What the provider says of who signed in. Raises a MusterError in plain words."""
        try:
            return self._waiting(lambda: self._claims(flow, code, error, issuer))
        except ProviderError as failed:
            log.warning("the provider that people sign in through: %s", failed)
            raise self._unavailable(failed) from failed
        except TokenRefused as refused:
            log.warning("an ID token of the provider is refused: %s", refused)
            raise Unauthenticated(f"What {self.settings.shown_name} sent is refused: {refused}.", _AGAIN) from refused

    def _claims(self, flow: Flow, code: str | None, error: str | None, issuer: str | None) -> Doc:
        endpoints = self.provider.endpoints()
        if (endpoints.names_itself or issuer is not None) and issuer != self.settings.issuer:
            raise Unauthenticated("The answer comes from another provider than the one that was asked.", _AGAIN)
        if error is not None:
            raise NotAllowed(_ERRORS.get(error, "The provider refused the sign-in."), _AGAIN)
        if not code:
            raise Invalid("The provider sent no code.", _AGAIN)
        tokens = self._tokens(flow, code)
        claims = check_id_token(tokens.get("id_token"), self.provider, flow.nonce, self._now())
        return self._completed(claims, tokens.get("access_token"))

    def _tokens(self, flow: Flow, code: str) -> Doc:
        endpoints, client, secret = self.provider.endpoints(), self.settings.client_id, self.settings.client_secret()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": flow.redirect_uri,
            "code_verifier": flow.verifier,
        }
        auth = (quote_plus(client), quote_plus(secret)) if secret and endpoints.basic else None  # RFC 6749, 2.3.1
        if auth is None:
            form |= {"client_id": client, **({"client_secret": secret} if secret else {})}
        status, found = self.provider.post(endpoints.token, form, auth)
        if status == 200:
            return found
        told = str(found.get("error"))
        if told == "invalid_grant":
            raise Unauthenticated("The provider does not take the code of this sign-in any more.", _AGAIN)
        if told in ("invalid_client", "unauthorized_client"):
            raise ProviderError("it does not accept this server's client id and secret")
        raise ProviderError(f"it answered {status} when the code was exchanged")

    def _completed(self, claims: Doc, access_token: object) -> Doc:
        """With what the provider tells only when it is asked about the account. The ID token's claims count first."""
        asked = not self._wanted() <= claims.keys() and self.provider.endpoints().userinfo
        if not asked or not isinstance(access_token, str):
            return claims
        more = self.provider.userinfo(access_token)
        if more.get("sub") != claims["sub"]:
            raise TokenRefused("it is of another account than the one that was asked about")
        found = {**more, **claims}
        if found.get("email") != more.get("email"):  # whether an address is verified is said of that address
            found["email_verified"] = claims.get("email_verified")
        return found

    def _wanted(self) -> set[str]:
        settings = self.settings
        addresses = {"email", "email_verified"} if settings.claim == "email" or settings.domains else set()
        return {settings.claim, *addresses, *({settings.group_claim} if settings.group else ())}

    def _waiting(self, ask: Callable[[], T]) -> T:
        """A provider that is slow does not take all of the server's threads."""
        if not self._slots.acquire(blocking=False):
            raise TooMany("Many people are signing in at once.", "Try again in a moment.")
        try:
            return ask()
        finally:
            self._slots.release()

    def _unsealed(self, cookie: str | None) -> Flow | None:
        if not cookie or len(cookie) > LONGEST:
            return None
        try:
            return Flow(**json.loads(self._fernet.decrypt(cookie.encode("latin-1"))))
        except (InvalidToken, binascii.Error, TypeError, ValueError):
            return None

    def _unavailable(self, error: ProviderError) -> Unavailable:
        return Unavailable(
            f"{self.settings.shown_name} could not be asked: {error}.",
            "Try again; if it lasts, tell whoever runs this server. `muster open` signs you in without the provider.",
        )


def _random() -> str:
    """256 bits; 43 characters, which is what PKCE asks of a verifier."""
    return secrets.token_urlsafe(32)
