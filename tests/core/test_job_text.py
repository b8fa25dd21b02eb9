"""Changes in the text of a job file: only what changes is written anew, and the file means what was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.errors import SpecError
from muster.core.job_text import change_fields, fields_of
from muster.core.parse import parse_job

FILE = """\
# of today
name: gpt   # who
run: |
  python prepare.py
  python train.py

resources: {accelerators: "H100:8", cpus: 4}  # of each node
retry:
  max_restarts: 3  # it flickers
  on: [node, worker]

envs:
  LR: "3e-4"
"""


@pytest.mark.parametrize(
    ("changes", "line", "gone"),
    [
        ({"name": "bert"}, "name: bert   # who", "gpt"),
        ({"run": "python x.py"}, "run: python x.py", "prepare"),
        ({"run": "a\nb"}, "run: |-\n  a\n  b", "prepare"),
        ({"resources.cpus": "8"}, "cpus: 8}  # of each node", "cpus: 4"),
        ({"resources.memory": "4GB"}, "memory: 4GB}  # of each node", "nothing"),
        ({"resources.cpus": None}, "resources: {accelerators: 'H100:8'}  # of each node", "cpus"),
        ({"retry.max_restarts": 5}, "  max_restarts: 5  # it flickers", "max_restarts: 3"),
        ({"retry.backoff": "5s"}, "  backoff: 5s", "nothing"),
        ({"retry.on": ["node"]}, "  on: [node]", "worker"),
        ({"envs": {"LR": "no", "SEED": "1"}}, "envs:\n  LR: no\n  SEED: 1", "3e-4"),
        ({"num_nodes": "4"}, "num_nodes: 4", "nothing"),
        ({"checkpoint.every": "5m"}, "checkpoint:\n  every: 5m", "nothing"),
        ({"purpose": "a: b # c"}, "purpose: 'a: b # c'", "nothing"),
        ({"name": None}, "# of today\nrun:", "gpt"),
    ],
)
def test_a_change_leaves_what_is_around_it(changes: dict[str, Any], line: str, gone: str) -> None:
    made = change_fields(FILE, changes)
    assert line in made
    assert gone not in made
    assert "# of today" in made
    (name,) = changes
    assert ("# of each node" in made, "# it flickers" in made) == (True, True)
    assert (name in fields_of(made)) == (changes[name] is not None)


def test_other_names_and_short_forms_stay_and_give_way_where_they_must() -> None:
    assert change_fields("gpus: 4\nrun: x\n", {"resources.accelerators": "H100:2"}) == "gpus: H100:2\nrun: x\n"
    made = change_fields("topology: rack # near\nrun: x\n", {"topology.prefer": "link"})
    assert made == "topology: {require: rack, prefer: link} # near\nrun: x\n"
    assert change_fields("", {"run": "x"}) == "run: x\n"
    assert change_fields("run: x\nresources:\n  cpus: 1\n", {"resources.cpus": None}) == "run: x\n"
    assert change_fields("{run: x}", {"name": "a"}) == "run: x\nname: a\n"


def test_a_text_that_can_not_be_read_is_refused_with_its_place() -> None:
    with pytest.raises(SpecError) as refused:
        change_fields("run: [\n", {"name": "a"})
    assert refused.value.to_dict()["problems"][0]["where"].startswith("line 2")


words = st.text(st.sampled_from("ab:#'\"{}[],&*!|>%@`-?0 \n\\é"), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(words.filter(lambda text: text.strip()), words, st.sampled_from([FILE, "run: x\n", "{run: x}", "# c\n"]))
def test_whatever_is_written_is_read_back(run: str, value: str, text: str) -> None:
    made = change_fields(text, {"run": run, "envs": {"A": value}})
    spec = parse_job({"name": "a", **{name: one for name, one in fields_of(made).items() if name in ("run", "envs")}})
    asked = parse_job({"name": "a", "run": run, "envs": {"A": value}})
    assert (spec.run, spec.envs) == (asked.run, asked.envs)
