"""What a template brings along: a CI file whose commands pass, tests of its own, and programs that pass preflight."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from forked_script_kit import Script
from gang_kit import torch_process
from live import LiveServer, call_muster, live_server
from muster.cli.init import copy, find, templates

NAMES = [one.name for one in templates()]
RUN_PYTEST = Path(__file__).parent / "run_pytest.py"
LIMIT = 240.0  # seconds after which a process counts as hung


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The template that the test names, copied as `muster init` does: the present folder."""
    made = tmp_path / request.param
    copy(find(request.param), made)
    monkeypatch.chdir(made)
    return made


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("projects") / "home", "--nodes", "1", "--cpus", "2") as server:
        yield server


@pytest.mark.parametrize("folder", NAMES, indirect=True)
def test_the_commands_of_its_ci_file_pass(folder: Path) -> None:
    steps = yaml.safe_load((folder / ".github/workflows/ci.yml").read_text())["jobs"]["check"]["steps"]
    first, *commands, last = [step["run"] for step in steps if "run" in step]
    assert (first, last) == ("pip install -r requirements.txt", "pytest")
    assert (folder / "requirements.txt").is_file()
    assert [command.split()[:2] for command in commands] == [["muster", "scan"], ["muster", "check"]]
    for command in commands:
        done = call_muster(*command.split()[1:])
        assert done.returncode == 0, done.stdout + done.stderr
    # `pytest`, in a process that has torch.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MUSTER_"))}
    words = (str(RUN_PYTEST), "-q", "-p", "no:cacheprovider")
    script = Script(torch_process(), folder, *words, env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    code, printed = script.finish(LIMIT)
    assert code == 0, printed + script.err.read_text()


def test_the_ci_file_runs_what_is_pinned_and_holds_nothing_that_is_secret() -> None:
    ci = find("single").sources[".github/workflows/ci.yml"].read_text()
    used = re.findall(r"uses: (\S+)", ci)
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", one) for one in used)
    assert "secrets" not in re.sub(r"#.*", "", ci)
    assert yaml.safe_load(ci)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(("folder", "levels"), [
    ("single", "unit,resume,smoke,canary"), ("data", "smoke"), ("tune", "unit,smoke,canary"),
], indirect=["folder"])  # fmt: skip
def test_preflight_passes(live: LiveServer, folder: Path, levels: str) -> None:
    done = call_muster("--home", str(live.home), "preflight", "job.yaml", "--level", levels, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert [one["rung"] for one in told["verdicts"] if one["passed"]] == levels.split(",")
