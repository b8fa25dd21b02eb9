"""TLS contexts for servers with a certificate of their own, and certificate errors in words; standard library only."""

from __future__ import annotations

import re
import ssl
from typing import Final

_FIRST: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
# OpenSSL's codes of a certificate that was not accepted.
_NOT_YET, _EXPIRED, _NAMES = 9, 10, (62, 64)
TRUST_IT: Final = (
    "Name a file with its issuer's certificate, or with the server's own: MUSTER_CA_FILE, `muster --ca-file FILE`, "
    "or Client(ca_file=FILE)."
)


def first_certificate(text: str) -> str | None:
    """The first certificate of a PEM file, which is the server's own; None if there is none."""
    found = _FIRST.search(text)
    return found[0] + "\n" if found else None


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Accepts certificates of this file's issuers; without one, of the system's."""
    return ssl.create_default_context(cafile=ca_file)


def trusting_only(certificate: str) -> ssl.SSLContext:
    """Accepts this one certificate (PEM) and no other, whatever names are in it.

    For a server of this machine: its home folder says which certificate it serves, and the address is loopback's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # its issuer need not be known
    context.load_verify_locations(cadata=certificate)
    return context


def why_refused(url: str, error: BaseException) -> tuple[str, str] | None:
    """What is wrong with the TLS of a server that answered, and what to do; None if that was not the cause."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    if not isinstance(cause, ssl.SSLCertVerificationError):
        told = f"The server at {url} answers, but not with TLS that this machine understands ({cause.reason or cause})."
        return told, "If it has no certificate, write http:// in its address."
    if cause.verify_code == _EXPIRED:
        hint = "Renew it, and start the server again with the new one (`muster up --tls-cert`); check this clock too."
        return f"The certificate of {url} has expired.", hint
    if cause.verify_code == _NOT_YET:
        return f"The certificate of {url} is not valid yet.", "Check the clocks of this machine and of who made it."
    if cause.verify_code in _NAMES:
        hint = "Use a host name of the certificate in the address, or give the server a certificate for this one."
        return f"The certificate of {url} is for another host: {cause.verify_message}", hint
    return f"The certificate of {url} has an issuer that is not trusted here: {cause.verify_message}.", TRUST_IT
