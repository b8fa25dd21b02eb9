"""Images in a real registry: digests, sizes, lists for platforms, passwords, tokens, signatures; and hostile ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from muster.control.image_signature import read_key
from muster.control.inspection import ask_registry
from muster.control.registries import Registry, read_registries
from muster.core.errors import ConfigError
from registry_kit import USER, WORD, RegistryServer, registry, token_server, with_password


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def of(server: Any, **given: Any) -> Registry:
    return Registry(server.host, insecure=True, **given)


def test_a_tag_has_a_digest_and_a_size(server: RegistryServer) -> None:
    digest = server.push("acme/train", "1.4", [b"x" * 1000, b"y" * 500])
    found = ask_registry(of(server), f"{server.host}/acme/train:1.4")
    assert (found.digest, found.trouble, found.signed) == (digest, "", None)
    assert found.size is not None
    assert 1500 <= found.size < 1600
    by_digest = ask_registry(of(server), f"{server.host}/acme/train@{digest}")
    assert by_digest == found
    moved = server.push("acme/train", "1.4", [b"z"])
    assert ask_registry(of(server), f"{server.host}/acme/train:1.4").digest == moved != digest


def test_a_list_is_measured_for_the_platform_and_named_by_its_own_digest(server: RegistryServer) -> None:
    small, large = server.push("acme/multi", "a", [b"s"]), server.push("acme/multi", "b", [b"l" * 5000])
    listed = server.push_index("acme/multi", "all", {"linux/arm64": small, "linux/amd64": large})
    image = f"{server.host}/acme/multi:all"
    found = ask_registry(of(server), image)
    assert found.digest == listed
    assert found.size is not None
    assert found.size > 5000
    arm = ask_registry(of(server, platform="linux/arm64"), image)
    assert arm.size is not None
    assert arm.size < 100
    assert "no image for linux/s390x" in ask_registry(of(server, platform="linux/s390x"), image).trouble


def test_what_is_not_there_is_told(server: RegistryServer) -> None:
    assert "has no acme/none" in ask_registry(of(server), f"{server.host}/acme/none:1").trouble
    gone = Registry("127.0.0.1:1", insecure=True)
    assert "can't be reached" in ask_registry(gone, "127.0.0.1:1/a:1").trouble
    assert "can't be reached" in ask_registry(replace(of(server), insecure=False), f"{server.host}/a:1").trouble


@pytest.mark.parametrize("kind", ["ed25519", "p256"])
def test_signatures_by_the_settings_keys_count_and_no_others(server: RegistryServer, tmp_path: Path, kind: str) -> None:
    make: Any = Ed25519PrivateKey.generate if kind == "ed25519" else lambda: ec.generate_private_key(ec.SECP256R1())
    ours, theirs, name = make(), make(), f"signed/{kind}"
    path = tmp_path / "cosign.pub"
    path.write_bytes(ours.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    asked, image = of(server, keys=(str(path),)), f"{server.host}/{name}:1"
    digest = server.push(name, "1", mark=kind)
    assert ask_registry(asked, image).signed is False
    server.sign(name, digest, theirs)
    assert ask_registry(asked, image).signed is False, "another key"
    other = server.push(name, "2", mark="other")
    server.sign(name, digest, ours, says=other)
    assert ask_registry(asked, image).signed is False, "a signature of another image"
    server.sign(name, digest, ours)
    assert ask_registry(asked, image).signed is True
    server.push(name, "1", mark="moved")
    assert ask_registry(asked, image).signed is False, "the tag stands for another image now"


def test_keys_of_other_kinds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())):
        path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        with pytest.raises(ConfigError, match="neither"):
            read_key(str(path))
    path.write_text("no key")
    with pytest.raises(ConfigError, match="can't be read"):
        read_key(str(path))


def test_a_registry_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry(tmp_path, with_password(tmp_path)) as locked:
        locked.http.auth = (USER, WORD)  # type: ignore[assignment]
        digest = locked.push("a", "1")
        image = f"{locked.host}/a:1"
        assert "asks for a password" in ask_registry(of(locked), image).trouble
        asked = of(locked, user=USER, password_env="REGISTRY_WORD")
        assert "REGISTRY_WORD is not set" in ask_registry(asked, image).trouble
        monkeypatch.setenv("REGISTRY_WORD", "wrong")
        assert "does not show it" in ask_registry(asked, image).trouble
        monkeypatch.setenv("REGISTRY_WORD", WORD)
        assert ask_registry(asked, image).digest == digest


def test_a_registry_with_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_WORD", WORD)
    with token_server(tmp_path / "tokens") as tokens, registry(tmp_path / "registry", tokens.auth) as locked:
        locked.http.headers["Authorization"] = f"Bearer {tokens.pushing('team/a')}"
        digest = locked.push("team/a", "1")
        image, word = f"{locked.host}/team/a:1", {"user": USER, "password_env": "REGISTRY_WORD"}
        elsewhere = ask_registry(of(locked, **word), image)
        assert "which its `token_hosts` do not name" in elsewhere.trouble
        assert tokens.asked == [], "the password was not sent there"
        found = ask_registry(of(locked, token_hosts=(tokens.host,), **word), image)
        assert (found.digest, found.trouble) == (digest, "")
        assert tokens.asked[0]["scope"] == "repository:team/a:pull"
        assert "gave no token" in ask_registry(of(locked, token_hosts=(tokens.host,)), image).trouble


class Hostile(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.paths.append(self.path)
        status, headers, body = server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hostile() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    server.daemon_threads, server.paths, server.host = True, [], f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "body", "why"),
    [
        (302, {"Location": "http://169.254.169.254/latest"}, b"", "answered 302"),
        (401, {"WWW-Authenticate": 'Bearer realm="http://169.254.169.254/x"'}, b"", "token_hosts"),
        (401, {"WWW-Authenticate": 'Bearer realm="file:///etc/passwd"'}, b"", "token_hosts"),
        (401, {"WWW-Authenticate": "Negotiate"}, b"", "asks for a password"),
        (500, {}, b"", "answered 500"),
        (200, {}, b"[" * 100_000, "not JSON"),
        (200, {}, b"[]", "not JSON"),
        (200, {}, b"{}", "how large"),
        (200, {}, b'{"layers": [{"size": -5}], "config": {"size": 1}}', "how large"),
        (200, {}, b'{"layers": [{"size": true}], "config": {"size": 1}}', "how large"),
        (200, {}, b'{"manifests": [5, {"platform": {"os": "linux", "architecture": "amd64"}, "digest": "../x"}]}',
         "no image for"),
        (200, {}, b"x" * (5 << 20), "more than"),
    ],
)  # fmt: skip
def test_a_hostile_registry_leads_nowhere(hostile: Any, status: int, headers: Any, body: bytes, why: str) -> None:
    hostile.answer = status, headers, body
    found = ask_registry(of(hostile), f"{hostile.host}/a:1")
    assert why in found.trouble
    assert found.digest == ""
    assert hostile.paths == ["/v2/a/manifests/1"]


def test_bytes_that_are_not_those_of_the_digest_are_refused(hostile: Any) -> None:
    hostile.answer = (
        200,
        {"Docker-Content-Digest": "sha256:" + "0" * 64},
        json.dumps({"layers": [], "config": {}}).encode(),
    )
    found = ask_registry(of(hostile), f"{hostile.host}/a@sha256:{'0' * 64}")
    assert "sent other bytes" in found.trouble


def test_settings_of_registries() -> None:
    found = read_registries({"Registry.example:5000": {"token_hosts": ["auth.example"], "deadline": "3s"}})
    assert found["registry.example:5000"].url == "https://registry.example:5000"
    assert read_registries({"docker.io": {}})["docker.io"].url == "https://registry-1.docker.io"
    for given in (
        {"http://x": {}}, {"x/y": {}}, {"x": {"platform": "linux"}}, {"x": {"user": "me"}}, {"x": {"keys": ["/none"]}},
        {"x": {"ca_file": "/none"}}, {"x": {"deadline": "1h"}}, {"x": {"url": "http://elsewhere"}},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            read_registries(given)


def test_the_kit_serves_what_it_says(server: RegistryServer) -> None:
    assert httpx.get(f"http://{server.host}/v2/", trust_env=False).status_code == 200
