"""The job file: in order, and naming a script of this folder and nothing that only one machine has."""

from __future__ import annotations

import shlex
from pathlib import Path

from muster.core.parse import parse_job

ROOT = Path(__file__).parents[1]
JOB = parse_job((ROOT / "job.yaml").read_text(), source="job.yaml")


def test_it_runs_a_script_of_this_folder() -> None:
    scripts = [word for word in shlex.split(JOB.run) if word.endswith(".py")]
    assert scripts
    assert all((ROOT / script).is_file() for script in scripts)


def test_it_says_what_it_is_for_and_ends() -> None:
    assert JOB.purpose
    assert JOB.max_duration is not None
