"""The version of Muster, and the commit that it was built from."""

from __future__ import annotations

import subprocess
from pathlib import Path

from muster import __version__


def described() -> str:
    """The version as `muster --version` prints it: `0.1.0 (commit 1a2b3c4d5e6f)`."""
    commit = _commit()
    return f"{__version__} (commit {commit})" if commit else __version__


def _commit() -> str:
    """Of a built package the commit that was written into it, of a checkout the one that git names; else empty."""
    package = Path(__file__).parent
    if (package / "COMMIT").exists():
        return (package / "COMMIT").read_text().strip()
    checkout = package.parent.parent
    if not (checkout / ".git").exists() or package.parent.name != "src":
        return ""
    asked = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
