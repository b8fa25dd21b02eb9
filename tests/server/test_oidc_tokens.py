"""The checks of ID tokens, the keys of a provider, and the settings: each thing that is wrong is refused."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.entities.project import ProjectMember, ProjectSet
from muster.core.errors import ConfigError, NotAllowed, Unauthenticated
from muster.core.event import Event
from muster.core.state import State, apply
from muster.server.oidc.flow import SECONDS, OidcFlows
from muster.server.oidc.id_token import OLDEST, TokenRefused, check_id_token
from muster.server.oidc.people import USER, admit, person_of
from muster.server.oidc.provider import AGAIN, KEPT, Provider, ProviderError
from muster.server.oidc.settings import SECRET, OidcSettings, is_safe, read_oidc

NOW, NONCE, CLIENT = 1_700_000_000.0, "the-nonce", "muster"


@dataclass
class Answers:
    """What the provider's addresses answer, and how often each was asked for."""

    issuer: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)  # of the configuration
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str) -> object:
        if path == "/jwks":
            return {"keys": self.keys}
        at = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/jwks"}
        return {"issuer": self.issuer, **{name: self.issuer + path for name, path in at.items()}, **self.more}


@pytest.fixture(scope="module")
def listening() -> Iterator[Answers]:
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append(self.path)
            raw = json.dumps(answers.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        answers.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        yield answers
        server.shutdown()
        thread.join()


@pytest.fixture
def answers(listening: Answers) -> Answers:
    listening.keys, listening.more, listening.asked = [public(RSA, "r1"), public(EC, "e1")], {}, []
    return listening


RSA, OTHER, EC = (
    rsa.generate_private_key(65537, 2048),
    rsa.generate_private_key(65537, 2048),
    ec.generate_private_key(ec.SECP256R1()),
)


def public(key: Any, kid: str, **more: object) -> dict[str, Any]:
    algorithm: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig", **more}


def provider(answers: Answers, clock: list[float] | None = None, **given: Any) -> Provider:
    ticks = clock if clock is not None else [NOW]
    return Provider(OidcSettings(answers.issuer, CLIENT, **given), lambda: ticks[0])


def claims(answers: Answers, **more: Any) -> dict[str, Any]:
    usual = {"iss": answers.issuer, "aud": CLIENT, "sub": "s1", "nonce": NONCE, "iat": NOW, "exp": NOW + 300}
    return {name: value for name, value in {**usual, **more}.items() if value is not ...}


def token(given: Mapping[str, Any], key: PrivateKeyTypes = RSA, algorithm: str = "RS256", **header: Any) -> str:
    return jwt.encode(dict(given), key, algorithm, {"kid": "r1", **header})  # type: ignore[arg-type]


def check(answers: Answers, text: object, clock: list[float] | None = None) -> Mapping[str, Any]:
    return check_id_token(text, provider(answers, clock), NONCE, NOW)


# Signatures


@pytest.mark.parametrize(("algorithm", "kid"), [("RS256", "r1"), ("PS512", "r1"), ("ES256", "e1")])
def test_a_token_that_is_signed_by_the_provider_is_taken(answers: Answers, algorithm: str, kid: str) -> None:
    text = token(claims(answers), EC if algorithm == "ES256" else RSA, algorithm, kid=kid)
    assert check(answers, text)["sub"] == "s1"


def test_without_a_key_s_id_the_only_key_that_fits_counts(answers: Answers) -> None:
    text = jwt.encode(claims(answers), RSA, "RS256")
    assert check(answers, text)["sub"] == "s1"
    answers.keys.append(public(OTHER, "r2"))
    with pytest.raises(TokenRefused):
        check(answers, text)


def test_a_token_that_is_signed_otherwise_is_refused(answers: Answers) -> None:
    good = claims(answers)
    pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    header, body, signature = token(good).split(".")
    told = base64.urlsafe_b64encode(json.dumps(claims(answers, sub="s2")).encode()).decode().rstrip("=")
    refused = {
        "another key": token(good, OTHER),
        "another key's id": token(good, kid="r9"),
        "an id of another kind of key": token(good, kid="e1"),
        "none": jwt.encode(good, None, "none", {"kid": "r1"}),
        "HMAC with the public key": _hmac(good, pem),
        "HMAC with the key as the provider tells it": _hmac(good, json.dumps(answers.keys[0]).encode()),
        "a key that it brings along": token(good, OTHER, jwk=public(OTHER, "r1")),
        "other claims": f"{header}.{told}.{signature}",
        "no signature": f"{header}.{body}.",
        "nothing": "",
        "no text": None,
        "much": "x" * 100_000,
    }
    for what, text in refused.items():
        with pytest.raises(TokenRefused):
            pytest.fail(f"{what} is taken: {check(answers, text)}")


def test_keys_that_are_not_for_this_are_not_used(answers: Answers) -> None:
    secret = base64.urlsafe_b64encode(b"k" * 32).decode().rstrip("=")
    weak = rsa.generate_private_key(65537, 1024)
    for key, text in (
        ({"kty": "oct", "k": secret, "kid": "r1"}, _hmac(claims(answers), b"k" * 32)),
        (public(RSA, "r1", use="enc"), token(claims(answers))),
        (public(RSA, "r1", alg="RS512"), token(claims(answers))),
        ({"kty": "RSA", "kid": "r1", "n": "AQAB", "e": "!"}, token(claims(answers))),
        (public(weak, "r1"), _weak(claims(answers), weak)),
    ):
        answers.keys = [key]
        with pytest.raises(TokenRefused):
            check(answers, text)


def _hmac(given: Mapping[str, Any], secret: bytes) -> str:
    """PyJWT itself would not sign with a public key."""
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "r1"}, given]
    text = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    return (text + b"." + base64.urlsafe_b64encode(algorithm.sign(text, secret)).rstrip(b"=")).decode()


def _weak(given: Mapping[str, Any], key: rsa.RSAPrivateKey) -> str:
    """Without the warning that PyJWT has for such a key."""
    parts = [{"alg": "RS256", "kid": "r1"}, given]
    text = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    algorithm = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
    return (text + b"." + base64.urlsafe_b64encode(algorithm.sign(text, key)).rstrip(b"=")).decode()


# Claims


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"}, {"iss": ...}, {"aud": "other"}, {"aud": ["other"]}, {"aud": ...}, {"aud": []},
        {"aud": [CLIENT, "other"]}, {"aud": [CLIENT, "other"], "azp": "other"}, {"azp": "other"},
        {"exp": NOW - 121}, {"exp": ...}, {"exp": "soon"}, {"exp": True}, {"exp": float("nan")}, {"exp": 1e300},
        {"iat": ...}, {"iat": NOW + 121}, {"iat": NOW - OLDEST - 121}, {"nbf": NOW + 121}, {"nbf": None},
        {"nonce": "another"}, {"nonce": ...}, {"nonce": None}, {"nonce": ""}, {"nonce": "thé"},
        {"sub": ...}, {"sub": ""}, {"sub": 7}, {"sub": "x" * 256}, {"sub": "a\0b"}, {"sub": "é"},
    ],
    ids=str,
)  # fmt: skip
def test_a_claim_that_is_wrong_or_missing_is_refused(answers: Answers, wrong: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        check(answers, token(claims(answers, **wrong)))


def test_clocks_may_differ_by_two_minutes_and_more_than_one_audience_needs_a_word(answers: Answers) -> None:
    for right in (
        {"exp": NOW - 119},
        {"iat": NOW + 119, "nbf": NOW + 119},
        {"aud": [CLIENT]},
        {"aud": ["other", CLIENT], "azp": CLIENT},
    ):
        assert check(answers, token(claims(answers, **right)))["sub"] == "s1"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(["iss", "aud", "azp", "nonce", "exp", "iat", "sub"]), value=JSON)
def test_a_claim_of_any_shape_is_refused_in_words(listening: Answers, name: str, value: object) -> None:
    listening.keys, listening.more = [public(EC, "e1")], {}
    given = claims(listening, **{name: value})
    # PyJWT refuses to write some: it is the provider that would have.
    parts = [{"alg": "ES256", "kid": "e1"}, given]
    text = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(text, EC)
    signed = (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()
    try:
        found = check_id_token(signed, provider(listening), NONCE, NOW)
    except TokenRefused:
        return
    assert name in ("exp", "iat", "sub", "azp")
    assert found["aud"] == CLIENT
    assert found["exp"] > NOW - 121
    assert isinstance(found["sub"], str)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode() + ".e30.x"))
def test_any_text_is_refused_in_words(listening: Answers, text: str) -> None:
    with pytest.raises(TokenRefused):
        check(listening, text)


# Keys


def test_keys_are_asked_for_once_an_hour_and_for_an_unknown_one_once_a_minute(answers: Answers) -> None:
    clock = [NOW]
    asked = provider(answers, clock)

    def taken(text: str) -> bool:
        try:
            return check_id_token(text, asked, NONCE, NOW)["sub"] == "s1"
        except TokenRefused:
            return False

    good, new = token(claims(answers)), token(claims(answers), OTHER, kid="r2")
    assert taken(good)
    assert taken(good)
    assert answers.asked.count("/jwks") == 1
    answers.keys = [public(OTHER, "r2")]
    assert taken(new), "it is rotated"
    assert answers.asked.count("/jwks") == 2
    for number in range(20):
        assert not taken(token(claims(answers), OTHER, kid=f"made-up-{number}"))
    assert answers.asked.count("/jwks") == 2
    clock[0] += AGAIN
    assert not taken(good), "a key that is withdrawn"
    assert answers.asked.count("/jwks") == 3
    clock[0] += KEPT
    assert taken(new)
    assert answers.asked.count("/jwks") == 4


@pytest.mark.parametrize(
    "more",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": "ftp://127.0.0.1/jwks"},
        {"authorization_endpoint": None},
        {"userinfo_endpoint": "http://10.0.0.1/me"},
    ],
    ids=str,
)
def test_a_configuration_that_is_not_of_the_issuer_or_not_encrypted_is_refused(
    answers: Answers, more: dict[str, Any]
) -> None:
    answers.more = more
    with pytest.raises(ProviderError):
        provider(answers).endpoints()


def test_only_this_machine_is_reached_without_encryption() -> None:
    for url in ("https://login.example.org", "http://127.0.0.1:80", "http://localhost:8080/realm", "http://[::1]:1"):
        assert is_safe(url)
    for url in ("http://login.example.org", "http://127.0.0.1.evil.example", "file:///etc", "https://", "", "https://a@b",
                "http://localhost:x", "//x", "https://x/#y", "http://10.0.0.1"):  # fmt: skip
        assert not is_safe(url), url


# The browser's half


def test_a_flow_is_for_its_browser_its_server_and_ten_minutes(answers: Answers) -> None:
    clock = [NOW]
    flows = OidcFlows(provider(answers).settings, b"k" * 32, "ab12", lambda: clock[0])
    other = OidcFlows(provider(answers).settings, b"l" * 32, "ab12", lambda: clock[0])
    address, cookie = flows.begin("http://127.0.0.1/back", "/runs")
    state = state_of(address)
    for wrong in (lambda: other.take(cookie, state), lambda: flows.take(None, state), lambda: flows.take(cookie, "x")):
        with pytest.raises(Unauthenticated):
            wrong()
    assert flows.take(cookie, state).page == "/runs"
    with pytest.raises(Unauthenticated):
        flows.take(cookie, state)
    address, cookie = flows.begin("http://127.0.0.1/back", "/")
    clock[0] += SECONDS
    with pytest.raises(Unauthenticated):
        flows.take(cookie, state_of(address))


def state_of(address: str) -> str:
    return address.partition("&state=")[2].partition("&")[0]


# People


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("email", "email_verified", "groups", "sub"), JSON)),
    st.sampled_from(["email", "preferred_username", "sub"]),
)
def test_whatever_a_provider_says_a_user_has_a_user_s_name(told: dict[str, Any], claim: Any) -> None:
    chosen = OidcSettings("https://x.example", CLIENT, claim=claim, new_members="viewer")
    state = State()
    apply(state, Event(ProjectSet("default", ""), 1.0, seq=1))
    try:
        admitted = admit(state, person_of({"sub": "s1", **told}, chosen), chosen, 2.0)
    except NotAllowed:
        return
    joined = admitted.events[0].data
    assert isinstance(joined, ProjectMember)
    user = joined.user
    assert USER.fullmatch(user)
    assert user.casefold() not in ("muster", "engine", "system")
    assert claim != "email" or told["email_verified"] is True


# Settings


def test_settings_come_from_the_file_and_before_it_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from the file\n")
    given = {"issuer": "https://login.example.org", "client_id": "a", "client_secret_file": "secret"}
    found = read_oidc(given, tmp_path, {"MUSTER_OIDC_CLIENT_ID": "b", "MUSTER_OIDC_DOMAINS": "A.example, b.example"})
    assert found is not None
    assert (found.client_id, found.domains, found.client_secret()) == ("b", ("a.example", "b.example"), "from the file")
    assert (found.claim, found.new_members, found.shown_name) == ("email", "", "login.example.org")
    assert read_oidc({}, tmp_path, {}) is None
    assert "from the file" not in repr(found)


def test_a_secret_in_a_variable_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "from the environment")
    assert OidcSettings("https://x.example", CLIENT).client_secret() == "from the environment"


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://login.example.org"}, {"issuer": ""}, {"client_id": ""}, {"claim": "name"},
        {"scopes": ["email"]},
        {"new_members": "admin"}, {"client_secret": "x"}, {"client_secret_file": "none"}, {"domains": ["@x"]},
        {"public_url": "http://muster.example.org"}, {"public_url": "https://x.example/path"}, {"group_claim": ""},
        {"roles": ["ml=language"]}, {"roles": ["ml=language:owner"]},
        {"scopes": ["openid", "a b"]}, {"ca_file": "/nowhere"}, {"issuer": 7},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_can_not_work_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    usual = {"issuer": "https://login.example.org", "client_id": "a"}
    assert read_oidc(usual, tmp_path, {}) is not None
    with pytest.raises(ConfigError):
        read_oidc({**usual, **wrong}, tmp_path, {})
