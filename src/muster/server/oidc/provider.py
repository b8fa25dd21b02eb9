"""What the provider says of itself, and the keys that it signs with: asked for over HTTPS, and kept for an hour."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from muster.certificates import trusting
from muster.server.oidc.settings import OidcSettings, is_safe

log = logging.getLogger("muster.server")

KEPT: Final = 3600.0  # seconds, for what the provider has said
AGAIN: Final = 60.0  # seconds at least between two looks for a key that is not known
AFTER_FAILURE: Final = 5.0  # seconds until a provider that did not answer is asked again
_PATIENCE: Final = 10.0  # seconds for each step of a request
_MOST: Final = 1 << 20  # bytes of an answer
_WELL_KNOWN: Final = "/.well-known/openid-configuration"

Doc = Mapping[str, Any]


class ProviderError(Exception):
    """The provider did not answer, or not as it must; the text says why, and quotes no token."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    authorization: str
    token: str
    keys: str
    userinfo: str  # "" if it has none
    names_itself: bool  # in what it sends with the browser (RFC 9207)
    basic: bool  # takes the client's secret in the Authorization header


@dataclass(slots=True)
class _Kept:
    """An answer, or why there is none, and when it was asked for."""

    at: float = float("-inf")
    found: Any = None
    failure: str = ""


@dataclass(slots=True)
class Provider:
    """`now`: wall time in seconds."""

    settings: OidcSettings
    now: Callable[[], float]
    _endpoints: _Kept = field(default_factory=_Kept)
    _keys: _Kept = field(default_factory=_Kept)
    _looked_again: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def endpoints(self) -> Endpoints:
        with self._lock:
            found: Endpoints = self._kept(self._endpoints, self._discover)
        return found

    def keys(self, known: Callable[[list[Doc]], bool]) -> list[Doc]:
        """The provider's public keys (JWK). If `known` says that the wanted one is not there they are asked for again,
        at most once a minute: whoever makes up ids of keys must not make this server ask for each of them."""
        address = self.endpoints().keys
        with self._lock:
            kept = self._keys
            found: list[Doc] = self._kept(kept, lambda: self._fetch_keys(address))
            if not known(found) and not 0 <= self.now() - self._looked_again < AGAIN:
                self._looked_again, kept.at = self.now(), float("-inf")
                found = self._kept(kept, lambda: self._fetch_keys(address))
            return found

    def post(self, url: str, form: Mapping[str, str], auth: tuple[str, str] | None) -> tuple[int, Doc]:
        return self._ask("POST", url, data=dict(form), auth=httpx.BasicAuth(*auth) if auth else None)

    def userinfo(self, access_token: str) -> Doc:
        url = self.endpoints().userinfo
        status, found = self._ask("GET", url, headers={"Authorization": f"Bearer {access_token}"})
        if status != httpx.codes.OK:
            raise ProviderError(f"it answered {status} when it was asked about the account")
        return found

    def _kept(self, kept: _Kept, ask: Callable[[], object]) -> Any:
        age = self.now() - kept.at
        if not 0 <= age < (AFTER_FAILURE if kept.failure else KEPT):
            kept.at, kept.found, kept.failure = self.now(), None, ""
            try:
                kept.found = ask()
            except ProviderError as error:
                kept.failure = str(error)
                log.warning("the provider that people sign in through: %s", error)
        if kept.failure:
            raise ProviderError(kept.failure)
        return kept.found

    def _discover(self) -> Endpoints:
        issuer = self.settings.issuer
        status, found = self._ask("GET", issuer.rstrip("/") + _WELL_KNOWN)
        if status != httpx.codes.OK:
            raise ProviderError(f"it answered {status} when it was asked for its configuration")
        if found.get("issuer") != issuer:
            raise ProviderError(f"it says that its issuer is {str(found.get('issuer'))[:200]!r}, not {issuer!r}")
        methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return Endpoints(
            self._endpoint(found, "authorization_endpoint"),
            self._endpoint(found, "token_endpoint"),
            self._endpoint(found, "jwks_uri"),
            self._endpoint(found, "userinfo_endpoint") if found.get("userinfo_endpoint") else "",
            found.get("authorization_response_iss_parameter_supported") is True,
            isinstance(methods, list) and "client_secret_basic" in methods,
        )

    def _endpoint(self, found: Doc, name: str) -> str:
        """Only a provider of this machine has addresses without encryption."""
        url = found.get(name)
        encrypted = urlsplit(self.settings.issuer).scheme == "https"
        if not isinstance(url, str) or not is_safe(url) or (encrypted and not url.lower().startswith("https:")):
            raise ProviderError(f"its configuration has no address with https for {name}")
        return url

    def _fetch_keys(self, url: str) -> list[Doc]:
        status, found = self._ask("GET", url)
        keys = found.get("keys")
        if status != httpx.codes.OK or not isinstance(keys, list):
            raise ProviderError(f"it answered {status}, without keys, when it was asked for its keys")
        return [one for one in keys if isinstance(one, dict)]

    def _ask(self, method: str, url: str, **request: Any) -> tuple[int, Doc]:
        """The status and the JSON of an answer. Follows no redirect, and no proxy of the environment."""
        verify = trusting(self.settings.ca_file or None) if url.lower().startswith("https:") else False
        headers = {"Accept": "application/json", **request.pop("headers", {})}
        try:
            with (
                httpx.Client(timeout=_PATIENCE, follow_redirects=False, trust_env=False, verify=verify) as http,
                http.stream(method, url, headers=headers, **request) as answer,
            ):
                raw = bytearray()
                for chunk in answer.iter_bytes():
                    raw += chunk
                    if len(raw) > _MOST:
                        raise ProviderError("it sent more than a megabyte")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = "does not answer in time" if isinstance(error, httpx.TimeoutException) else "can't be reached"
            raise ProviderError(f"it {why}") from error
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ProviderError(f"it answered {answer.status_code} with something that is not JSON")
        return answer.status_code, found
