"""Adds to what is built the commit that it was built from; everything else is in pyproject.toml."""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
STAMP = Path("muster", "COMMIT")


def commit() -> str:
    """The commit of the checkout; of an unpacked source distribution, what it was stamped with."""
    kept = ROOT / "src" / STAMP
    if kept.exists():
        return kept.read_text()
    if not (ROOT / ".git").exists():
        return ""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


class StampedBuild(build_py):
    """Writes the commit into the built package."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            (Path(self.build_lib) / STAMP).write_text(commit())


class StampedSource(sdist):
    """Writes the commit into the source distribution, which has no history."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        (Path(base_dir) / "src" / STAMP).write_text(commit())


setup(cmdclass={"build_py": StampedBuild, "sdist": StampedSource})
