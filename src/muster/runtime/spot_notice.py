"""Notices that a spot machine is taken away soon: from a file, or from the metadata service of a cloud.

Sources, as `spot_notices` of the server's `config.toml` has them:

    file:/run/spot   the file exists; its content may be the seconds that are left, else it is `FILE_SECONDS`
    aws, gcp, azure  the cloud's own service; `aws=http://127.0.0.1:8000` asks another address

A source that does not answer, or answers with something else, is no notice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from muster.runtime.http_connection import HttpConnection

FILE_EVERY: Final = 1.0  # seconds between two looks at a file
CLOUD_EVERY: Final = 5.0  # seconds between two questions to a metadata service
ANSWER: Final = 2.0  # seconds for its answer
FILE_SECONDS: Final = 120.0  # of notice, if the file does not say
GCP_SECONDS: Final = 30.0  # of notice, by Google's documentation
LEAST: Final = 1.0  # seconds of notice, whatever the source says
METADATA: Final = {
    "aws": "http://169.254.169.254",
    "gcp": "http://metadata.google.internal",
    "azure": "http://169.254.169.254",
}
_AWS_TOKEN: Final = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}

Ask = Callable[[str, str, dict[str, str]], "tuple[int, bytes]"]  # method, path, headers


class Notice(NamedTuple):
    source: str
    deadline: float  # monotonic


class SpotWatch:
    """A thread that looks until there is a notice. `wake` is called then."""

    def __init__(self, sources: Sequence[str], wake: Callable[[], None]) -> None:
        self.notice: Notice | None = None
        self._sources, self._wake = tuple(sources), wake
        self._stopped = threading.Event()

    def start(self) -> None:
        if self._sources:
            threading.Thread(target=self._run, name="spot", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        due = dict.fromkeys(self._sources, 0.0)
        while not self._stopped.wait(max(0.0, min(due.values()) - time.monotonic())):
            for source in self._sources:
                if due[source] > time.monotonic():
                    continue
                left = seconds_left(source)
                if left is not None:
                    self.notice = Notice(source, time.monotonic() + max(LEAST, left))
                    self._wake()
                    return
                due[source] = time.monotonic() + (FILE_EVERY if source.startswith("file:") else CLOUD_EVERY)


def seconds_left(source: str) -> float | None:
    """Seconds until the machine is taken away; None if there is no notice."""
    kind, _, address = source.partition(":" if source.startswith("file:") else "=")
    try:
        return _from_file(Path(address)) if kind == "file" else _from_cloud(kind, address or METADATA[kind])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _from_file(path: Path) -> float | None:
    try:
        text = path.read_text(errors="replace")[:100].strip()
    except FileNotFoundError:
        return None
    try:
        return float(text)
    except ValueError:
        return FILE_SECONDS


def _from_cloud(kind: str, address: str) -> float | None:
    url = urlsplit(address)
    connection = HttpConnection(url.hostname or "", url.port, ANSWER)
    try:
        return _CLOUDS[kind](lambda method, path, headers: connection.request(method, path, headers))
    finally:
        connection.close()


def _aws(ask: Ask) -> float | None:
    status, token = ask("PUT", "/latest/api/token", _AWS_TOKEN)
    headers = {"X-aws-ec2-metadata-token": token.decode("ascii")} if status == 200 else {}
    status, body = ask("GET", "/latest/meta-data/spot/instance-action", headers)
    if status != 200:
        return None
    told = json.loads(body)
    return _until(told["time"], "%Y-%m-%dT%H:%M:%SZ") if told["action"] in ("terminate", "stop", "hibernate") else None


def _gcp(ask: Ask) -> float | None:
    status, body = ask("GET", "/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return GCP_SECONDS if status == 200 and body.strip().upper() == b"TRUE" else None


def _azure(ask: Ask) -> float | None:
    status, body = ask("GET", "/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    if status != 200:
        return None
    found = [event for event in json.loads(body)["Events"] if event.get("EventType") == "Preempt"]
    moments = [event.get("NotBefore") for event in found]
    return min((_until(each, "%a, %d %b %Y %H:%M:%S GMT") if each else 0.0 for each in moments), default=None)


def _until(moment: str, form: str) -> float:
    """Seconds from now until a time of the cloud, in UTC."""
    timegm = import_module("calendar").timegm  # every launcher would import it, and hardly one needs it
    return float(timegm(time.strptime(moment, form))) - time.time()


_CLOUDS: Final[dict[str, Callable[[Ask], float | None]]] = {"aws": _aws, "gcp": _gcp, "azure": _azure}
