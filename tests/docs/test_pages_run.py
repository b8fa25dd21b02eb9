"""Every command and snippet of the README and of the guides does what it says when it is pasted."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_kit import ROOT, blocks, script

from live import LiveServer, live_server
from muster.cli import daemon

# Pages whose blocks are run, and how many of them are marked as not to be run.
PAGES = {
    "README.md": 1,
    "docs/alerts.md": 0,
    "docs/coming-from.md": 0,
    "docs/diagnose.md": 1,
    "docs/drill.md": 1,
    "docs/engines.md": 2,
    "docs/kubernetes.md": 0,
    "docs/operate.md": 4,
    "docs/prometheus.md": 1,
    "docs/python.md": 0,
    "docs/recover.md": 1,
    "docs/scheduling.md": 2,
    "docs/tracking.md": 1,
    "docs/tune.md": 0,
    "docs/tune-optuna.md": 6,
    "docs/tutorial.md": 0,
}
OTHERS = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")} - PAGES.keys()
LIMIT = 1800.0  # seconds after which a page counts as hung


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server for all pages; a page may stop it, and start it again."""
    with live_server(tmp_path_factory.mktemp("pages") / "home", config="port = 0\n") as server:
        yield server
        subprocess.run(["muster", "down"], env=surroundings(server), timeout=LIMIT, check=True)


def surroundings(server: LiveServer) -> dict[str, str]:
    return {**os.environ, "MUSTER_HOME": str(server.home), "COLUMNS": "200"}


def run(page: str, server: LiveServer, folder: Path) -> str:
    """What the page's commands printed, the first of them with a server that is there already."""
    if daemon.find(server.home) is None:
        server.start()
    ended = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=folder,
        env=surroundings(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
    return ended.stdout


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page):
    found = list(blocks(page))
    assert sum(bool(block.not_run) for block in found) == PAGES[page]
    assert all(block.kind for block in found), "a block without a kind is neither run nor shown as what it is"
    assert any(block.runs for block in found)


@pytest.mark.parametrize("page", sorted(OTHERS))
def test_no_page_has_a_block_that_nobody_looked_at(page):
    found = list(blocks(page))
    assert all(block.kind for block in found), "a block without a kind is neither run nor shown as what it is"
    assert not [block for block in found if block.runs], "add the page to PAGES, or say why its block is not run"


def test_the_tutorial_ends_as_it_says(server, tmp_path):
    said = run("docs/tutorial.md", server, tmp_path)
    assert "rank 0 of 2" in said
    assert "rank 1 of 2" in said
    assert "continuing from step 100" in said
    assert "docs: docs/troubleshooting.md#completed" in said
    assert "a tenth of the learning rate is too little" in said
    assert "succeeded\nlr 0.3 loss " in said
    assert "has ended." in said


def test_the_first_job_of_the_readme_succeeds(server, tmp_path):
    said = run("README.md", server, tmp_path)
    assert "docs: docs/troubleshooting.md#completed" in said
    assert "0 rank 0 of 2" in said
    assert "1 rank 1 of 2" in said
    assert said.rstrip().endswith("succeeded")
    assert (tmp_path / "first" / "checkpoints").is_dir(), "outside Muster, checkpoints go to the current folder"


def test_what_the_guide_to_recovery_says_is_so(server, tmp_path):
    said = run("docs/recover.md", server, tmp_path)
    assert "long-" in said
    assert "Muster is up at" in said
    assert "starts from  recover-" in said
    assert "@200" in said
    assert "draining" in said


def test_alert_rules_apply_as_their_page_says(server, tmp_path):
    said = run("docs/alerts.md", server, tmp_path)
    assert "Nothing was changed" in said
    assert "+ loader-bound" in said
    assert "long evaluations" in said


def test_a_slow_loader_is_named_as_its_page_says(server, tmp_path):
    said = run("docs/diagnose.md", server, tmp_path)
    assert "The loader is too slow: the program waits for data" in said
    assert "1. Loader (" in said


def test_studies_of_optuna_are_kept_and_imported_as_their_page_says(server, tmp_path):
    said = run("docs/tune-optuna.md", server, tmp_path)
    assert "['lr-and-depth']" in said
    assert "lr-and-depth  20 trials, 20 of them new" in said
    assert re.search(r"lr-and-depth\[\d+\]", said), "a trial whose depth is at most 4"
    trials = server.post("/v1/runs/search", {"query": 'parent ~ "by-hand"'})["runs"]
    assert sorted(one["name"] for one in trials) == ["t0", "t1"]


def test_a_drill_holds_as_its_page_says(server, tmp_path):
    said = run("docs/drill.md", server, tmp_path)
    assert "kill-rank: held" in said
    assert "weights: checkpoints at step 40" in said
    assert "failure-during-recovery" in said


def test_the_programs_of_the_page_on_python_run(server, tmp_path):
    said = run("docs/python.md", server, tmp_path)
    assert "0 hello from rank 0" in said
    assert "0 seed 0" in said
    assert said.rstrip().endswith("['succeeded', 'succeeded', 'succeeded', 'succeeded']")


def test_what_the_guide_to_scheduling_says_is_so(server, tmp_path):
    said = run("docs/scheduling.md", server, tmp_path)
    assert "after prepare-" in said
    assert "3 tasks" in said
    for name, text in {"train": "ready", "sweep[2]": "index 2 of 3"}.items():
        assert server.wait(name)["phase"] == "succeeded"
        assert text in server.output(name)


def test_what_the_guide_to_operating_a_server_says_is_so(server, tmp_path):
    said = run("docs/operate.md", server, tmp_path)
    assert "copy is whole" in said
    assert "HF_TOKEN" in said
    assert "research" in said
    assert len({(tmp_path / name).read_text() for name in ("ada.token", "ci.token")}) == 2


def test_what_the_guide_to_tracking_says_is_so(server, tmp_path):
    said = run("docs/tracking.md", server, tmp_path)
    assert "params.lr" in said
    assert (tmp_path / "logbook.md").read_text().count("the spike at 120") == 1
    assert list((tmp_path / "curves").rglob("*tfevents*"))


def test_the_study_of_the_page_on_tuning_finds_a_winner_and_goes_on(server, tmp_path):
    said = run("docs/tune.md", server, tmp_path)
    assert "with other seeds: trial" in said
    assert "trials: 24 → 28" in said
    assert "space.momentum: 0 to 0.95 → 0.3 to 0.95" in said
    assert "submitted spirals-large-" in said
    assert "ended 6" in said
    assert (tmp_path / "spirals" / "quadratic.html").is_file()


def test_an_engine_is_looked_at_and_a_job_rendered_as_the_pages_say(server, tmp_path):
    said = run("docs/engines.md", server, tmp_path)
    assert "local-0" in said
    said = run("docs/kubernetes.md", server, tmp_path)
    assert "kind: JobSet" in said
    assert "registry.example.com/train:1" in said


def test_what_comes_from_other_tools_is_taken(server, tmp_path):
    said = run("docs/coming-from.md", server, tmp_path)
    assert "nproc: 2" in said
    assert "python train.py --lr 3e-4" in said


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
