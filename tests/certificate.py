"""A certificate of our own for tests with TLS."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def self_signed(folder: Path, host: str | None = None, days: tuple[float, float] = (-1, 1)) -> Path:
    """A key and a certificate for 127.0.0.1, or for a host name, in one file; `days`: from and until, from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster")])
    now = datetime.datetime.now(datetime.UTC)
    named = x509.DNSName(host) if host else x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    address = x509.SubjectAlternativeName([named])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = folder / "server.pem"
    path.write_bytes(private + made.public_bytes(Encoding.PEM))
    return path
