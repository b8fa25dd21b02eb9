"""Image registries that the server may ask: the digest and the size of an image, over the OCI distribution API.

    [registries."registry.example:5000"]
    user = "robot"                          # optional
    password_env = "REGISTRY_PASSWORD"      # the variable with its password
    token_hosts = ["auth.registry.example"] # where its tokens come from, if not from itself
    platform = "linux/amd64"                # of a list of images for several platforms
    deadline = "5s"
    ca_file = "/etc/company-ca.pem"
    insecure = false                        # http, also on another machine
    keys = ["/etc/muster/cosign.pub"]       # images have to be signed with one of these keys

A job file names an image; the server asks no address that these settings don't name, follows no redirect, and uses no
proxy of its environment.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx

from muster.certificates import trusting
from muster.control.delivery import variable
from muster.control.image_signature import read_key
from muster.core.config import Table
from muster.core.errors import ConfigError
from muster.core.image_ref import DIGEST, HUB, ImageRef

MANIFEST_MAX: Final = 4 << 20  # bytes, as registries allow
TOKEN_MAX: Final = 64 << 10
_HUB_URL: Final = "https://registry-1.docker.io"
_HUB_TOKENS: Final = ("auth.docker.io",)
_HOST: Final = re.compile(r"[a-z0-9.\[\]:-]+(:[0-9]+)?")
_PLATFORM: Final = re.compile(r"[a-z0-9]+/[a-z0-9]+(/[a-z0-9.]+)?")
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_PARAMETER: Final = re.compile(r'([a-zA-Z_]+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Registry:
    name: str
    user: str = ""
    password_env: str = ""
    token_hosts: tuple[str, ...] = ()
    platform: str = "linux/amd64"
    deadline: float = 5.0
    ca_file: str = ""
    insecure: bool = False
    keys: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        if self.name == HUB:
            return _HUB_URL
        return f"{'http' if self.insecure else 'https'}://{self.name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a registry has under a name. `size` in bytes is of the image for one platform, compressed."""

    digest: str
    size: int


class RegistryError(Exception):
    """The registry did not answer, or not what was asked; the text says why."""


class NotThere(RegistryError):
    """The registry has nothing of this name, or doesn't show it."""


def read_registries(given: object) -> dict[str, Registry]:
    """Reads `registries` of the server's settings, by host. Raises ConfigError with every mistake."""
    table = Table("", {"registries": given})
    found = [_registry(name, one) for name, one in table.tables("registries").items()]
    table.finish()
    return {one.name: one for one in found}


@dataclass(slots=True)
class RegistryClient:
    """The requests for one image, within one deadline. Use it in a `with`."""

    registry: Registry
    repository: str
    _http: httpx.Client = field(init=False)
    _until: float = field(init=False)
    _authorization: str = field(init=False, default="")

    def __enter__(self) -> RegistryClient:
        verify = trusting(self.registry.ca_file or None) if self.registry.url.startswith("https:") else False
        self._until = time.monotonic() + self.registry.deadline
        self._http = httpx.Client(
            timeout=self.registry.deadline, follow_redirects=False, trust_env=False, verify=verify
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def manifest(self, reference: str) -> tuple[str, dict[str, Any]]:
        """The digest of a manifest, computed from its bytes, and the manifest."""
        accept = ", ".join((*_INDEXES, *_MANIFESTS))
        raw = self.get(f"manifests/{reference}", MANIFEST_MAX, accept)
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        if DIGEST.fullmatch(reference) and digest != reference:
            raise RegistryError(f"{self.registry.name} sent other bytes than those of {reference}")
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RegistryError(f"{self.registry.name} sent a manifest that is not JSON")
        return digest, found

    def blob(self, digest: str, most: int) -> bytes:
        raw = self.get(f"blobs/{digest}", most, "*/*")
        if f"sha256:{hashlib.sha256(raw).hexdigest()}" != digest:
            raise RegistryError(f"{self.registry.name} sent other bytes than those of {digest}")
        return raw

    def get(self, path: str, most: int, accept: str) -> bytes:
        url = f"{self.registry.url}/v2/{self.repository}/{path}"
        status, raw, challenge = self._get(url, most, {"Accept": accept, **self._authorized()})
        if status == httpx.codes.UNAUTHORIZED and not self._authorization:
            self._authorization = self._answer(challenge)
            status, raw, _ = self._get(url, most, {"Accept": accept, **self._authorized()})
        if status in (httpx.codes.NOT_FOUND, httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise NotThere(
                f"{self.registry.name} has no {self.repository} with {path.partition('/')[2]}, or does not show it"
            )
        if status != httpx.codes.OK:
            raise RegistryError(f"{self.registry.name} answered {status}")
        return raw

    def _get(self, url: str, most: int, headers: Mapping[str, str]) -> tuple[int, bytes, str]:
        try:
            with self._http.stream("GET", url, headers={"Accept-Encoding": "identity", **headers}) as answer:
                found = bytearray()
                for chunk in answer.iter_raw(64 << 10):
                    found += chunk
                    if len(found) > most:
                        raise RegistryError(f"{self.registry.name} sent more than {most:,} bytes")
                    self._check_time()
                return answer.status_code, bytes(found), answer.headers.get("WWW-Authenticate", "")
        except (httpx.TransportError, httpx.InvalidURL, ValueError) as error:
            why = "did not answer in time" if isinstance(error, httpx.TimeoutException) else "can't be reached"
            raise RegistryError(f"{self.registry.name} {why}") from error

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise RegistryError(f"{self.registry.name} did not answer within {self.registry.deadline:g} s")

    def _authorized(self) -> Mapping[str, str]:
        return {"Authorization": self._authorization} if self._authorization else {}

    def _answer(self, challenge: str) -> str:
        """The authorization that the registry asks for: the password itself, or a token that is got for it."""
        scheme, _, rest = challenge.partition(" ")
        given = dict(_PARAMETER.findall(rest))
        if scheme.lower() == "basic" and self.registry.user:
            return self._basic()
        if scheme.lower() != "bearer" or "realm" not in given:
            raise NotThere(f"{self.registry.name} asks for a password: give it in its settings")
        realm = urlsplit(given["realm"])
        self._check_realm(realm.scheme, realm.netloc)
        query = {"service": given.get("service", ""), "scope": f"repository:{self.repository}:pull"}
        url = f"{realm.scheme}://{realm.netloc}{realm.path}?{urlencode(query)}"
        status, raw, _ = self._get(url, TOKEN_MAX, {"Authorization": self._basic()} if self.registry.user else {})
        if status != httpx.codes.OK:
            raise NotThere(f"{realm.hostname} gave no token for {self.repository}: {status}")
        try:
            found = json.loads(raw)
            token = found.get("token") or found["access_token"]
        except (ValueError, KeyError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise RegistryError(f"{realm.hostname} answered without a token")
        return f"Bearer {token}"

    def _check_realm(self, scheme: str, place: str) -> None:
        """The registry says where its tokens are; it may not send the server, with a password, anywhere else."""
        known = {self.registry.name, *self.registry.token_hosts, *(_HUB_TOKENS if self.registry.name == HUB else ())}
        if place not in known:
            raise RegistryError(
                f"{self.registry.name} sends for its tokens to {place!r}, which its `token_hosts` do not name"
            )
        if scheme != "https" and not self.registry.insecure:
            raise RegistryError(f"{self.registry.name} sends for its tokens to an address without https")

    def _basic(self) -> str:
        pair = f"{self.registry.user}:{variable(self.registry.password_env)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


def look_up(client: RegistryClient, image: ImageRef) -> Manifest:
    """The digest that the name stands for, and the size of the image for the registry's platform."""
    digest, found = client.manifest(image.reference)
    if "manifests" in found:
        chosen = _of_platform(found["manifests"], client.registry.platform)
        if chosen is None:
            raise RegistryError(f"{image.whole} has no image for {client.registry.platform}")
        _, found = client.manifest(chosen)
    return Manifest(digest, _size(found, image))


def _of_platform(entries: object, platform: str) -> str | None:
    for one in entries if isinstance(entries, list) else ():
        about = one.get("platform") if isinstance(one, dict) else None
        if not isinstance(about, dict):
            continue
        words = [about.get("os"), about.get("architecture"), about.get("variant")]
        named = "/".join(str(word) for word in words[: platform.count("/") + 1])
        if named == platform and DIGEST.fullmatch(str(one.get("digest"))):
            return str(one["digest"])
    return None


def _size(manifest: Mapping[str, Any], image: ImageRef) -> int:
    layers, config = manifest.get("layers"), manifest.get("config")
    parts = [*layers, config] if isinstance(layers, list) else []
    sizes = [one.get("size") if isinstance(one, dict) else None for one in parts]
    if not sizes or not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in sizes):
        raise RegistryError(f"the manifest of {image.whole} does not say how large its layers are")
    return sum(size for size in sizes if size is not None)


def _registry(name: str, table: Table) -> Registry:
    deadline = table.duration("deadline", 5.0, 0.0, 30.0)
    found = Registry(
        name.lower(), table.text("user"), table.text("password_env"), table.texts("token_hosts"),
        table.text("platform", "linux/amd64"), deadline, table.text("ca_file"), table.flag("insecure"),
        table.texts("keys"),
    )  # fmt: skip
    if not _HOST.fullmatch(found.name):
        table.mistakes.add(f"{name!r} is no registry.", 'Write its host, as in [registries."registry.example:5000"].')
    if not _PLATFORM.fullmatch(found.platform):
        table.wrong("platform", "a platform such as `linux/amd64`")
    if bool(found.user) != bool(found.password_env):
        table.mistakes.add(f"{table.where}: a user needs a password.", "Give both `user` and `password_env`.")
    if found.ca_file and not Path(found.ca_file).is_file():
        table.wrong("ca_file", "a file that exists")
    for path in found.keys:
        try:
            read_key(path)
        except ConfigError as error:
            table.mistakes.add(error.message, error.hint)
    table.refuse_others()
    return found
