"""Uploads and downloads files and whole folders as artifacts; a folder with a checkpoint is recorded as one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from muster.api.artifacts import ArtifactView
from muster.api.provenance import StatementView, VersionFiles
from muster.core.errors import Invalid, NotFound
from muster.track.paths import check_path
from muster.track.provenance.statement import FILE_NAME

Doc = dict[str, Any]
_FILES_MAX: Final = 100_000


class _Caller(Protocol):
    """The part of `muster.Client` that is used here."""

    def artifacts(self, ref: str | int, prefix: str = "") -> list[ArtifactView]: ...

    def get_artifact(self, ref: str | int, path: str, to: str | Path, *, why: str | None = None) -> Path: ...

    def model_files(self, name: str, version: int) -> VersionFiles: ...

    def model_statement(self, name: str, version: int) -> StatementView: ...

    def put_artifact(
        self, ref: str | int, file: str | Path, path: str | None = None, *, kind: str = "file", **about: Any
    ) -> ArtifactView: ...


def get_files(client: _Caller, run: str, prefix: str, folder: Path, why: str | None = None) -> list[Path]:
    """Downloads a file, or everything under a path, into a folder; folders in the run stay folders."""
    prefix = prefix.strip("/")
    found = client.artifacts(run, prefix)
    if not found:
        raise NotFound(f"The run {run} has no artifact {prefix!r}.", f"See `muster runs artifacts {run}`.")
    above = prefix.rpartition("/")[0]
    written = []
    for one in found:
        path = check_path(one["path"])
        target = folder / (path.removeprefix(f"{above}/") if above else path)
        _make_folder(target.parent)
        written.append(client.get_artifact(run, path, target, why=why))
    return written


def get_model(client: _Caller, name: str, version: int, folder: Path) -> list[Path]:
    """Downloads a model's version into a folder, and its signed statement beside the files."""
    found = client.model_files(name, version)
    if not found["files"]:
        hint = f"`muster models show {name}/{version}` says where they are."
        raise NotFound(f"Muster stores no files of {name}/{version}.", hint)
    statement, written = client.model_statement(name, version), list[Path]()
    for one in found["files"]:
        target = folder / check_path(one["name"])
        _make_folder(target.parent)
        written.append(client.get_artifact(found["run"], one["path"], target))
    file = folder / FILE_NAME
    try:
        file.write_text(json.dumps(statement["envelope"]))
    except OSError as error:
        raise Invalid(f"{file} can't be written: {error.strerror}.", "Choose another place.") from error
    return [*written, file]


def put_files(
    client: _Caller, run: str, file: Path, *, to: str | None, kind: str, alone: bool = True, **about: Any
) -> Iterator[ArtifactView]:
    """Uploads a file, or a folder with its contents. `to` is its path in the run, or a folder if there are several."""
    place = (to or "").strip("/")
    if not file.is_dir():
        named = (
            place if place and alone and not (to or "").endswith("/") else "/".join(filter(None, (place, file.name)))
        )
        yield client.put_artifact(run, file, named, kind=kind, **about)
        return
    base = place if place and alone else "/".join(filter(None, (place, file.absolute().name)))
    files = sorted(path for path in file.rglob("*") if path.is_file())
    if not files or len(files) > _FILES_MAX:
        raise Invalid(
            f"{file} has {len(files)} files; from 1 to {_FILES_MAX} can be uploaded.", "Choose another folder."
        )
    head, known = describe(file) if kind in ("checkpoint", "model") else (None, {})
    for path in files:
        said = {**about, **(known if path == head else {})}
        yield client.put_artifact(run, path, f"{base}/{path.relative_to(file).as_posix()}", kind=kind, **said)


def describe(folder: Path) -> tuple[Path | None, Doc]:
    """The file that identifies a checkpoint's format, with the format, the number of files and how to load it."""
    count = sum(path.is_file() for path in folder.rglob("*"))
    for name, form, load in _FORMATS:
        head = next(iter(sorted(folder.glob(name))), None)
        if head is not None:
            return head, {"format": form, "files": count, "load": load, **_shards(head)}
    return None, {}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"{folder} can't be made: {error.strerror}.", "Choose another place.") from error


def _shards(head: Path) -> Doc:
    """How many files hold its weights, if an index says so."""
    if not head.name.endswith(".index.json"):
        return {}
    try:
        weights = json.loads(head.read_bytes())["weight_map"]
        return {"shards": len(set(weights.values()))}
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return {}


# Pattern of the file that identifies the format, the format's name, how to load it.
_FORMATS: Final = (
    (".metadata", "torch distributed checkpoint", "torch.distributed.checkpoint.load(state, checkpoint_id=FOLDER)"),
    ("manifest.json", "muster", "muster.runtime.last_checkpoint(FOLDER'S PARENT), on any number of ranks"),
    ("*.safetensors.index.json", "safetensors, sharded", "transformers.AutoModel.from_pretrained(FOLDER)"),
    ("pytorch_model.bin.index.json", "torch, sharded", "transformers.AutoModel.from_pretrained(FOLDER)"),
    ("*.safetensors", "safetensors", "safetensors.torch.load_file(FILE)"),
    ("*.pt", "torch", "torch.load(FILE, weights_only=True)"),
)
