"""Host names under which the server accepts requests. Protects it from web pages that point a name of theirs at it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from muster.server.settings import Settings


class Hosts:
    """IP addresses are always allowed, since only a name can be made to point elsewhere. `*.` allows a whole zone."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.strip().rstrip(".").lower() for name in names} - {""}
        self._zones = tuple(name[1:] for name in self._names if name.startswith("*."))

    @classmethod
    def of(cls, settings: Settings) -> Hosts:
        advertised = [urlsplit(url).hostname or "" for url in settings.advertised]
        names = ["localhost", socket.gethostname(), settings.host, *advertised, *settings.allowed_hosts.split(",")]
        if settings.provider is not None:
            names.append(urlsplit(settings.provider.public_url).hostname or "")
        return cls([*names, *(certificate_names(Path(settings.tls_cert)) if settings.tls_cert else ())])

    def allow(self, header: str) -> bool:
        """Whether a Host header is allowed, with any port."""
        name = without_port(header.strip().lower()).rstrip(".")
        if _is_address(name) or name in self._names or "*" in self._names:
            return bool(name)
        return name.endswith(self._zones) if self._zones else False


def certificate_names(path: Path) -> list[str]:
    """The DNS names of the first certificate in a file; none if it can't be read, which starting with TLS reports."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    return list(names.get_values_for_type(x509.DNSName))


def without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdigit() or not port) else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
