"""A job that the SDK submits runs in the program's current folder, with its Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from live import PATIENCE, LiveServer, live_server
from muster import Client
from muster.core.spec import JobSpec

SCRIPT = "import os, sys\nprint('in', os.getcwd(), 'by', sys.prefix)\n"
PROGRAM = """
from muster import Client

with Client() as client:
    job = client.submit({"run": "python train.py"})
    for line in job.logs(follow=True):
        print(line.text)
    assert job.wait().phase == "succeeded"
"""


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


def test_a_job_of_a_program_runs_in_its_folder_with_its_python(server: LiveServer, project: Path) -> None:
    environment = {**os.environ, "MUSTER_HOME": str(server.home)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"in {project} by {sys.prefix}\n"


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
