"""What `--apply` changes in a configuration: the values and nothing else."""

from __future__ import annotations

import json

import pytest
import yaml

from muster.planner.apply import applied
from muster.planner.shapes import PlanError

CHANGES = {"mesh": {"dp": 2, "tp": 4}, "parallel.checkpointing": "full", "data.micro_batch": 4}

TEXTS = [
    "# top\ntask: language  # mine\nsteps: 3\ndata:\n  # of samples\n  batch: 32  # global\n",
    "steps: 3\nmesh: {dp: auto}  # all\nparallel: {compile: true}\ndata: {batch: 32}",
    "mesh:\n  dp: 8  # replicas\n  # none\nparallel:\n  compile: true\n  checkpointing: none  # yet\nsteps: 3\n",
    "parallel:\nsteps: 3\n",
    "data: {micro_batch: 2, batch: 8}\nparallel: {checkpointing: selective}\nmesh: {}\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_yaml_has_the_settings_and_keeps_the_rest(text: str) -> None:
    found = applied(text, ".yaml", CHANGES)
    before, after = yaml.safe_load(text), yaml.safe_load(found)
    assert after["mesh"] == {"dp": 2, "tp": 4}
    assert after["parallel"]["checkpointing"] == "full"
    assert after["data"]["micro_batch"] == 4
    for name, value in before.items():
        if isinstance(value, dict) and name != "mesh":
            assert {key: each for key, each in after[name].items() if key in value and key not in _CHANGED} == {
                key: each for key, each in value.items() if key not in _CHANGED
            }
        elif name not in ("mesh", "parallel"):
            assert after[name] == value
    comments = [
        line.partition("#")[2]
        for line in text.splitlines()
        if "#" in line and "replicas" not in line and "none\n" not in line
    ]
    assert all(comment in found for comment in comments if comment.strip() != "none")
    assert applied(found, ".yaml", CHANGES) == found


_CHANGED = ("checkpointing", "micro_batch")


def test_what_is_the_default_is_not_added() -> None:
    text = "steps: 3\nmesh: {dp: 1}\n"
    assert (
        applied(text, ".yaml", {"mesh": {"dp": 1}, "parallel.checkpointing": "none", "data.micro_batch": None}) == text
    )


def test_json_is_written_and_toml_is_told() -> None:
    found = json.loads(applied('{"steps": 3}', ".json", CHANGES))
    assert found == {
        "steps": 3, "mesh": {"dp": 2, "tp": 4}, "parallel": {"checkpointing": "full"}, "data": {"micro_batch": 4}
    }  # fmt: skip
    with pytest.raises(PlanError, match="set mesh = "):
        applied("steps = 3", ".toml", CHANGES)
