"""The doctor's checks on a node: whether the server can be reached from there, and what the node can write."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from muster.engines.ray.folders import NodeFolders

REACH_SECONDS: Final = 5.0


def probe(folders: NodeFolders, mark: str, write: str) -> dict[str, Any]:
    """`mark`: a file to look for in the checkpoint folder; `write`: a file to create there. Either may be empty."""
    urls = json.loads(folders.urls.read_text())["urls"]
    return {
        "python": sys.version.split()[0],
        "time": time.time(),
        "servers": {url: _reach(url, folders) for url in urls},
        "checkpoints": str(folders.checkpoints),
        "wrote": _write(folders.checkpoints, write) if write else "",
        "found": (folders.checkpoints / mark).exists() if mark else None,
        "free": _free(folders.scratch),
    }


def _reach(url: str, folders: NodeFolders) -> str:
    """Returns "" when the server answers, with any status; otherwise the error."""
    request = urllib.request.Request(f"{url.rstrip('/')}/livez")  # noqa: S310  (from the server's own settings)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(request, timeout=REACH_SECONDS).close()
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        trusted = folders.certificate.exists() and "CERTIFICATE_VERIFY_FAILED" in str(error)
        return "" if trusted else str(error)  # the launcher trusts its given certificate, this does not
    return ""


def _write(folder: Path, name: str) -> str:
    """Returns "" when the file could be written; otherwise the error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    except OSError as error:
        return str(error)
    return ""


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
