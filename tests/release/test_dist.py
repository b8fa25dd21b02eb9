"""`make dist`: what it builds installs into an environment that has nothing, and runs there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from components import require
from muster import __version__
from muster.version import described

ROOT = Path(__file__).parents[2]
PAGES = Path("src", "muster", "web_pages")  # built, and not tracked


def run(*words: str | Path, **env: str) -> str:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MUSTER", "VIRTUAL"))}
    done = subprocess.run([str(word) for word in words], env={**bare, **env}, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """From a copy of what git tracks, with its history: a build leaves files in the folder of the sources."""
    copy = tmp_path_factory.mktemp("copy") / "muster"
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, copy)
    require("the built web page", (ROOT / PAGES / "index.html").is_file(), "Run `make web`.")
    shutil.copytree(ROOT / PAGES, copy / PAGES)
    run(sys.executable, copy / ".ci" / "dist", copy / "dist")
    return copy


def test_the_wheel_installs_alone_and_runs_a_job(built: Path, tmp_path: Path) -> None:
    (wheel,) = (built / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    here = tmp_path / "venv" / "bin"
    constraints = ROOT / "constraints.txt"
    run(here / "python", "-m", "pip", "install", "-q", "--no-compile", "--constraint", constraints, wheel)
    commit = run("git", "-C", built, "rev-parse", "--short=12", "HEAD").strip()
    assert run(here / "muster", "--version") == f"muster {__version__} (commit {commit})\n"
    env = {"MUSTER_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    run(here / "muster", "init", "--template", "ddp", tmp_path / "ddp", **env)
    run(here / "muster", "up", "-d", **env)
    try:
        assert "it runs\n" in run(here / "muster", "run", "--", "echo", "it runs", **env)
    finally:
        run(here / "muster", "down", **env)


def test_the_distributions_hold_what_they_should_and_nothing_else(built: Path) -> None:
    (wheel,), (source,) = (built / "dist").glob("*.whl"), (built / "dist").glob("*.tar.gz")
    tracked = run("git", "-C", built, "ls-files", "src/muster").splitlines()
    pages = [str(page.relative_to(built)) for page in (built / PAGES).rglob("*") if page.is_file()]
    names = {name.removeprefix("src/") for name in [*tracked, *pages]} | {"muster/COMMIT"}
    with zipfile.ZipFile(wheel) as packed:
        assert {name for name in packed.namelist() if ".dist-info/" not in name} == names
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in names} | {"pyproject.toml", "README.md", "LICENSE", "setup.py"} <= inside


def test_a_checkout_says_its_commit(muster_commit: str) -> None:
    assert described() in (f"{__version__} (commit {muster_commit})", f"{__version__} (commit {muster_commit}+changes)")


@pytest.fixture
def muster_commit() -> str:
    return run("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD").strip()
