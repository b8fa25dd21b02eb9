"""A real image registry (Debian's docker-registry) on loopback, images pushed to it by HTTP, and its tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from components import require
from live import until

USER, WORD = "robot", "word"
_HASH: Final = "$2b$04$OpB7Dzs1VKJ3olQOTPJDZu/R64RfL2nW2CKVPdz8uQahlKFHN862u"  # bcrypt of the word
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"


def sha(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


@dataclass
class RegistryServer:
    host: str
    http: httpx.Client

    def push(self, name: str, tag: str, layers: Sequence[bytes] = (b"layer",), **more: Any) -> str:
        """A small image; returns its digest."""
        config = self.blob(name, json.dumps({"made": more.pop("mark", "")}).encode())
        document = {
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", **self.blob(name, one), **more}
                       for one in layers],
        }  # fmt: skip
        return self.manifest(name, tag, document, MANIFEST)

    def push_index(self, name: str, tag: str, platforms: Mapping[str, str]) -> str:
        """A list of images that are there: platform → digest."""
        manifests = []
        for platform, digest in platforms.items():
            system, _, machine = platform.partition("/")
            about = {"os": system, "architecture": machine}
            manifests.append({"mediaType": MANIFEST, "digest": digest, "size": 1, "platform": about})
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        return self.manifest(name, tag, document, INDEX)

    def manifest(self, name: str, tag: str, document: Mapping[str, Any], kind: str) -> str:
        raw = json.dumps(document).encode()
        self.http.put(f"/v2/{name}/manifests/{tag}", content=raw, headers={"Content-Type": kind}).raise_for_status()
        return sha(raw)

    def blob(self, name: str, raw: bytes) -> dict[str, Any]:
        place = self.http.post(f"/v2/{name}/blobs/uploads/").raise_for_status().headers["Location"]
        glue = "&" if "?" in place else "?"
        kind = {"Content-Type": "application/octet-stream"}
        self.http.put(f"{place}{glue}digest={sha(raw)}", content=raw, headers=kind).raise_for_status()
        return {"digest": sha(raw), "size": len(raw)}

    def sign(self, name: str, digest: str, key: Any, says: str = "") -> None:
        """A signature as cosign writes it. `says`: the digest that its payload names, if not this one."""
        critical = {
            "identity": {"docker-reference": name},
            "image": {"docker-manifest-digest": says or digest},
            "type": "cosign container image signature",
        }
        payload = json.dumps({"critical": critical, "optional": None}).encode()
        made = (
            key.sign(payload, ec.ECDSA(SHA256())) if isinstance(key, ec.EllipticCurvePrivateKey) else key.sign(payload)
        )
        noted = {"dev.cosignproject.cosign/signature": base64.b64encode(made).decode()}
        self.push(name, f"{digest.replace(':', '-')}.sig", [payload], annotations=noted)


@contextmanager
def registry(folder: Path, auth: str = "") -> Iterator[RegistryServer]:
    """`auth`: the section of its configuration, in YAML."""
    require("docker-registry", which("docker-registry") is not None, "Install it: apt-get install docker-registry.")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder / 'data'}}}}}\n"
        f"http: {{addr: '{host}', secret: kit}}\n{auth}"
    )
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log, cwd=folder)
    with httpx.Client(base_url=f"http://{host}", trust_env=False, timeout=60) as http:

        def answers() -> bool:
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            try:
                return http.get("/v2/").status_code in (200, 401)
            except httpx.TransportError:
                return False

        try:
            until(answers, "the registry to answer")
            yield RegistryServer(host, http)
        finally:
            process.kill()
            process.wait(60)


def with_password(folder: Path) -> str:
    """The `auth` of a registry that asks for USER and WORD."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "htpasswd").write_text(f"{USER}:{_HASH}\n")
    return f"auth: {{htpasswd: {{realm: kit, path: {folder / 'htpasswd'}}}}}\n"


@dataclass
class TokenServer:
    """Gives tokens to USER with WORD, for pulling and pushing what is asked for."""

    host: str
    auth: str  # of a registry that takes its tokens
    asked: list[dict[str, str]]
    token: Any

    def pushing(self, name: str) -> str:
        made: str = self.token(name, ["pull", "push"])
        return made


@contextmanager
def token_server(folder: Path) -> Iterator[TokenServer]:
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kit")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(named).issuer_name(named).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(True, None), critical=True).sign(key, SHA256())
    )  # fmt: skip
    (folder / "root.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]

    def token(name: str, actions: list[str]) -> str:
        access = [{"type": "repository", "name": name, "actions": actions}]
        at = int(time.time())
        claims = {
            "iss": "kit", "sub": USER, "aud": "registry", "exp": at + 300, "nbf": at - 60, "iat": at,
            "jti": uuid.uuid4().hex, "access": access,
        }  # fmt: skip
        text = ".".join(
            _url64(json.dumps(one).encode()) for one in ({"typ": "JWT", "alg": "ES256", "x5c": chain}, claims)
        )
        r, s = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(SHA256())))
        return f"{text}.{_url64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            asked.append(query)
            known = f"Basic {base64.b64encode(f'{USER}:{WORD}'.encode()).decode()}"
            self.send_response(200 if self.headers.get("Authorization") == known else 401)
            self.end_headers()
            if self.headers.get("Authorization") == known:
                _, name, _ = query["scope"].split(":")
                self.wfile.write(json.dumps({"token": token(name, ["pull"])}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    host = f"127.0.0.1:{server.server_port}"
    auth = (
        f"auth: {{token: {{realm: 'http://{host}/token', service: registry, issuer: kit, "
        f"rootcertbundle: {folder / 'root.pem'}}}}}\n"
    )
    try:
        yield TokenServer(host, auth, asked, token)
    finally:
        server.shutdown()
        server.server_close()


def _url64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
