"""Every command and snippet of the README and of the guides does what it says when it is pasted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_kit import ROOT, blocks, script

from live import marked_processes

# Pages whose blocks are run, and how many of them are marked as not to be run.
PAGES = {
    "README.md": 1,
    "docs/operate.md": 4,
    "docs/recover.md": 0,
    "docs/tutorial.md": 0,
}
LIMIT = 600.0  # seconds after which a page counts as hung


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One server for all pages: those that say `muster up -d` start it, or find it."""
    folder = tmp_path_factory.mktemp("pages") / "home"
    folder.mkdir()
    (folder / "config.toml").write_text("port = 0\n")
    yield folder
    subprocess.run(["muster", "down", "--stop-jobs"], env=surroundings(folder), timeout=LIMIT, check=True)
    for pid in marked_processes(folder):
        os.kill(pid, signal.SIGKILL)


def surroundings(home: Path) -> dict[str, str]:
    return {**os.environ, "MUSTER_HOME": str(home), "COLUMNS": "200"}


def run(page: str, home: Path, folder: Path) -> str:
    """What the page's commands printed, on a server that is there already unless the page starts one itself."""
    env = surroundings(home)
    subprocess.run(["muster", "up", "-d"], env=env, capture_output=True, timeout=LIMIT, check=True)
    command = ["bash", "-c", script(page)]
    ended = subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
    return ended.stdout


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page):
    found = list(blocks(page))
    assert sum(bool(block.not_run) for block in found) == PAGES[page]
    assert all(block.kind for block in found), "a block without a kind is neither run nor shown as what it is"
    assert any(block.runs for block in found)


def test_the_tutorial_ends_as_it_says(home, tmp_path):
    said = run("docs/tutorial.md", home, tmp_path)
    assert "rank 0 of 2" in said
    assert "rank 1 of 2" in said
    assert "continuing from step 100" in said
    assert "docs: docs/troubleshooting.md#completed" in said
    assert "a tenth of the learning rate is too little" in said
    assert "succeeded\n{'lr': 0.3}" in said
    assert "has ended." in said


def test_the_first_job_of_the_readme_succeeds(home, tmp_path):
    said = run("README.md", home, tmp_path)
    assert "docs: docs/troubleshooting.md#completed" in said
    assert "0 rank 0 of 2" in said
    assert "1 rank 1 of 2" in said
    assert said.rstrip().endswith("succeeded")
    assert (tmp_path / "first" / "checkpoints").is_dir(), "outside Muster, checkpoints go to the current folder"


def test_what_the_guide_to_recovery_says_is_so(home, tmp_path):
    said = run("docs/recover.md", home, tmp_path)
    assert "long-" in said
    assert "Muster is up at" in said
    assert "draining" in said


def test_what_the_guide_to_operating_a_server_says_is_so(home, tmp_path):
    said = run("docs/operate.md", home, tmp_path)
    assert "copy is whole" in said
    assert "HF_TOKEN" in said
    assert "research" in said
    assert len({(tmp_path / name).read_text() for name in ("ada.token", "ci.token")}) == 2


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
