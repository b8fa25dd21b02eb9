"""Every example as a user would run it: its data made, trained alone, and one of them as a job under Muster."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gang_kit import gang
from live import live_server
from muster.core.parse import parse_job
from muster.train.command import main

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if (path / "config.yaml").exists())
LIMIT = 180.0  # seconds after which an example counts as hung


def run_examples(root: Path, names: list[str]) -> dict[str, tuple[int, str]]:
    """Each in a process of its own that has torch already: its exit code and its output."""
    found = {}
    for name in names:
        out = root / f"{name}.out"
        pid = os.fork()
        if pid == 0:
            _become(root / name, out)
            os._exit(_example())
        found[name] = (os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.read_text())
    return found


def test_there_are_four_and_each_says_how_to_run_it():
    assert NAMES == ["custom_task", "finetune", "images", "pretrain"]
    for name in NAMES:
        spec = parse_job((EXAMPLES / name / "job.yaml").read_text(), source=f"{name}/job.yaml")
        assert spec.run == "python -m muster.train config.yaml"
        readme = (EXAMPLES / name / "README.md").read_text()
        assert spec.run in readme
        assert "muster run job.yaml" in readme
        assert ("python make_data.py" in readme) == (EXAMPLES / name / "make_data.py").exists()


def test_each_runs_and_learns(tmp_path):
    for name in NAMES:
        _copied(name, tmp_path)
    (found,) = gang(1, run_examples, tmp_path, NAMES, group=False, timeout=LIMIT)
    for name, (code, text) in found.items():
        assert code == 0, text
        losses = [float(loss) for loss in re.findall(r"evaluation: loss ([\d.]+)", text)]
        assert len(losses) == 2, text
        assert losses[1] < losses[0], name
        assert re.search(r"done: \d+ steps, ledger [0-9a-f]{16}\n$", text), text
        assert list((tmp_path / name / "checkpoints").glob("step-*"))
    accuracy = re.findall(r"accuracy ([\d.]+)", found["images"][1])
    assert float(accuracy[-1]) > 0.6, "four classes: 0.25 is chance"


def test_as_a_job_under_muster(tmp_path):
    folder = _copied("custom_task", tmp_path)
    job = folder / "job.yaml"
    job.write_text(job.read_text() + "nproc: 2\n")
    with live_server(tmp_path / "home") as server:
        env = {**os.environ, "MUSTER_HOME": str(server.home), "COLUMNS": "200"}
        command = [sys.executable, "-m", "muster", "run", "job.yaml"]
        ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "2 process(es) on cpu as dp 2" in ended.stdout
        (submitted,) = server.get("/v1/jobs")["jobs"]
        steps, losses = server.metric(submitted["id"], "loss")[1]
        assert steps == list(range(1, 301))
        assert losses[-1] < losses[0] / 10


@pytest.mark.parametrize("name", ["custom_task"])
def test_a_module_beside_the_configuration_is_found_from_its_folder(name, tmp_path):
    folder = _copied(name, tmp_path)
    command = [sys.executable, "-X", "importtime", "-m", "muster.train", "config.yaml", "--check"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    assert (ended.returncode, ended.stdout) == (0, "config.yaml is in order\n"), ended.stderr
    assert " torch.nn\n" in ended.stderr
    assert " torch._dynamo\n" not in ended.stderr, "a check waits for PyTorch's compiler"


def _copied(name: str, root: Path) -> Path:
    """Without what runs left there."""
    left = shutil.ignore_patterns("data", "base", "checkpoints", "__pycache__")
    return Path(shutil.copytree(EXAMPLES / name, root / name, ignore=left))


def _become(folder: Path, out: Path) -> None:
    file = os.open(out, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name)


def _example() -> int:
    try:
        if Path("make_data.py").exists():
            runpy.run_path("make_data.py", run_name="__main__")
        return main(["config.yaml"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
