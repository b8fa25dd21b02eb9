"""Transfers runs between this machine and a server: reads for exporters, and uploads of importers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from muster.api.numbers import number
from muster.client.blocking import complete
from muster.client.client import Client
from muster.core.errors import MusterError
from muster.track.exporters.base import FACTS, Facts, Medium, Series
from muster.track.importers.base import FoundRun, Importer
from muster.track.importers.spool import Content, Encoder
from muster.wire import Batch, Piece, Reply, WorkerExit

BATCH: Final = 1 << 20  # bytes of a stream in one request
_HELD: Final = 32 << 20  # bytes of content held until the records that name them are sent
_POINT: Final = 28  # bytes
_TIMEOUT: Final = 120.0  # seconds without a byte
_REASONS: Final = {"succeeded": "completed", "failed": "user_error", "stopped": "user_stop"}
_DOCUMENTS: Final = ("histogram", "table", "text")  # media whose content is JSON if it was too large for its row

Progress = Callable[[int], None]  # called with the number of bytes sent


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """A run on a server, as an exporter reads it; `facts` comes from `GET /v1/runs/RUN`."""

    client: Client
    facts: Facts
    ranks: bool = True  # including the series of every rank

    def series(self, superseded: bool = False) -> Iterator[Series]:
        listed = self.client.call("GET", f"{_path(self.facts.id)}/metrics")["series"]
        own: set[str] = set()
        for each in listed:
            name, rank = str(each["name"]), int(each["rank"])
            first = name not in own
            own.add(name)
            if first or self.ranks:
                parts = ("standing", "superseded") if superseded else ("standing",)
                for part in parts:
                    found = _points(self.client, self.facts.id, name, rank, part)
                    if part == "standing" or len(found[0]):
                        yield Series(name, None if first else rank, part == "superseded", *found)

    def media(self) -> Iterator[Medium]:
        after = 0
        while after is not None:
            page = self.client.call("GET", f"{_path(self.facts.id)}/media", after=after)
            for raw in page["media"]:
                yield self._medium(raw)
            after = page["next"]

    def _medium(self, raw: dict[str, Any]) -> Medium:
        data, content = raw.get("data"), None
        if data is None and "digest" in raw:
            content = self.client.read(f"/v1/blobs/{raw['digest']}", {"run": self.facts.id}, _TIMEOUT)
            if raw["kind"] in _DOCUMENTS and raw.get("mime") == "application/json":
                with suppress(ValueError):
                    data, content = json.loads(content), None
        known = {name: raw[name] for name in ("name", "kind", "step", "time", "rank", "attempt")}
        return Medium(**known, mime=str(raw.get("mime") or ""), data=data, content=content)


def facts_of(view: Mapping[str, Any]) -> Facts:
    """From the API's view of a run."""
    known = {name: view[name] for name in FACTS if name in view}
    metrics = {name: number(value) for name, value in (view.get("metrics") or {}).items()}
    return Facts(**known, params=view.get("params") or {}, tags=view.get("tags") or {}, metrics=metrics)


@dataclass(slots=True)
class Imported:
    """The result for one run. `new` is False for a run that the server already had, unchanged."""

    id: str
    name: str
    new: bool
    points: int = 0
    media: int = 0
    problems: list[str] = field(default_factory=list)


def send_run(client: Client, importer: Importer, found: FoundRun, project: str, progress: Progress) -> Imported:
    """Imports one run. Sent again, it continues where it was cut off; an unchanged run on the server is left alone."""
    body: dict[str, Any] = {
        "tool": found.tool,
        "key": found.key,
        "fingerprint": found.fingerprint(),
        "project": project,
    }
    body |= {"name": found.name[-500:], "purpose": found.purpose[:8000], "place": str(found.path.absolute())[-4000:]}
    body |= {"created_at": found.created_at, "parent": found.parent}
    begun = complete(client._transport.call("POST", "/v1/runs/import", body=body, key=found.key))
    made = Imported(begun["id"], found.name, not begun["done"])
    if begun["done"]:
        return made
    stream = _Stream(client, begun["id"], begun["attempt"])
    encoder = Encoder(found.created_at)
    for piece in encoder.pieces(importer.read(found)):
        if piece.apart:
            stream.flush()
        stream.add(piece.data, piece.contents)
        made.points += piece.points
        made.media += len(piece.contents)
        progress(len(piece.data))
    stream.finish(encoder)
    made.problems = [f"{what} (x{count})" if count > 1 else what for what, count in encoder.problems.items()]
    return made


@dataclass(slots=True)
class _Stream:
    """The bytes of one import; only those that the server lacks are sent."""

    client: Client
    run: str
    attempt: int
    offset: int = 0  # of the waiting bytes
    acked: int | None = None  # the offset that the server has
    waiting: list[bytes] = field(default_factory=list)
    size: int = 0
    contents: dict[str, str | bytes] = field(default_factory=dict)
    held: int = 0  # their size in bytes

    def add(self, data: bytes, contents: tuple[Content, ...]) -> None:
        if self.acked is None:
            self._send(Batch(0, "running"))
        if self.size + len(data) > BATCH or self.held > _HELD:
            self.flush()
        self.waiting.append(data)
        self.size += len(data)
        if self.offset + self.size > (self.acked or 0):
            self.contents |= {one.digest: one.given if one.given is not None else str(one.file) for one in contents}
            self.held += sum(one.size for one in contents)

    def flush(self) -> None:
        if not self.size:
            return
        end = self.offset + self.size
        if end > (self.acked or 0):
            self._upload()
            self._send(Batch(0, "running", pieces=(Piece(0, "spool", self.offset, b"".join(self.waiting)),)))
        self.offset, self.waiting, self.size = end, [], 0

    def finish(self, encoder: Encoder) -> None:
        self.flush()
        ended = encoder.ended
        if ended is not None:
            exit_ = WorkerExit(ended.outcome, _REASONS[ended.outcome], ended.detail, ended.time)
            self._send(Batch(0, "ended", exit_))

    def _upload(self) -> None:
        """Uploads contents before the records that name them."""
        if self.contents:
            self.client.upload(self.contents)
            self.contents, self.held = {}, 0

    def _send(self, batch: Batch) -> None:
        body = batch.encode()
        path = f"{_path(self.run)}/import"
        sending = self.client._transport.send_content("POST", path, body, len(body), {"attempt": self.attempt})
        answer = complete(sending)
        self.acked = Reply.from_json(json.dumps(answer)).acked.get((0, "spool"), 0)


def _points(client: Client, run: str, name: str, rank: int, part: str) -> tuple[Any, Any, Any, Any]:
    path = f"{_path(run)}/points/{quote(name, safe='')}"
    body = client.read(path, {"rank": rank, "part": part}, _TIMEOUT)
    count = len(body) // _POINT
    if len(body) != count * _POINT:
        raise MusterError(f"The points of {name!r} of {run} came cut off.", "Try again.")
    return (
        np.frombuffer(body, "<i8", count),
        np.frombuffer(body, "<f8", count, 8 * count),
        np.frombuffer(body, "<f8", count, 16 * count),
        np.frombuffer(body, "<i4", count, 24 * count),
    )


def _path(run: str) -> str:
    return f"/v1/runs/{quote(run, safe='')}"
