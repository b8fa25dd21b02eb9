"""Artifacts of runs, code snapshots, and content by its digest."""

from typing import NotRequired

from muster.api.scans import ScanFinding, ScanStatus
from muster.api.typed import Doc, TypedDict


class ArtifactView(TypedDict):
    path: str
    digest: str
    bytes: int
    kind: str
    time: float
    attempt: int
    doc: Doc  # mime, step, about; of a checkpoint: how to load it
    scan: NotRequired[ScanStatus]  # absent of code
    findings: NotRequired[list[ScanFinding]]


class FolderView(TypedDict):
    """A folder with the number and total size of the files in it."""

    path: str
    files: int
    bytes: int


class ArtifactList(TypedDict):
    run: str
    prefix: str
    files: list[ArtifactView]
    folders: list[FolderView]


class ArtifactsRemoved(TypedDict):
    run: str
    removed: list[str]
    bytes: int


class CodeFiles(TypedDict):
    """The code snapshot of a run; null where there is none."""

    run: str
    tree: str | None
    diff: str | None
    files: dict[str, tuple[str, int, int]] | None  # path: sha256, bytes, mode


class MissingContent(TypedDict):
    missing: list[str]
    tree: bool  # whether all files of the snapshot are there


class BundleStored(TypedDict):
    blobs: int


class BlobStored(TypedDict):
    digest: str
    bytes: int


class RemovedOfProject(TypedDict):
    project: str
    runs: int
    files: int
    bytes: int


class Collection(TypedDict):
    """What retention removed, or would remove."""

    projects: list[RemovedOfProject]
    blobs: int
    bytes: int
