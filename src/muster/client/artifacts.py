"""The part of the client that transfers content: uploads and downloads of artifacts, and the code of a submission."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from muster.client.snapshot import take
from muster.core.errors import Invalid, MusterError, NotFound, Unavailable
from muster.track.paths import check_path

if TYPE_CHECKING:
    from muster.client.http import Transport

Doc = dict[str, Any]  # JSON as the API documents it
BLOCK: Final = 1 << 20  # bytes
_SMALL: Final = 256 << 10  # bytes: smaller files are sent together
_BUNDLE: Final = 8 << 20
_BUNDLED: Final = 500  # files
_LANES: Final = 4  # parallel uploads
_ASKED: Final = 10_000  # maximum digests in one request
_PATIENCE: Final = 60.0  # seconds without a byte


class ArtifactCalls:
    """Every download is checked against its digest; the file is complete or does not exist."""

    _transport: Transport

    def artifacts(self, ref: str | int, prefix: str = "") -> list[Doc]:
        """All files of a run at or under a path: path, digest, bytes, kind, time, attempt and description."""
        return list(self._transport.call("GET", _path(ref), params={"prefix": prefix, "flat": True})["files"])

    def artifact_folder(self, ref: str | int, prefix: str = "") -> Doc:
        """One level: "files", and "folders" with the number of files and bytes in each."""
        return dict(self._transport.call("GET", _path(ref), params={"prefix": prefix}))

    def put_artifact(
        self,
        ref: str | int,
        file: str | Path,
        path: str | None = None,
        *,
        kind: str = "file",
        **about: Any,
    ) -> Doc:
        """Uploads a file, unless the server already has its content, and adds it to a run under a name.

        `about`: step, about (a sentence); of a checkpoint also format, files, shards, world and load (how to load it).
        """
        source = Path(file).expanduser()
        try:
            with source.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise NotFound(f"{source} can't be read: {error.strerror}.", "Name a file.") from None
        self.upload({digest: str(source)})
        params = {"digest": digest, "kind": kind, **about}
        return dict(self._transport.send_content("PUT", _path(ref, path or source.name), b"", 0, params))

    def get_artifact(self, ref: str | int, path: str, to: str | Path) -> Path:
        """Downloads one file to `to`, or into `to` if that is a folder."""
        target = Path(to).expanduser()
        target = target / path.rpartition("/")[2] if target.is_dir() else target
        with self._transport.open(_path(ref, path), {}, {}, _PATIENCE) as response:
            digest = response.headers.get("ETag", "").strip('"')
            _save(response.iter_bytes(BLOCK), target, digest)
        return target

    def read_artifact(self, ref: str | int, path: str) -> bytes:
        with self._transport.open(_path(ref, path), {}, {}, _PATIENCE) as response:
            return b"".join(response.iter_bytes(BLOCK))

    def remove_artifact(self, ref: str | int, path: str) -> Doc:
        """Removes a file, or a folder with everything in it."""
        return dict(self._transport.call("DELETE", _path(ref, path)))

    def collect(self, dry_run: bool = False) -> Doc:
        """Removes what retention no longer keeps, and content without references: "projects", "blobs" and "bytes"."""
        return dict(self._transport.call("POST", "/v1/artifacts/collect", params={"dry_run": dry_run}))

    def code(self, ref: str | int) -> Doc:
        """The snapshot of a run's code: "tree" and "diff" by digest, "files" {path: [sha256, bytes, mode]}."""
        return dict(self._transport.call("GET", f"/v1/runs/{_part(ref)}/code"))

    def get_content(self, digest: str, run: str, to: Path) -> None:
        """Downloads content that a run refers to."""
        with self._transport.open(f"/v1/blobs/{digest}", {"run": run}, {}, _PATIENCE) as response:
            _save(response.iter_bytes(BLOCK), to, digest)

    def upload(self, content: Mapping[str, str | bytes]) -> None:
        """Sends what the server lacks: digest → the file with that content, or the bytes."""
        digests = list(content)
        for start in range(0, len(digests), _ASKED):
            body = {"digests": digests[start : start + _ASKED]}
            missing = self._transport.call("POST", "/v1/blobs/missing", body=body, key="asked")["missing"]
            with ThreadPoolExecutor(_LANES, "muster-upload") as lanes:
                list(lanes.map(self._send_some, _bundles({digest: content[digest] for digest in missing})))

    def capture(self, workdir: Path) -> Doc | None:
        """Uploads the code in this folder and returns its description for a submission. Never raises."""
        code: Doc = {}
        for _ in range(2):  # again if a file changed between the scan and the upload
            try:
                made = take(workdir, self._transport.home / "cache")
                code = made.code
                if code["tree"] and self._whole(code["tree"]):
                    made.content = {digest: data for digest, data in made.content.items() if digest == code["diff"]}
                tree = made.content.pop(code["tree"], None)
                self.upload(made.content)
                self.upload({code["tree"]: tree} if tree is not None else {})  # last: a stored tree is complete
                return code
            except (MusterError, OSError) as error:
                why = error.message if isinstance(error, MusterError) else str(error)
                code = {**code, "tree": "", "diff": "", "files": 0, "bytes": 0}
                code["notes"] = [*code.get("notes", ()), f"the snapshot could not be kept: {why}"[:500]]
                if not isinstance(error, Invalid):
                    break
        return code

    def _whole(self, tree: str) -> bool:
        body = {"digests": [], "tree": tree}
        return bool(self._transport.call("POST", "/v1/blobs/missing", body=body, key="asked")["tree"])

    def _send_some(self, some: Mapping[str, str | bytes]) -> None:
        if len(some) > 1 or all(isinstance(data, bytes) and len(data) < _SMALL for data in some.values()):
            parts = [(digest, _bytes(data)) for digest, data in some.items()]
            body = b"".join(part for digest, data in parts for part in (f"{digest}{len(data):08x}".encode(), data))
            self._transport.send_content("POST", "/v1/blobs/bundle", body, len(body))
            return
        for digest, data in some.items():
            if isinstance(data, bytes):
                self._transport.send_content("PUT", f"/v1/blobs/{digest}", data, len(data))
            else:
                size = os.stat(data).st_size  # noqa: PTH116  (a path as text)
                self._transport.send_content("PUT", f"/v1/blobs/{digest}", partial(_blocks, data), size)


def _bundles(content: Mapping[str, str | bytes]) -> Iterator[dict[str, str | bytes]]:
    """Small contents together, large ones alone."""
    small: dict[str, str | bytes] = {}
    size = 0
    for digest, data in content.items():
        length = len(data) if isinstance(data, bytes) else os.stat(data).st_size  # noqa: PTH116
        if length > _SMALL:
            yield {digest: data}
            continue
        small[digest], size = data, size + length
        if size > _BUNDLE or len(small) == _BUNDLED:
            yield small
            small, size = {}, 0
    if small:
        yield small


def _bytes(data: str | bytes) -> bytes:
    return data if isinstance(data, bytes) else Path(data).read_bytes()


def _blocks(file: str) -> Iterator[bytes]:
    with Path(file).open("rb", buffering=0) as opened:
        while data := opened.read(BLOCK):
            yield data


def _save(blocks: Iterator[bytes], target: Path, digest: str) -> None:
    """Writes to a temporary file first; it replaces the target when it is complete and its digest is right."""
    found = hashlib.sha256()
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for data in blocks:
                found.update(data)
                file.write(data)
        if found.hexdigest() != digest:
            raise Unavailable(
                f"{target.name}: what came has the SHA-256 {found.hexdigest()}; {digest} was expected.",
                "Try again. If it stays so, the server's copy is damaged: put it back from a backup.",
            )
        temporary.replace(target)
    except OSError as error:
        raise Invalid(f"{target} can't be written: {error.strerror}.", "Choose another place.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _path(ref: str | int, *path: str) -> str:
    parts: Sequence[str] = [quote(check_path(one), safe="/") for one in path]
    return "/".join([f"/v1/runs/{_part(ref)}/artifacts", *parts])


def _part(ref: str | int) -> str:
    return quote(str(ref), safe="")
