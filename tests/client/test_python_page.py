"""The Python programs of docs/python.md run as they are pasted, in the current folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from live import PATIENCE, LiveServer, live_server
from muster import Client
from muster.core.spec import JobSpec

ROOT = Path(__file__).parents[2]
SCRIPT = "import os, sys\nprint('in', os.getcwd(), 'by', sys.prefix, *sys.argv[1:])\n"
PROGRAMS = [
    pytest.param(block, id=str(number))
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL))
    if "Client()" in block and "train.py" in block
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a script and a job file; the shell has no Python environment."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.yaml").write_text("name: filed\nrun: python train.py\n")
    for name in ("MUSTER_URL", "MUSTER_TOKEN", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_has_a_program_that_submits_a_script() -> None:
    assert PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_pasted_program_runs_its_job_in_the_current_folder(server: LiveServer, project: Path, program: str) -> None:
    environment = {**os.environ, "MUSTER_HOME": str(server.home)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"in {project} by {sys.prefix}" in done.stdout
    assert "succeeded" in done.stdout
    assert "failed" not in done.stdout


def test_every_form_of_a_job_runs_where_it_was_submitted(server: LiveServer, project: Path) -> None:
    beside = project / "beside"
    beside.mkdir()
    (beside / "job.yaml").write_text("run: pwd\n")
    with Client(home=server.home) as client:
        forms = [{"run": "pwd"}, "run: pwd\n", JobSpec(name="a", run="pwd"), "beside/job.yaml"]
        jobs = [client.submit(form).id for form in forms]
        jobs += [one["id"] for one in client.submit_many(forms) if isinstance(one, dict)]
        jobs.append(client.submit({"run": "pwd", "workdir": "beside"}).id)
        bare = client.submit({"run": "pwd; echo $PATH"}, inherit=False)
        for job in jobs:
            server.wait(job)
        folders = [str(project)] * 3 + [str(beside)]
        assert [server.output(job) for job in jobs] == [f"{one}\n" for one in (*folders, *folders, beside)]
        server.wait(bare.id)
        assert bare.workdir is None
        assert str(project) not in server.output(bare.id)
        assert sorted(client.code(jobs[0])["files"] or ()) == ["beside/job.yaml", "job.yaml", "train.py"]
