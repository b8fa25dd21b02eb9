"""Study files: what is written becomes a spec, and every mistake is told at once with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from muster.core.errors import SpecError
from muster.core.parse import parse_job
from muster.tune.spec import StudySpec
from muster.tune.study_file import Site, parse_study
from muster.tune.trial_spec import base_spec, study_spec, trial_spec

JOB = parse_job(
    "name: train\nrun: python train.py\nenvs: {A: b}\nqueue: research\ntags: {family: gpt}\nneeds: [prepare]"
)
SITE = Site(currency="EUR", now=1000.0, job=JOB, pools=("l4", "h100"))
WHOLE = """
study: lr-and-decay
job: train.yaml
space:
  lr: {log: [1e-5, 1e-2]}
  batch: [64, 128, 256]
  model: [deep, wide]
  flag: [yes, no]
  depth: {int: [4, 24, 4], when: "model == 'deep'"}
  epochs: 3
objective: {minimize: val_loss, take: best}
constraints: "memory < 70GB"
search: random
stop: {asha: {eta: 4}}
budget: {trials: 200, parallel: 16, cost: 300 EUR, until: "2 days"}
confirm: {top: 3, seeds: 5}
enqueue: [{lr: 1e-3, batch: 64, model: wide, flag: no, epochs: 3}]
pools: [l4, h100]
worth: {0.01: 100}
"""


def parsed(text: str, site: Site = SITE, **given: Any) -> StudySpec:
    return parse_study(text, site, **given)


def problems(text: str, site: Site = SITE) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        parsed(text, site)
    return {one.where.partition(" (")[0]: f"{one.given}; {one.expected}; {one.hint}" for one in caught.value.problems}


def test_all_of_a_file_is_read_and_kept_as_json() -> None:
    spec = parsed(WHOLE)
    assert (spec.trials, spec.parallel, spec.cost, spec.until) == (200, 16, 300_000_000, 172_800.0)
    assert (spec.objective.metric, spec.objective.take, spec.worth) == ("val_loss", "best", 10_000_000_000)
    assert spec.space.by_name["flag"].choices == (True, False)
    assert spec.enqueue == ({"lr": 1e-3, "batch": 64, "model": "wide", "flag": False, "epochs": 3},)
    assert spec.metrics == ("val_loss", "memory")
    assert spec.limits[0].holds({"memory": 69e9}) is True
    assert StudySpec.of(spec.to_doc()) == spec


def test_every_mistake_is_told_at_once() -> None:
    found = problems("""
study: LR
space:
  lr: {log: [0, 1e-2]}
  wd: {lg: [1e-6, 1e-1]}
  b: []
  d: {int: [9, 3]}
  e: {int: [1, 2], when: "x == 3"}
  f: [1, 1]
  g: {choice: [1, 2], when: "d > 2 and __import__('os')"}
  h: {choice: [1, 2], when: "b2 == 7"}
  LR: 3
objective: {minimise: val_loss}
search: randon
stop: {asha: {etta: 3}}
budget: {trials: 0, cost: 300 USD, until: yesterday, paralel: 3}
confirm: {top: 3, seeds: x}
pools: [l5]
constraint: 3
""")
    assert len(found) >= 18
    for where, word in {
        "study": "lr", "space.lr.log": "logarithm", "space.wd.lg": "Did you mean `log`?", "space.b": "0 values",
        "space.d.int": "[3, 9]", "space.e.when": "no 'x'", "space.f": "1 twice", "space.g.when": "not allowed",
        "objective.minimise": "minimize", "search": "random", "stop.asha.etta": "eta", "budget.trials": "from 1",
        "budget.cost": "EUR", "budget.until": "2 days", "budget.paralel": "parallel", "confirm.seeds": "whole number",
        "pools": "l4", "constraint": "constraints",
    }.items():  # fmt: skip
        assert word in found[where], (where, found[where])


@pytest.mark.parametrize(
    ("change", "where", "word"),
    [
        ("space: {}", "space", "no parameters"),
        ("space: {a: {int: [1, 3]}, b: {value: 1, when: \"a == 9\"}}", "space.b.when", "can hold"),
        ("space: {a: {float: [0, 1]}, A: [1, 2]}", "space.A", "both A in the environment"),
        ("space: {rank: [1, 2]}", "space.rank", "RANK"),
        ("space: {a: {float: [0, .inf]}}", "space.a.float", "numbers"),
        ("space: {a: [.nan, 1]}", "space.a", "finite"),
        ("space: {a: {int: [0.5, 3]}}", "space.a.int", "whole numbers"),
        ("space: {a: {float: [0, 1, 3]}}", "space.a.float", "step"),
        ("objective: [{minimize: a}, {maximize: a}]", "objective", "twice"),
        ("objective: {minimize: a, maximize: b}", "objective", "both"),
        ("budget: {parallel: 3}", "budget", "no end"),
        ("enqueue: [{lr: 7}]", "enqueue[0].lr", "0 to 1"),
        ("enqueue: [{}]", "enqueue[0].lr", "nothing"),
        ("worth: {0.01: much}", "worth.0.01", "amount"),
        ("params: {arguments: \"--lr\"}", "params.arguments", "{name}"),
        ("warm_start: all", "warm_start", "runs where"),
        ("replicates: 0", "replicates", "from 1"),
        ("stop: {asha: {}, median: {}}", "stop", "one name"),
        ("stop: {asha: {by: step}}", "stop.asha", "the step at which the program ends"),
        ("stop: {hyperband: {max: 9, brackets: 9}}", "stop.hyperband", "3 brackets"),
        ("constraints: [\"7 < 8\"]", "constraints[0]", "no metric"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_place(change: str, where: str, word: str) -> None:
    base = {
        "space": "{lr: {float: [0, 1]}}",
        "objective": "{minimize: loss}",
        "search": "random",
        "budget": "{trials: 3}",
    }
    key, _, value = change.partition(": ")
    text = "\n".join(f"{name}: {given}" for name, given in {**base, key: value}.items())
    found = problems(text)
    assert word in found[where], found


def test_a_grid_needs_no_other_end() -> None:
    spec = parsed("space: {a: [1, 2]}\nobjective: {minimize: loss}\nsearch: random")
    assert (spec.trials, spec.space.size) == (None, 2)


def test_limits_of_a_request_replace_those_of_the_file() -> None:
    spec = parsed(WHOLE, limits={"trials": 400, "until": "1970-01-02T00:00Z"})
    assert (spec.trials, spec.parallel, spec.until) == (400, 16, 85_400.0)


def test_a_job_that_no_trial_can_be_is_refused() -> None:
    site = Site(job=parse_job("run: true\narray: 1-3"))
    assert "array" in problems(WHOLE.replace(" EUR", "").replace("pools: [l4, h100]", ""), site)["job"]


class TestTheJobOfATrial:
    def test_it_has_the_parameters_as_variables(self) -> None:
        spec = parsed(WHOLE)
        made = trial_spec(spec, base_spec(spec), "lr-7", {"lr": 3e-5, "flag": True, "model": "deep"}, seed=4)
        assert made.envs == {"A": "b", "LR": "3e-05", "FLAG": "true", "MODEL": "deep", "SEED": "4"}
        assert (made.name, made.parent, made.kind, made.needs, made.run) == (
            "lr-and-decay", "lr-7", "sweep", {}, "python train.py",
        )  # fmt: skip
        assert (made.queue, made.tags) == ("research", {"family": "gpt"})

    def test_or_as_arguments_that_no_shell_reads_otherwise(self) -> None:
        spec = parsed(f'{WHOLE}\nparams: {{arguments: "{{name}}={{value}}"}}')
        made = trial_spec(spec, base_spec(spec), "lr-7", {"lr": 0.1, "model": "a b; rm -rf $HOME"})
        assert made.run == "python train.py lr=0.1 'model=a b; rm -rf $HOME'"

    def test_or_in_a_file(self) -> None:
        spec = parsed(f"{WHOLE}\nparams: config")
        assert trial_spec(spec, base_spec(spec), "lr-7", {}).run == 'python train.py --config "$MUSTER_PARAMS_FILE"'

    def test_the_study_itself_has_no_nodes_and_the_queue_of_its_trials(self) -> None:
        made = study_spec(parsed(WHOLE), "language", "which learning rate")
        assert (made.num_nodes, made.kind, made.project, made.queue) == (0, "sweep", "language", "research")
        assert (made.purpose, made.tags) == ("which learning rate", {"family": "gpt"})
