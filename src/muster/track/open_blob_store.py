"""Opens the blob store that the setting `artifacts` names: a local folder, or S3."""

from __future__ import annotations

from pathlib import Path

from muster.track.blob_store import BlobStore, LocalBlobs, local_folder
from muster.track.blob_store_s3 import open_s3


def open_blob_store(setting: str, home: Path) -> BlobStore:
    """`setting`: empty for `blobs` in the home folder, another folder, or `s3://bucket/prefix`."""
    return open_s3(setting, home) if setting.startswith("s3:") else LocalBlobs(local_folder(setting, home))
