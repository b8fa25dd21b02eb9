"""Calls that transfer content: uploads and downloads of artifacts, and the code of a submission."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote

import httpx

from muster.client.connection import Anyone, Doc, run_path
from muster.client.leaks import find_leaks, only_removed
from muster.client.snapshot import Snapshot, take
from muster.core.errors import Invalid, MusterError, NotFound, Refused, Unavailable
from muster.track.paths import check_path

if TYPE_CHECKING:
    from muster.api.artifacts import ArtifactList, ArtifactsRemoved, ArtifactView, CodeFiles, Collection

BLOCK: Final = 1 << 20  # bytes
_HASHED: Final = 8 << 20  # bytes in one step
_SMALL: Final = 256 << 10  # bytes: smaller files are sent together
_BUNDLE: Final = 8 << 20
_BUNDLED: Final = 500  # files
_LANES: Final = 4  # parallel uploads
_ASKED: Final = 10_000  # maximum digests in one request
_TIMEOUT: Final = 60.0  # seconds without a byte


async def artifacts(to: Anyone, /, ref: str | int, prefix: str = "") -> list[ArtifactView]:
    """All files of a run at or under a path: path, digest, bytes, kind, time, attempt and description."""
    return (await to._transport.call("GET", _path(ref), params={"prefix": prefix, "flat": True}))["files"]


async def artifact_folder(to: Anyone, /, ref: str | int, prefix: str = "") -> ArtifactList:
    """One level: "files", and "folders" with the number of files and bytes in each."""
    return await to._transport.call("GET", _path(ref), params={"prefix": prefix})


async def put_artifact(
    to: Anyone,
    /,
    ref: str | int,
    file: str | Path,
    path: str | None = None,
    *,
    kind: str = "file",
    **about: Any,
) -> ArtifactView:
    """Uploads a file, unless the server already has its content, and adds it to a run under a name.

    `about`: step, about (a sentence); of a checkpoint also format, files, shards, world and load (how to load it).
    """
    source = Path(file).expanduser()
    try:
        digest = await _digest(to, source)
    except OSError as error:
        raise NotFound(f"{source} can't be read: {error.strerror}.", "Name a file.") from None
    await upload(to, {digest: str(source)})
    params = {"digest": digest, "kind": kind, **about}
    return await to._transport.send_content("PUT", _path(ref, path or source.name), b"", 0, params)


async def get_artifact(at: Anyone, /, ref: str | int, path: str, to: str | Path, *, why: str | None = None) -> Path:
    """Downloads one file to `to`, or into `to` if that is a folder; it is complete by its digest, or not there.

    `why`: the reason for which an administrator downloads what is quarantined.
    """
    target = Path(to).expanduser()
    target = target / path.rpartition("/")[2] if target.is_dir() else target
    given = {"why": why} if why is not None else {}
    async with at._transport.open(_path(ref, path), given, _TIMEOUT) as response:
        await _save(at, response, target, response.headers.get("ETag", "").strip('"'))
    return target


async def read_artifact(to: Anyone, /, ref: str | int, path: str) -> bytes:
    return await to._transport.read(_path(ref, path), {}, _TIMEOUT)


async def remove_artifact(to: Anyone, /, ref: str | int, path: str) -> ArtifactsRemoved:
    """Removes a file, or a folder with everything in it."""
    return await to._transport.call("DELETE", _path(ref, path))


async def collect(to: Anyone, /, dry_run: bool = False) -> Collection:
    """Removes what retention no longer keeps, and content without references: "projects", "blobs" and "bytes"."""
    return await to._transport.call("POST", "/v1/artifacts/collect", params={"dry_run": dry_run})


async def code(to: Anyone, /, ref: str | int) -> CodeFiles:
    """The snapshot of a run's code: "tree" and "diff" by digest, "files" {path: [sha256, bytes, mode]}."""
    return await to._transport.call("GET", run_path(ref, "code"))


async def get_content(at: Anyone, /, digest: str, run: str, to: Path) -> None:
    """Downloads content that a run refers to."""
    async with at._transport.open(f"/v1/blobs/{digest}", {"run": run}, _TIMEOUT) as response:
        await _save(at, response, to, digest)


async def upload(to: Anyone, /, content: Mapping[str, str | bytes], tree: str = "") -> None:
    """Sends what the server lacks: digest → the file with that content, or the bytes. `tree`: the digest of the code
    snapshot that it is a part of."""
    digests = list(content)
    for start in range(0, len(digests), _ASKED):
        body: Doc = {"digests": digests[start : start + _ASKED], **({"tree": tree} if tree else {})}
        missing = (await to._send("POST", "/v1/blobs/missing", body, key="asked"))["missing"]
        bundles = _bundles({digest: content[digest] for digest in missing})
        await to._transport.each(_LANES, partial(_send_some, to), bundles)


async def capture(to: Anyone, /, workdir: Path, project: str = "default", environment: str = "") -> Doc | None:
    """Uploads the code in this folder and returns its description for a submission.

    Raises Refused, before anything is sent, if the project's guards refuse what is in it, and nothing else.
    """
    code: Doc = {}
    for _ in range(2):  # again if a file changed between the scan and the upload
        try:
            made = await to._transport.work(take, workdir, to._transport.home / "cache")
            code = made.code
            await _check_leaks(to, made, project, environment)
            if code["tree"] and await _whole(to, code["tree"]):
                made.content = {digest: data for digest, data in made.content.items() if digest == code["diff"]}
            tree = made.content.pop(code["tree"], None)
            await upload(to, made.content, code["tree"])
            await upload(to, {code["tree"]: tree} if tree is not None else {})  # last: a stored tree is complete
            return code
        except Refused:
            raise
        except (MusterError, OSError) as error:
            why = error.message if isinstance(error, MusterError) else str(error)
            code = {**code, "tree": "", "diff": "", "files": 0, "bytes": 0}
            code["notes"] = [*code.get("notes", ()), f"the snapshot could not be kept: {why}"[:500]]
            if not isinstance(error, Invalid):
                break
    return code


async def _check_leaks(to: Anyone, made: Snapshot, project: str, environment: str) -> None:
    """Raises Refused if the guards of the project refuse what is in the code. What they warn of, the server tells."""
    cache = to._transport.home / "cache"
    found = await to._transport.work(find_leaks, made.content, made.paths, made.dropped, made.code["diff"], cache)
    diff = made.content.get(made.code["diff"])
    if isinstance(diff, bytes) and (gone := only_removed(found, diff)):
        # Whoever removes a secret is not stopped for it, and the secret is not sent.
        del made.content[made.code["diff"]]
        note = "the changes against the commit were left out: they remove a secret; commit them"
        made.code |= {"diff": "", "notes": [*made.code["notes"], note]}
        found = [one for one in found if one not in gone]
    if not any(one.sort != "not_scanned" for one in found):
        return
    from muster.core.rules import Rules  # noqa: PLC0415  (pydantic)
    from muster.scan.judge import against  # noqa: PLC0415

    given = (await to._get("/v1/rules"))["rules"].get("guards", ())
    try:
        rules = Rules.model_validate({"guards": given})
    except ValueError:
        return  # of a newer server, which judges by itself
    if reasons := against(found, rules, project, environment):
        raise Refused(reasons)


async def _whole(to: Anyone, tree: str) -> bool:
    body = {"digests": [], "tree": tree}
    return bool((await to._send("POST", "/v1/blobs/missing", body, key="asked"))["tree"])


async def _send_some(to: Anyone, some: Mapping[str, str | bytes]) -> None:
    if len(some) > 1 or all(isinstance(data, bytes) and len(data) < _SMALL for data in some.values()):
        body = await to._transport.work(_bundle, some)
        await to._transport.send_content("POST", "/v1/blobs/bundle", body, len(body))
        return
    for digest, data in some.items():
        if isinstance(data, bytes):
            await to._transport.send_content("PUT", f"/v1/blobs/{digest}", data, len(data))
        else:
            size = os.stat(data).st_size  # noqa: PTH116  (a path as text)
            await to._transport.send_content("PUT", f"/v1/blobs/{digest}", partial(_blocks, data), size)


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


def _bundle(some: Mapping[str, str | bytes]) -> bytes:
    parts = [(digest, data if isinstance(data, bytes) else Path(data).read_bytes()) for digest, data in some.items()]
    return b"".join(piece for digest, data in parts for piece in (f"{digest}{len(data):08x}".encode(), data))


def _blocks(file: str) -> Iterator[bytes]:
    with Path(file).open("rb", buffering=0) as opened:
        while data := opened.read(BLOCK):
            yield data


async def _digest(to: Anyone, file: Path) -> str:
    """Computed block by block, so that a call that is cancelled stops."""
    found = hashlib.sha256()

    def step(opened: BinaryIO) -> bool:
        data = opened.read(_HASHED)
        found.update(data)
        return bool(data)

    with await to._transport.work(file.open, "rb") as opened:
        while await to._transport.work(step, opened):
            pass
    return found.hexdigest()


async def _save(to: Anyone, response: httpx.Response, target: Path, digest: str) -> None:
    """Writes to a temporary file first; it replaces the target when it is complete and its digest is right."""
    found = hashlib.sha256()
    temporary = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex}")

    def create() -> BinaryIO:
        target.parent.mkdir(parents=True, exist_ok=True)
        return temporary.open("wb")

    def write(file: BinaryIO, data: bytes) -> None:
        found.update(data)
        file.write(data)

    try:
        with await to._transport.work(create) as file:
            async with aclosing(to._transport.blocks(response, BLOCK)) as blocks:
                async for data in blocks:
                    await to._transport.work(write, file, data)
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
    return "/".join([run_path(ref, "artifacts"), *parts])
