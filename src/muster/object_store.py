"""Opens object storage by its address: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage.

Artifacts and checkpoints are stored there. It needs obstore, an extra. Credentials, endpoints and regions come from
where each provider's own tools take them: the environment, an instance role, a workload identity.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES: Final = ("s3", "gs", "az")
FORMS: Final = "s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
TRIES: Final = 7
TIMEOUT: Final = timedelta(minutes=5)  # of one request with its body
_ACCOUNTS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or the machine's role, AWS_REGION, and AWS_ENDPOINT_URL for a "
    "server other than AWS",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or the machine's service account",
    "az": "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or a managed identity",
}
_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_QUERY: Final = re.compile(r"\?\S*")
_CAUSE: Final = re.compile(r'message: "([^"]{1,300})"')
_ANSWER: Final = re.compile(r"<(?:Code|Message)>([^<\n]{1,300})")


class ObjectStoreError(Exception):
    """What went wrong with an object store, and a hint."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def open_object_store(address: str, **options: Any) -> ObjectStore:
    """Opens s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. `options`: see obstore."""
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra
        from obstore.store import from_url  # noqa: PLC0415
    except ModuleNotFoundError:
        message = f"{address}: object storage needs a package that is not installed."
        raise ObjectStoreError(message, "Run `pip install 'muster-ml[objects]'`, or name a folder.") from None
    scheme, _, rest = address.partition("://")
    place = [part for part in rest.split("/") if part]
    if scheme not in SCHEMES or not place:
        raise ObjectStoreError(f"{address!r} is no address of object storage.", f"Write it as {FORMS}.")
    limits = {"max_retries": TRIES - 1, "retry_timeout": TRIES * TIMEOUT}
    client = {"allow_http": _endpoint(address).startswith("http://"), "timeout": TIMEOUT}
    try:
        return from_url(
            f"{scheme}://{'/'.join(place)}", **{"client_options": client, "retry_config": limits, **options}
        )
    except (BaseError, ValueError) as error:
        raise _error(address, error) from None


@contextmanager
def object_store_errors(address: str) -> Iterator[None]:
    """Failures of an object store as errors of ours, with where its credentials come from.

    An object that may be missing is a FileNotFoundError, to be caught inside."""
    from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        # Without the cause: its text has the whole answer and the whole URL, and so perhaps keys and signatures.
        raise _error(address, error) from None


def _endpoint(address: str) -> str:
    """The server that the environment names; empty for the provider's own."""
    for name in _ENDPOINTS[address[:2]]:
        if given := os.environ.get(name, ""):
            parts = urlsplit(given)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ObjectStoreError(f"{address}: {name} is {given!r}.", "Write http://host:port or https://host.")
            return given
    return ""


def _error(address: str, error: BaseException) -> ObjectStoreError:
    text, _, debug = str(error).partition("\n\nDebug source")
    first, _, answer = text.partition("<")
    words = [_QUERY.sub("", first.partition("\n")[0]).rstrip(" :")[:500], *_ANSWER.findall(answer)[:2]]
    if "HTTP error" in first:
        words += _CAUSE.findall(debug)[-1:]
    hint = f"Check {_ACCOUNTS[address[:2]]}, then try again."
    return ObjectStoreError(f"{address}: {': '.join(words).rstrip('.')}.", hint)
