"""Calls about provenance: the server's public keys, and signed statements of models and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from muster.client.connection import Anyone, part, run_path

if TYPE_CHECKING:
    from muster.api.provenance import SigningKeyView, StatementHead, StatementView, VersionFiles


async def signing_keys(to: Anyone, /) -> list[SigningKeyView]:
    """The public keys that the server's statements are signed with, the one in use first."""
    return (await to._get("/v1/keys"))["keys"]


async def rotate_signing_key(to: Anyone, /) -> list[SigningKeyView]:
    """Makes a new key; what the old one signed stays good. For administrators."""
    return (await to._send("POST", "/v1/keys/rotate"))["keys"]


async def model_statement(to: Anyone, /, name: str, version: int) -> StatementView:
    """The signed statement of a model's version: "envelope" in DSSE, with its "digest" and "key"."""
    return await to._get(f"{_version(name, version)}/statement")


async def model_files(to: Anyone, /, name: str, version: int) -> VersionFiles:
    """The files of a model's version that Muster stores: "run", and "files" with name, path, digest and bytes."""
    return await to._get(f"{_version(name, version)}/files")


async def statements(to: Anyone, /, ref: str | int) -> list[StatementHead]:
    """The signed statements of a run's stored checkpoints and models."""
    return (await to._get(run_path(ref, "statements")))["statements"]


async def artifact_statement(to: Anyone, /, ref: str | int, path: str) -> StatementView:
    """The signed statement of a folder with a checkpoint or model, or of one such file."""
    return await to._get(f"{run_path(ref, 'statements')}/{quote(path, safe='/')}")


def _version(name: str, version: int) -> str:
    return f"/v1/models/{part(name)}/versions/{version}"
