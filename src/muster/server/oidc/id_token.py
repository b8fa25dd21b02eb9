"""The checks of an ID token: who signed it, for whom, when, and for which sign-in."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from muster.server.oidc.provider import Doc, Provider
from muster.server.oidc.settings import OidcSettings

if TYPE_CHECKING:
    from jwt import PyJWK

# A public key verifies these. `none`, and HMAC, whose secret everybody would know, are not among them.
ALGORITHMS: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
LEEWAY: Final = 120.0  # seconds that the clocks of provider and server may differ
OLDEST: Final = 3600.0  # seconds since an ID token was made: it was made for this sign-in
_RSA_BITS: Final = 2048
_LONGEST: Final = 64 << 10  # characters


class TokenRefused(Exception):
    """The ID token is not one for this sign-in; the text says why, and quotes nothing of it."""


def check_id_token(token: object, provider: Provider, nonce: str, now: float) -> Doc:
    """The claims of an ID token. Raises TokenRefused or ProviderError."""
    import jwt  # noqa: PLC0415  (of the extra `oidc`)

    if not isinstance(token, str) or len(token) > _LONGEST:
        raise TokenRefused("there is none")
    try:
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenRefused("it is signed by an algorithm that is not accepted")
        key = _key(provider, str(algorithm), kid)
        claims: Doc = jwt.decode(token, key, algorithms=[str(algorithm)], options=_ONLY_SIGNATURE)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise TokenRefused("it is not signed by the provider") from error
    _check_claims(claims, provider.settings, nonce, now)
    return claims


# The claims are checked here: against the time that is passed in, and those that are missing are refused.
_ONLY_SIGNATURE: Final[Any] = {
    "verify_signature": True, "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
    "verify_iss": False, "verify_sub": False, "verify_jti": False,
}  # fmt: skip


def _key(provider: Provider, algorithm: str, kid: object) -> PyJWK:
    """The key with this id, or the only one that fits where the token names none."""
    import jwt  # noqa: PLC0415

    def fitting(keys: list[Doc]) -> list[Doc]:
        usable = [one for one in keys if _fits(one, algorithm)]
        return [one for one in usable if one.get("kid") == kid] if kid is not None else usable

    found = fitting(provider.keys(lambda keys: bool(fitting(keys))))
    if len(found) != 1:
        raise TokenRefused("the provider has no key, or several, by which it could be signed")
    made = jwt.PyJWK(dict(found[0]), algorithm=algorithm)
    if isinstance(made.key, RSAPublicKey) and made.key.key_size < _RSA_BITS:
        raise TokenRefused(f"it is signed by a key of less than {_RSA_BITS} bits")
    return made


def _fits(key: Doc, algorithm: str) -> bool:
    """Whether the provider offers the key for signatures of this algorithm."""
    right = key.get("kty") == ALGORITHMS[algorithm] and key.get("use", "sig") == "sig"
    return right and key.get("alg", algorithm) == algorithm


def _check_claims(claims: Doc, settings: OidcSettings, nonce: str, now: float) -> None:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    azp = claims.get("azp")
    if claims.get("iss") != settings.issuer:
        raise TokenRefused("it is of another issuer")
    if settings.client_id not in audiences:
        raise TokenRefused("it is for another application")
    if (len(audiences) > 1 or azp is not None) and azp != settings.client_id:
        raise TokenRefused("it was given to another application")
    if _seconds(claims, "exp") + LEEWAY <= now:
        raise TokenRefused("it has expired")
    if not now - OLDEST - LEEWAY <= _seconds(claims, "iat") <= now + LEEWAY:
        raise TokenRefused("it was not made just now: check the clocks of this server and of the provider")
    if "nbf" in claims and _seconds(claims, "nbf") > now + LEEWAY:
        raise TokenRefused("it is not valid yet")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise TokenRefused("it was made for another sign-in")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) < 256 or not subject.isascii() or not subject.isprintable():
        raise TokenRefused("it does not say whose it is")


def _seconds(claims: Doc, name: str) -> float:
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e12:
        raise TokenRefused(f"it has no time {name}")
    return float(found)
