"""The policy in plain language: no rule can be changed without a change of the words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from muster.core.entities import Queue
from muster.core.policy_file import parse_rules
from muster.core.policy_notes import NOTES
from muster.core.rules import QueueRules, Rules
from muster.sched.describe import describe
from muster.sched.policies import POLICIES
from rule_kit import (
    efficiency_needs,
    guard_rules,
    keeps,
    maintenances,
    metric_needs,
    names,
    pool_rules,
    preemptions,
    preflight_rules,
    project_rules,
    queue_rules,
    rules,
    seconds,
    stages,
    targets,
    windows,
)

Path = tuple[str, ...]


def text(made: Rules, queues: tuple[Queue, ...] = (Queue("default"),)) -> str:
    return "\n".join(line for part in describe(made, queues) for line in (part.title, *part.lines))


def lines(policy: str, name: str, about: str = "queue", **queue: Any) -> list[str]:
    made = describe(parse_rules(policy, orders=POLICIES), [Queue("research", "language", **queue)])
    return list(next(part.lines for part in made if (part.about, part.name) == (about, name)))


def test_what_a_team_lead_reads():
    policy = """
    between: fair
    queues:
      research: {order: shortest, quota: {A100: 16}, weight: 2, max_per_user: 3, backfill: easy}
    """
    assert lines(policy, "research", max_priority=60) == [
        "Jobs of research start in this order: higher priority first, then the shortest expected run time. "
        "Others pass the first in line only where that does not delay it.",
        "A job that has waited 2 d in all goes first and gives way to nobody.",
        "16 A100 are its own; it may borrow what is idle; what it leaves idle is lent, and comes back within 5 min by "
        "preemption.",
        "Under fair share its weight is 2.",
        "At most 3 jobs of one user run at once.",
        "It admits jobs of priority 0 to 60.",
    ]
    assert lines(policy, "", "cluster")[0] == (
        "Queues share fairly: the one that has had the least for its weight goes first."
    )
    pool = lines("pools: {p: {off_peak: mon-fri 20:00-06:00, kinds: [eval]}}", "p", "pool")
    assert pool == ["It is only for eval jobs.", "Its quiet hours, in UTC, are mon-fri 20:00-06:00."]


def test_what_the_guards_do():
    policy = """
    guards:
    - {check: secrets, action: warn, projects: [sandbox, play]}
    - {check: images, action: refuse, environments: [production], approved: ["r.example/*@sha256:*"], limit: 20GB}
    - {check: advisories, action: warn, severity: critical}
    """
    found = lines(policy, "", "cluster")[-10:]
    assert found == [
        "For jobs of project sandbox or play: secrets in code, job files and environment variables are told to who "
        "submits.",
        "For jobs in the environment production: images that are not approved are refused. Approved: "
        "`r.example/*@sha256:*`. The limit is 20GB.",
        "Packages with a known vulnerability are told to who submits. It counts from the severity critical on.",
        "For all other jobs: secrets in code, job files and environment variables are refused.",
        "Files above the limit in a working directory are told to who submits. The limit is 100MB.",
        "Outputs in notebooks are told to who submits.",
        "Artifacts that could run code when they are loaded are quarantined.",
        "For all other jobs: images that are not approved are not looked for.",
        "Environments that are not approved are not looked for.",
        "Trainings that need more memory than their accelerators have are told to who submits.",
    ]


def test_every_queue_has_a_section_and_so_have_those_to_come():
    made = parse_rules("defaults: {order: fifo}\nqueues: {b: {weight: 2}}", orders=POLICIES)
    found = [(part.about, part.name, part.title) for part in describe(made, [Queue("a"), Queue("default")])]
    assert found == [
        ("cluster", "", "The whole cluster"),
        ("queue", "a", "Queue a of project default"),
        ("queue", "b", "Queue b (there is none yet)"),
        ("queue", "default", "Queue default of project default"),
        ("queue", "", "Any other queue"),
    ]
    assert all(part.lines for part in describe(made, []))
    assert len(describe(Rules(), [])) == 1


def test_an_order_that_is_gone_is_still_told():
    made = Rules(queues={"q": QueueRules(order="gone")})
    assert "Jobs of q start in this order: `gone`." in text(made)


# --- nothing is left out ----------------------------------------------------------------------------------------------
bases = st.builds(Rules, between=st.sampled_from(["rank", "fair"]), preemption=preemptions, reclaim=seconds)
escalations = st.fixed_dictionaries({"after": seconds, "to": st.integers(0, 100)})
# Where each model stands, and how another of it is made; fields without one of their own are taken from that.
MODELS: dict[str, tuple[Path, st.SearchStrategy[Any]]] = {
    "Rules": ((), rules()),  # whole policies, for what stands at the top
    "Preemption": (("preemption",), preemptions),
    "Target": (("targets", "trial"), targets),
    "QueueRules": (("queues", "q"), queue_rules()),
    "defaults": (("defaults",), queue_rules()),
    "Escalation": (("queues", "q", "escalation"), escalations),
    "PoolRules": (("pools", "p"), pool_rules),
    "Window": (("pools", "p", "off_peak", "0"), windows()),
    "Maintenance": (("pools", "p", "maintenance", "0"), maintenances()),
    "ProjectRules": (("projects", "x"), project_rules),
    "Keep": (("projects", "x", "keep"), keeps),
    "PreflightRule": (("preflight", "0"), preflight_rules()),
    "GuardRule": (("guards", "0"), guard_rules()),
    "StageRules": (("promotion", "large"), stages),
    "MetricNeed": (("promotion", "large", "metric"), metric_needs),
    "EfficiencyNeed": (("promotion", "large", "efficiency"), efficiency_needs),
}
FIELDS = [
    (where, name)
    for model, notes in NOTES.items()
    for where in ([model.__name__, "defaults"] if model is QueueRules else [model.__name__])
    for name in notes
    if name != "version"  # there is one
]


def test_every_field_is_tried():
    assert {where for where, _ in FIELDS} == set(MODELS)
    assert {("QueueRules", name) for name in QueueRules.model_fields} <= set(FIELDS)


@pytest.mark.parametrize("where", MODELS)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_no_rule_changes_in_silence(where: str, data: st.DataObject) -> None:
    """Each field of a section is changed alone, to its value in another one."""
    path, strategy = MODELS[where]
    before = complete(data.draw(bases), data)
    other = data.draw(strategy.map(plain).filter(lambda made: made != plain(at(before, path))))
    said = text(before)
    for name in [name for model, name in FIELDS if model == where]:
        document = before.model_dump()
        place = at(document, path)
        value = data.draw(names) if name == "parent" else other[name]
        if place[name] != value:
            place[name] = value
            assert text(Rules.model_validate(document)) != said, name


def complete(made: Rules, data: st.DataObject) -> Rules:
    """With one of everything, so that there is something to change."""
    queue = data.draw(queue_rules()).model_copy(update={"escalation": data.draw(escalations)})
    pool = data.draw(pool_rules).model_copy(
        update={"off_peak": (data.draw(windows()),), "maintenance": (data.draw(maintenances()),)}
    )
    needs = {"metric": data.draw(metric_needs), "efficiency": data.draw(efficiency_needs)}
    added = {
        "promotion": {"large": data.draw(stages).model_copy(update=needs)},
        "targets": {**made.targets, "trial": data.draw(targets)},
        "queues": {**made.queues, "q": queue},
        "pools": {**made.pools, "p": pool},
        "projects": {**made.projects, "x": data.draw(project_rules)},
        "preflight": (data.draw(preflight_rules()),),
        "guards": (data.draw(guard_rules()),),
    }
    return Rules.model_validate(made.model_copy(update=added).model_dump(warnings=False))


def plain(made: Any) -> Any:
    return made.model_dump() if isinstance(made, BaseModel) else made


def at(made: Any, path: Path) -> Any:
    for part in path:
        if isinstance(made, BaseModel):
            made = getattr(made, part)
        else:
            made = made[int(part)] if isinstance(made, list | tuple) else made[part]
    return made
