"""Opens the blob store that the setting `artifacts` names: a local folder, or a prefix in object storage."""

from __future__ import annotations

from pathlib import Path

from muster.object_store import SCHEMES
from muster.track.blob_store import BlobStore, LocalBlobs, local_folder
from muster.track.blob_store_objects import open_objects


def open_blob_store(setting: str, home: Path) -> BlobStore:
    """`setting`: empty for `blobs` in the home folder, another folder, or a URL such as `s3://bucket/prefix`."""
    if setting.startswith(tuple(f"{scheme}:" for scheme in SCHEMES)):
        return open_objects(setting, home)
    return LocalBlobs(local_folder(setting, home))
