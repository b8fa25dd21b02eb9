"""Policy files, good and bad: every form, every mistake in its place and all of them at once, and the way back."""

from __future__ import annotations

from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.errors import SpecError
from muster.core.policy_check import check_rules
from muster.core.policy_dump import dump_rules
from muster.core.policy_file import parse_rules
from muster.core.policy_notes import FIELDS, NOTES, PLACES
from muster.core.policy_schema import policy_schema
from muster.core.policy_units import format_window
from muster.core.rules import (
    CHECKS,
    EfficiencyNeed,
    Escalation,
    GuardRule,
    Keep,
    Maintenance,
    MetricNeed,
    PoolRules,
    Preemption,
    PreflightRule,
    ProjectRules,
    QueueRules,
    Rules,
    StageRules,
    Target,
    Window,
)
from muster.sched.policies import POLICIES
from rule_kit import ORDERS, rules, windows

ROOT = Path(__file__).parents[2]
EXAMPLE = """
between: fair
half_life: 3d
reclaim: 10m
preemption: {grace: 2m, min_run: 10m}
targets: {evaluation: 10m, session: {wait: 2m, high: 30s}}
defaults: {order: shortest, backfill: easy, ageing: never}
queues:
  language:
    weight: 3
    quota: {a100: 24, h100: 8}
  pretraining: {parent: language, quota: {a100: 16}, borrow: {a100: 8}, escalation: {after: 4h, to: high}}
  scratch: {quota: none, borrow: all, lend: no, max_per_user: 2, slice: 30m, preempts: false, users: {ada: 2}}
pools:
  a100:
    off_peak: [mon-fri 20:00-06:00, {days: [sat, sun], from: "00:00", to: "24:00"}]
    maintenance: {from: 2026-11-20T08:00Z, to: 2026-11-20T14:00+02:00, nodes: [n1], why: new switches}
projects: {language: {weight: 2, max_accelerators: 64}}
"""


def parse(text: object) -> Rules:
    return parse_rules(text, orders=ORDERS)  # type: ignore[arg-type]


def problems(text):
    with pytest.raises(SpecError) as caught:
        parse(text)
    return caught.value.problems


def only(text):
    (problem,) = problems(text)
    return problem


def test_the_example():
    usual = {"order": "shortest", "backfill": "easy", "ageing": None}
    assert parse(EXAMPLE) == Rules(
        between="fair",
        half_life=3 * 86_400,
        reclaim=600,
        preemption=Preemption(grace=120, min_run=600),
        targets={"evaluation": Target(wait=600, high=300), "session": Target(wait=120, high=30)},
        defaults=QueueRules(**usual),
        queues={
            "language": QueueRules(**usual, weight=3, quota={"a100": 24, "h100": 8}),
            "pretraining": QueueRules(
                **usual, parent="language", quota={"a100": 16}, borrow={"a100": 8},
                escalation=Escalation(after=14_400, to=75),
            ),
            "scratch": QueueRules(
                **usual, lend=False, max_per_user=2, slice=1800, preempts=False, users={"ada": 2}, quota={}, borrow=None
            ),
        },
        pools={
            "a100": PoolRules(
                off_peak=(
                    Window(days=("mon", "tue", "wed", "thu", "fri"), start=72_000, end=21_600),
                    Window(days=("sat", "sun")),
                ),
                maintenance=(Maintenance(start=1795161600, end=1795176000, nodes=("n1",), why="new switches"),),
            )
        },
        projects={"language": ProjectRules(weight=2, max_accelerators=64)},
    )  # fmt: skip


def test_a_queue_says_only_what_differs_from_the_defaults():
    found = parse(
        "defaults: {order: fifo, quota: {a100: 4}, max_running: 3, parent: top, escalation: {after: 1h, to: 90}}\n"
        "queues: {top: {parent: none, quota: {a100: 9}}, b: {max_running: unlimited, escalation: never}, c: }\n"
    )
    assert (found.queues["top"].parent, found.queues["c"].parent) == (None, "top")
    assert (found.queues["b"].order, found.queues["b"].max_running, found.queues["b"].escalation) == (
        "fifo",
        None,
        None,
    )
    assert found.queues["c"] == found.defaults
    assert found.queue("nowhere").max_running == 3
    # What a queue says of its quota is the whole of it: pools are not added to those of the defaults.
    assert parse("defaults: {quota: {a: 4}}\nqueues: {b: {quota: {b: 2}}}").queues["b"].quota == {"b": 2}


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("pools: {a100: }\nqueues: {q: {quota: 16}}", {"a100": 16}),
        ("queues: {q: {pools: [h100], quota: 16}}", {"h100": 16}),
        ("pools: {a: , b: }\nqueues: {q: {pools: [b], quota: 16}}", {"b": 16}),
        ("defaults: {pools: [h100]}\nqueues: {q: {quota: 16}}", {"h100": 16}),
        ("queues: {q: {quota: none}}", {}),
    ],
)
def test_a_bare_quota_is_of_the_only_pool(text, quota):
    assert parse(text).queues["q"].quota == quota


@pytest.mark.parametrize("text", ["queues: {q: {quota: 16}}", "pools: {a: , b: }\nqueues: {q: {quota: 16}}"])
def test_a_bare_quota_of_one_of_several_pools_is_no_quota(text):
    problem = only(text)
    assert problem.where.startswith("queues.q.quota")
    assert problem.hint.startswith("Say of which pool: `quota: {a")


def test_what_may_be_borrowed():
    read = {word: parse(f"queues: {{q: {{borrow: {word}}}}}").queues["q"].borrow for word in ("all", "none", "{a: 3}")}
    assert read == {"all": None, "none": {}, "{a: 3}": {"a": 3}}
    assert parse("defaults: {borrow: none}\nqueues: {q: {borrow: all}}").queues["q"].borrow is None


WEEK = ("mon", "tue", "wed", "thu", "fri")


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("mon-fri 20:00-06:00", Window(days=WEEK, start=72_000, end=21_600)),
        ("Mon - Fri  20:00 - 6:00", Window(days=WEEK, start=72_000, end=21_600)),
        ("weekdays 20:00-00:00", Window(days=WEEK, start=72_000)),
        ("20:00-06:00", Window(start=72_000, end=21_600)),
        ("sat,sun", Window(days=("sat", "sun"))),
        ("weekends", Window(days=("sat", "sun"))),
        ("sat-mon", Window(days=("mon", "sat", "sun"))),
        ("wednesday, friday 08:30-08:30:15", Window(days=("wed", "fri"), start=30_600, end=30_615)),
        ("daily 00:00-24:00", Window()),
        ("{days: mon-fri, from: '20:00', to: 06:00}", Window(days=WEEK, start=72_000, end=21_600)),
        ("{days: [fri, mon]}", Window(days=("mon", "fri"))),
        ("{from: 20:00}", Window(start=72_000)),
        ("{}", Window()),
    ],
)
def test_hours(written, window):
    text = written if written.startswith("{") else f"'{written}'"
    assert parse(f"pools: {{p: {{off_peak: {text}}}}}").pools["p"].off_peak == (window,)


@given(windows())
def test_hours_round_trip(window):
    assert parse({"pools": {"p": {"off_peak": format_window(window)}}}).pools["p"].off_peak == (window,)


# --- mistakes ---------------------------------------------------------------------------------------------------------
def test_many_mistakes_are_as_many_problems():
    text = (
        "betwen: fair\n"
        "half_life: 0s\n"
        "defaults: {order: shortst}\n"
        "queues:\n"
        "  a: {parent: b, weight: -1}\n"
        "  b: {parent: a}\n"
        "  c: {parent: d}\n"
        "pools:\n"
        "  p:\n"
        "    maintenance: [{from: 2026-11-20T08:00Z, to: 2026-11-20T08:00Z}]\n"
        "targets: {trials: 5m}\n"
    )
    found = problems(text)
    assert [(p.where, p.given) for p in found] == [
        ("betwen (line 1)", "a key that does not exist"),
        ("half_life (line 2)", "'0s'"),
        ("defaults.order (line 3)", "'shortst'"),
        ("queues.a.weight (line 5)", "-1"),
        ("queues.a.parent (line 5)", "a → b → a"),
        ("queues.c.parent (line 7)", "'d'"),
        ("pools.p.maintenance[0] (line 10)", "from 2026-11-20T08:00Z to 2026-11-20T08:00Z"),
        ("targets.trials (line 11)", "'5m'"),
    ]
    assert found[2].hint == "Did you mean `shortest`? There are: fifo, priority, attained, predicted, shortest."
    assert all(p.expected and p.hint for p in found)
    with pytest.raises(SpecError, match=r"^policy has 8 mistakes\.\n") as caught:
        parse(text)
    assert caught.value.hint == "Mend each and apply it again; the rules in force stay as they are."


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("", "the whole file", "between: fair"),
        ("- a", "the whole file", "a mapping such as"),
        ("version: 2", "version", "`1`"),
        ("between: fare", "between", "Did you mean `fair`?"),
        ("between: [fair]", "between", "`rank` or `fair`"),
        ("weight: 2", "weight", "under `defaults`, or in a queue under `queues`"),
        ("queues: {q: {between: fair}}", "queues.q.between", "It stands at the top level."),
        ("queues: {q: {wieght: 2}}", "queues.q.wieght", "Did you mean `weight`?"),
        ("queues: {q: {policy: fifo}}", "queues.q.policy", "There are: parent, weight"),
        ("queues: {q: {weight: 0}}", "queues.q.weight", "a number above 0"),
        ("queues: {q: {weight: -2}}", "queues.q.weight", "a number above 0"),
        ("queues: {q: {weight: nan}}", "queues.q.weight", "a number above 0"),
        ("queues: {q: {weight: .inf}}", "queues.q.weight", "a number above 0"),
        ("queues: {q: {users: {ada: 0}}}", "queues.q.users.ada", "weights above 0"),
        ("queues: {q: {users: [ada]}}", "queues.q.users", "a mapping of users"),
        ("queues: {q: {users: {ada: much}}}", "queues.q.users.ada", "weights above 0"),
        ("queues: {q: {quota: {a: -1}}}", "queues.q.quota.a", "a mapping of pools"),
        ("queues: {q: {quota: {a b: 1}}}", "queues.q.quota['a b']", "a mapping of pools"),
        ("queues: {q: {quota: [1]}}", "queues.q.quota", "a mapping of pools"),
        ("queues: {q: {quota: all}}", "queues.q.quota", "a mapping of pools"),
        ("queues: {q: {borrow: al}}", "queues.q.borrow", "Did you mean `all`?"),
        ("queues: {q: {quota: {b: 1}, pools: [a]}}", "queues.q.quota.b", "Add `b` to its `pools`"),
        ("queues: {q: {borrow: {b: 1}, pools: [a]}}", "queues.q.borrow.b", "Add `b` to its `pools`"),
        ("queues: {q: {max_running: 0}}", "queues.q.max_running", "a whole number from 1, or `unlimited`"),
        ("queues: {q: {max_running: unlimitd}}", "queues.q.max_running", "Did you mean `unlimited`?"),
        ("queues: {q: {ageing: -1h}}", "queues.q.ageing", "or `never`"),
        ("queues: {q: {ageing: 2:30}}", "queues.q.ageing", "write `2h30m` or `2m30s`"),
        ("queues: {q: {levels: [2h, 1h]}}", "queues.q.levels", "each longer than the one before"),
        ("defaults: {levels: [2h, 1h]}\nqueues: {q: }", "defaults.levels", "each longer than the one before"),
        ("queues: {q: {levels: [0s]}}", "queues.q.levels[0]", "durations above 0"),
        ("queues: {q: {levels: [1e400]}}", "queues.q.levels[0]", "durations above 0"),
        ("queues: {q: {overdue: nevr}}", "queues.q.overdue", "Did you mean `never`?"),
        ("queues: {q: {lend: maybe}}", "queues.q.lend", "`true` or `false`"),
        ("queues: {q: {backfill: easily}}", "queues.q.backfill", "Did you mean `easy`?"),
        ("queues: {q: {escalation: {after: 1h}}}", "queues.q.escalation", "Write, for example, `to: high`."),
        ("queues: {q: {escalation: {after: soon, to: 50}}}", "queues.q.escalation.after", "after: 4h"),
        ("queues: {q: {escalation: {after: 1h, to: 101}}}", "queues.q.escalation.to", "0 to 100"),
        ("queues: {q: {escalation: 1h}}", "queues.q.escalation", "{after: 4h, to: high}"),
        ("queues: {q: {parent: q}}", "queues.q.parent", "parent: none"),
        ("queues: {resarch: , q: {parent: research}}", "queues.q.parent", "Did you mean `resarch`?"),
        ("defaults: {parent: p}\nqueues: {q: }", "defaults.parent", "Write `p: {}` under `queues`"),
        ("queues: {a b: }", "queues['a b']", "a mapping of queues"),
        ("queues: {None: }", "queues.None", "`parent: none` means no parent."),
        ("queues: [a]", "queues", "a mapping of queues"),
        ("queues: {q: 5}", "queues.q", "what differs from `defaults`"),
        ("queues: {q: {weight: 2, weight: 3}}", "queues.q.weight", "Keep one of the two."),
        ("preemption: sometimes", "preemption", "`true` or `false`"),
        ("preemption: {margin: 0.5}", "preemption.margin", "from 1 to 1000"),
        ("preemption: [1]", "preemption", "`true` or `false`"),
        ("targets: {single: fast}", "targets.single", "a duration"),
        ("targets: {singl: 5m}", "targets.singl", "Did you mean `single`?"),
        ("targets: {single: {wait: -5}}", "targets.single.wait", "a duration"),
        ("depth: 0", "depth", "from 1 to 100000"),
        ("depth: 1.5", "depth", "from 1 to 100000"),
        ("pools: {p: {levels: [a b]}}", "pools.p.levels[0]", "node labels"),
        ("pools: {p: {slices: 0}}", "pools.p.slices", "from 1 to 1000"),
        ("pools: {p: {kinds: [training]}}", "pools.p.kinds[0]", "Did you mean `train`?"),
        ("pools: {p: {spot: perhaps}}", "pools.p.spot", "or `auto`"),
        ("pools: {p: {off_peak: 8:00-8:00}}", "pools.p.off_peak", "00:00-24:00"),
        ("pools: {p: {off_peak: 25:00-26:00}}", "pools.p.off_peak", "from `00:00` to `24:00`"),
        ("pools: {p: {off_peak: mun-fri}}", "pools.p.off_peak", "Did you mean `sun`?"),
        ("pools: {p: {off_peak: [nights]}}", "pools.p.off_peak[0]", "mon-fri 20:00-06:00"),
        ("pools: {p: {off_peak: [{days: [mo]}]}}", "pools.p.off_peak[0].days[0]", "Did you mean `mon`?"),
        ("pools: {p: {off_peak: [{days: []}]}}", "pools.p.off_peak[0]", "Leave `days` out"),
        ("pools: {p: {off_peak: [{from: 8}]}}", "pools.p.off_peak[0].from", '`"20:00"`'),
        ("pools: {p: {off_peak: [{from: 24:00}]}}", "pools.p.off_peak[0].from", "a time of day"),
        ("pools: {p: {maintenance: [{to: 2026-11-20T08:00Z}]}}", "pools.p.maintenance[0]", "from: 2026-11-20T08:00Z"),
        ("pools: {p: {maintenance: [{from: x, to: 2026-11-20T08:00Z}]}}", "pools.p.maintenance[0].from", "its zone"),
        (
            "pools: {p: {maintenance: [{from: 2026-11-20, to: 2026-11-21T08:00Z}]}}",
            "pools.p.maintenance[0].from",
            "Say the zone: `2026-11-20T00:00Z` is UTC",
        ),
        ("guards: [{check: secret, action: off}]", "guards[0].check", "Did you mean `secrets`?"),
        ("guards: [{check: secrets}]", "guards[0]", "Write, for example, `action: refuse`."),
        ("guards: [{check: secrets, action: deny}]", "guards[0].action", "`off`, `warn` or `refuse`"),
        ("guards: [secrets]", "guards[0]", "a list of mappings"),
        ("guards: [{check: notebooks, action: warn, approved: [a]}]", "guards[0]", "only for `images` or"),
        ("guards: [{check: secrets, action: warn, limit: 1GB}]", "guards[0]", "only for `large_files` or `images`"),
        ("guards: [{check: secrets, action: warn, severity: low}]", "guards[0]", "only for `advisories`"),
        ("guards: [{check: large_files, action: warn, limit: 5}]", "guards[0].limit", "Say the unit: `5GB`"),
        ("guards: [{check: images, action: refuse}]", "guards[0]", "at least one pattern in `approved`"),
        ("guards: [{check: environments, action: warn}]", "guards[0]", "or write `action: off`"),
        (
            "guards: [{check: secrets, action: warn}, {check: secrets, action: refuse, projects: [x]}]",
            "guards[1]",
            "a job that `guards[0]` does not fit already Move it up, or remove it.",
        ),
        ("projects: {x: {max_running: 0}}", "projects.x.max_running", "a whole number from 1"),
        ("projects: {x: {quota: 1}}", "projects.x.quota", "in a queue under `queues`"),
    ],
)
def test_a_mistake_says_where_and_what_to_do(text, where, words):
    problem = only(text)
    assert problem.where.split(" (line ")[0] == where
    assert words in f"{problem.expected} {problem.hint}"


def test_children_have_no_more_than_their_parent():
    text = "queues: {top: {quota: {a: 8}}, x: {parent: top, quota: {a: 6, b: 1}}, y: {parent: top, quota: {a: 4}}}"
    problem = only(text)
    assert (problem.where, problem.given) == ("queues.top.quota.a (line 1)", "8 a")
    assert problem.expected == "at least 10, the sum of the queues below it"
    assert problem.hint == "Raise it, or lower theirs: x 6, y 4."
    assert parse(text.replace("a: 8", "a: 10")).queues["top"].quota == {"a": 10}
    # One in between that says nothing of a pool only groups what is below it.
    deep = "queues: {top: {quota: {a: 8}}, mid: {parent: top}, x: {parent: mid, quota: {a: 9}}}"
    assert only(deep).hint == "Raise it, or lower theirs: x 9."
    # What could not be read is told once, and is not held against others.
    assert [p.where for p in problems(text.replace("a: 8", "a: many"))] == ["queues.top.quota.a (line 1)"]


def test_longer_rings_are_named_once_from_their_first_queue():
    found = problems("queues: {in: {parent: a}, a: {parent: b}, b: {parent: c}, c: {parent: a}, z: {parent: z}}")
    assert [(p.where, p.given) for p in found] == [
        ("queues.a.parent (line 1)", "a → b → c → a"),
        ("queues.z.parent (line 1)", "z → z"),
    ]


def test_the_first_guard_that_fits_applies_and_the_rest_is_as_usual():
    found = parse(
        "guards:\n"
        "- {check: secrets, action: off, projects: [x], environments: [dev]}\n"
        "- {check: secrets, action: warn, projects: [x, y]}\n"
        "- {check: large_files, action: refuse, environments: production}\n"
        "- {check: images, action: warn, limit: 2GB}\n"
    )
    actions = [found.guard("secrets", *who).action for who in (("x", "dev"), ("x", ""), ("y", "dev"), ("z", "dev"))]
    assert actions == ["off", "warn", "warn", "refuse"]
    assert found.guard("large_files", "x", "production") == GuardRule(
        check="large_files", action="refuse", environments=("production",), limit=100_000_000
    )
    assert found.guard("large_files", "x").action == "warn"
    assert found.guard("images", "x").limit == 2_000_000_000
    usual = [Rules().guard(check, "x").action for check in CHECKS]
    assert usual == ["refuse", "warn", "warn", "refuse", "off", "off", "off", "warn"]
    assert Rules().guard("advisories", "x").severity == "high"
    # What the reader of YAML in another program takes for a flag.
    assert parse({"guards": [{"check": "secrets", "action": False}]}).guard("secrets", "x").action == "off"


# --- against the cluster ----------------------------------------------------------------------------------------------
def checked(text, **cluster):
    found = {"pools": {"a100": 16, "h100": 8}, "queues": {"q": "x", "r": "x", "s": "y"}, "projects": ["x", "y"]}
    return [(p.where, p.given, p.hint) for p in check_rules(parse(text), **{**found, **cluster})]


def test_spares_where_the_cluster_chooses_the_machines():
    text = "pools: {a100: {spares: 2}, h100: {spares: 1}}"
    assert checked(text) == []
    ((where, given, hint),) = checked(text, delegated=["h100"])
    assert (where, given) == ("pools.h100.spares", "1")
    assert "in the cluster itself" in hint


def test_rules_that_suit_the_cluster_are_fine():
    assert (
        checked("queues: {q: {quota: {a100: 16, h100: 8}}, r: {parent: q, quota: {a100: 16}}}\nprojects: {x: }") == []
    )


@pytest.mark.parametrize(
    ("text", "where", "given", "hint"),
    [
        ("queues: {qq: }", "queues.qq", "the queue 'qq'", "Did you mean `q`?"),
        ("queues: {other: }", "queues.other", "the queue 'other'",
         "Create it with `muster queue create other`, or all that are missing with `muster queue apply --create`."),
        ("projects: {new: }", "projects.new", "the project 'new'", "Create it with `muster project create new`."),
        ("guards: [{check: secrets, action: warn, projects: [new]}]", "guards[0].projects.new", "the project 'new'",
         "Create it with `muster project create new`."),
        ("pools: {a10: }", "pools.a10", "the pool 'a10'", "Did you mean `a100`?"),
        ("pools: {tpu: }", "pools.tpu", "the pool 'tpu'", "There are: a100, h100."),
        ("defaults: {pools: [tpu]}", "defaults.pools.tpu", "the pool 'tpu'", "There are: a100, h100."),
        ("queues: {q: {quota: {tpu: 1}}}", "queues.q.quota.tpu", "the pool 'tpu'", "There are: a100, h100."),
        ("queues: {q: {borrow: {tpu: 1}}}", "queues.q.borrow.tpu", "the pool 'tpu'", "There are: a100, h100."),
        ("queues: {q: {quota: {a100: 9}}, r: {quota: {a100: 8}}}", "queues",
         "17 a100 of quota (q 9, r 8)", "Lower some of them."),
        ("defaults: {quota: {h100: 3}}\nqueues: {q: }", "queues",
         "9 h100 of quota (q 3, r 3, s 3)", "Lower some of them."),
        ("queues: {q: , s: {parent: q}}", "queues.s.parent",
         "'q', which is of project 'x', above 's'", "Quota is divided within a project: name another."),
    ],
)  # fmt: skip
def test_what_only_the_cluster_can_tell(text, where, given, hint):
    assert checked(text) == [(where, given, hint)]


def test_queues_that_no_rule_names_take_their_part_of_the_default_parent():
    text = "defaults: {parent: q, quota: {a100: 4}}\nqueues: {q: {parent: none, quota: {a100: 6}}}"
    assert checked(text, queues={"q": "x", "r": "x"}) == []
    assert checked(text, queues={"q": "x", "r": "x", "t": "x"}) == [
        ("queues.q.quota.a100", "6 a100", "Raise it, or lower theirs: r 4, t 4.")
    ]


# --- the way back -----------------------------------------------------------------------------------------------------
@settings(deadline=None, max_examples=80)
@given(rules())
def test_rules_survive_a_file(made):
    text = dump_rules(made)
    assert parse(text) == made
    assert parse(yaml.load(text, Loader=yaml.BaseLoader)) == made


@settings(deadline=None)
@given(rules())
def test_rules_survive_json(made):
    assert Rules.model_validate(made.model_dump(mode="json")) == made


def test_a_file_holds_what_differs_in_human_units():
    assert dump_rules(Rules()) == "{}\n"
    assert parse("{}") == Rules()
    text = (
        "preemption: false\ntargets:\n  single: 10m\ndefaults:\n  order: fifo\n  quota:\n    a100: 4\nqueues:\n"
        "  q:\n    ageing: never\n    quota: {}\n    borrow: none\n    escalation:\n      after: 4h\n      to: high\n"
        "pools:\n  p:\n    off_peak:\n    - mon-fri 20:00-06:00\n"
    )
    assert dump_rules(parse(text)) == text
    assert dump_rules(parse(dump_rules(parse(EXAMPLE)))) == dump_rules(parse(EXAMPLE))


# --- words and anything at all ----------------------------------------------------------------------------------------
def test_every_rule_says_what_it_is_and_its_example_is_right():
    assert set(NOTES) == set(PLACES)
    wrap = {
        Rules: "{}", Preemption: "preemption: {{{}}}", Target: "targets: {{single: {{{}}}}}",
        QueueRules: "queues: {{research: , q: {{{}}}}}", PoolRules: "pools: {{p: {{{}}}}}",
        ProjectRules: "projects: {{p: {{{}}}}}", Keep: "projects: {{p: {{artifacts: {{{}}}}}}}",
        PreflightRule: "preflight: [{{require: [unit], {}}}]",
        Window: "pools: {{p: {{off_peak: {{{}}}}}}}",
        GuardRule: "guards: {{check: notebooks, action: off, {}}}",
        StageRules: "projects: {{p: {{baseline: gpt-1}}}}\npromotion: {{medium: , large: {{{}}}}}",
        MetricNeed: "projects: {{p: {{baseline: gpt-1}}}}\npromotion: {{large: {{metric: {{name: x, {}}}}}}}",
        EfficiencyNeed: "promotion: {{large: {{efficiency: {{{}}}}}}}",
        Escalation: "defaults: {{escalation: {{after: 1h, to: 50, {}}}}}",
        Maintenance: "pools: {{p: {{maintenance: {{from: 2000-01-01T00:00Z, to: 2099-01-01T00:00Z, {}}}}}}}",
    }  # fmt: skip
    for model, notes in NOTES.items():
        assert list(notes) == list(model.model_fields)
        for name, note in notes.items():
            key = note.key or name
            shape = wrap[model]
            for given_already in (
                f"{key}: 2000-01-01T00:00Z, ",
                f"{key}: 2099-01-01T00:00Z, ",
                "after: 1h, ",
                "to: 50, ",
                "require: [unit], ",
                "check: notebooks, ",
                "action: off, ",
                "name: x, ",
            ):
                shape = shape.replace(given_already, "") if given_already.startswith(f"{key}:") else shape
            takes = {"approved": "images", "limit": "images", "severity": "advisories"}
            shape = shape.replace("notebooks", takes.get(name, "notebooks")) if model is GuardRule else shape
            parse(shape.format(f"{key}: {note.example}"))
            assert (note.expected, note.meaning) != ("", "")


def survives(raw):
    try:
        assert isinstance(parse(raw), Rules)
    except SpecError as error:
        told = error
    else:
        return
    assert told.problems
    assert all(p.where and p.given and p.expected and p.hint for p in told.problems)
    assert str(told).encode()


keys = st.sampled_from(sorted({key for names in FIELDS.values() for key in names} | {"single", "q", "p", "none"}))
words = st.sampled_from(["all", "none", "never", "unlimited", "auto", "5m", "20:00", "mon-fri", "mon 1:00-2:00", "q",
                         "1", "-1", "nan", "2026-11-20T08:00Z", "0001-01-01T00:00+10:00", "fifo", "high"])  # fmt: skip
odd = st.sampled_from([object(), b"x", {1}, float("nan"), float("inf"), 1j, True])
leaves = (
    st.none() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=5) | words | odd
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(max_size=3) | st.none(), inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(keys, trees, max_size=5))
def test_any_mapping(raw):
    survives(raw)


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, len(EXAMPLE) - 1), st.integers(0, 6), st.sampled_from([*"[]{}:,-?&*!|>'\"%@`#~= \n\t0a", "", "\n  "])
)
def test_the_example_with_a_slip(at, length, slip):
    survives(EXAMPLE[:at] + slip + EXAMPLE[at + length :])


# --- schema and page --------------------------------------------------------------------------------------------------
SCHEMA = policy_schema(ORDERS)
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


@settings(deadline=None, max_examples=100)
@given(rules())
def test_what_is_dumped_fits_the_schema(made):
    VALIDATOR.validate(yaml.safe_load(dump_rules(made)))


def test_the_schema_agrees_with_the_parser():
    jsonschema_rs.meta.validate(SCHEMA)
    for good in (
        {}, {"queues": {"q": None}}, {"pools": {"a": {}}, "queues": {"q": {"quota": 16, "borrow": "none"}}},
        {"preemption": False, "targets": {"single": "10m", "trial": {"high": 30}}},
        {"pools": {"p": {"off_peak": "mon-fri 20:00-06:00", "spot": "auto", "kinds": "eval"}}},
        {"pools": {"p": {"off_peak": [{"days": "mon-fri", "from": "20:00"}, "sat"]}}},
        {"pools": {"p": {"maintenance": {"from": "2026-11-20T08:00Z", "to": "2026-11-20T10:00:30+01:30"}}}},
        {"defaults": {"escalation": {"after": "4h", "to": "high"}, "ageing": "never", "max_running": "unlimited"}},
    ):  # fmt: skip
        VALIDATOR.validate(good)
        parse(good)
    for bad in (
        [], {"betwen": "fair"}, {"between": "fare"}, {"queues": {"a b": {}}}, {"queues": {"q": {"order": "random"}}},
        {"queues": {"q": {"quota": {"a": -1}}}}, {"queues": {"q": {"quota": "all"}}}, {"queues": {"q": {"weight": 0}}},
        {"queues": {"q": {"escalation": {"after": "4h"}}}}, {"queues": {"q": {"max_running": "none"}}},
        {"targets": {"trials": "10m"}}, {"pools": {"p": {"off_peak": [{"from": 72000}]}}}, {"version": 2},
        {"pools": {"p": {"maintenance": [{"from": "2026-11-20", "to": "2026-11-21"}]}}}, {"preemption": "maybe"},
    ):  # fmt: skip
        assert not VALIDATOR.is_valid(bad), bad
        with pytest.raises(SpecError):
            parse(bad)


def test_the_page_and_its_example():
    page = (ROOT / "docs" / "policy-file.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n")[1].split("```")[0]
    assert parse_rules(example, orders=list(POLICIES)).queues["desks"].quota == {"l4": 8}
    loaded = yaml.load(example, Loader=yaml.SafeLoader)
    assert loaded["pools"]["a100"]["maintenance"][0].pop("from")  # this reader, unlike editors, makes a time of it
    loaded["pools"]["a100"]["maintenance"] = []
    VALIDATOR.validate(loaded)
    for keys in FIELDS.values():
        assert all(f"| `{key}` |" in page for key in keys)
