"""What if: every change is made to the cluster, the rules and the trace that it is of, and to nothing else."""

from __future__ import annotations

import pytest

from muster.core.errors import SpecError
from muster.core.rules import QueueRules, Rules, Target
from muster.sim.cluster import ClusterFile
from muster.sim.model import Cluster, PoolShape, TraceJob
from muster.sim.presets import PRESETS, find_policy
from muster.sim.whatif import Changes, caveats, changed_cluster, changed_rules, fitted, make_setup, with_load

TWO = Cluster((PoolShape("a100", 4, 8, "A100"), PoolShape("h100", 2, 8, "H100")), {"q": "a100"})
VIRTUAL = ClusterFile("t.json", Cluster((PoolShape("v100", 5, 8, "V100"),)), {"x": 2, "y": 3})
JOBS = [TraceJob(str(n), 100.0 + 10 * n, 5.0, accelerators=1, accelerator="V100") for n in range(5)]


def test_a_load_squeezes_the_times_of_submission_alone():
    assert [job.submit for job in with_load(JOBS, 2.0, None)] == [100.0, 105.0, 110.0, 115.0, 120.0]
    assert [job.duration for job in with_load(JOBS, 2.0, None)] == [5.0] * 5
    assert [job.id for job in with_load(JOBS, 0.5, 2)] == ["0", "1"]
    assert with_load(JOBS, 1.0, None) == JOBS


def test_kinds_that_the_cluster_does_not_have_become_any():
    jobs, notes = fitted(JOBS, TWO)
    assert {job.accelerator for job in jobs} == {""}
    assert notes == ["V100 is no kind of accelerator that the cluster has; jobs that asked for it take any kind."]
    assert fitted(JOBS, VIRTUAL.cluster) == (JOBS, [])


def test_nodes_are_added_and_removed():
    found = changed_cluster(TWO, [("a100", 3), ("h100", -1), ("a100", -2)])
    assert [(pool.name, pool.nodes) for pool in found.pools] == [("a100", 5), ("h100", 1)]
    assert found.bound == TWO.bound
    assert changed_cluster(VIRTUAL.cluster, [("", 4)]).pools[0].nodes == 9


@pytest.mark.parametrize(
    ("change", "where", "hint"),
    [
        (("a10", 1), "--add-nodes a10=1", "Did you mean 'a100'?"),
        (("zzz", -1), "--remove-nodes zzz=1", "There are: a100, h100."),
        (("", 1), "--add-nodes 1", "There are: a100, h100."),
        (("h100", -2), "--remove-nodes h100=2", "Remove at most 1."),
    ],
)
def test_a_change_that_does_not_fit_is_told(change, where, hint):
    with pytest.raises(SpecError) as caught:
        changed_cluster(TWO, [change])
    (problem,) = caught.value.problems
    assert (problem.where, problem.hint) == (where, hint)


def test_any_field_of_a_policy_may_be_set_as_it_is_written_there():
    rules = changed_rules(
        Rules(queues={"x": QueueRules(weight=3.0, quota={"v100": 1})}, targets={"single": Target(wait=60.0)}),
        [
            (("preemption", "grace"), "30s"),
            (("queues", "x", "weight"), "2"),
            (("queues", "y", "order"), "fifo"),
            (("defaults", "pools"), ["v100"]),
            (("targets", "single", "high"), "10s"),
        ],
    )
    assert rules.preemption.grace == 30.0
    assert rules.queues["x"] == QueueRules(weight=2.0, quota={"v100": 1}, pools=("v100",))
    assert (rules.queues["y"].order, rules.queues["y"].pools) == ("fifo", ("v100",))
    assert rules.targets["single"] == Target(wait=60.0, high=10.0)
    assert changed_rules(rules, []) is rules


def test_a_section_that_is_written_as_one_value_is_written_out():
    rules = changed_rules(PRESETS.get("fifo").rules, [(("preemption", "grace"), "5s")])
    assert (rules.preemption.enabled, rules.preemption.grace) == (False, 5.0)


@pytest.mark.parametrize("path", [("preemptoin", "grace"), ("preemption", "grice"), ("round",)])
def test_what_no_policy_has_is_refused(path):
    with pytest.raises(SpecError):
        changed_rules(Rules(), [(path, "soon")])


def test_a_setup_has_its_quotas_and_then_what_was_asked_for():
    changes = Changes(nodes=(("", 1),), quotas=(("x", "", "4"),), settings=((("queues", "y", "weight"), "2"),))
    found = make_setup("fifo", PRESETS.get("fifo"), VIRTUAL, "shared", changes)
    assert found.cluster.pools[0].nodes == 6
    assert found.rules.queues["x"].quota == {"v100": 4}
    assert (found.rules.queues["y"].quota, found.rules.queues["y"].weight) == ({"v100": 24}, 2.0)
    assert caveats(found, JOBS) == []


def test_rules_that_the_cluster_can_not_meet_are_doubted():
    changes = Changes(nodes=(("", -3),))
    (words,) = caveats(make_setup("fair", PRESETS.get("fair"), VIRTUAL, "shared", changes), JOBS)
    assert words.startswith("fair: queues: got 40 v100 of quota")


def test_every_preset_can_be_found_and_is_told_about():
    for name in PRESETS:
        found, preset = find_policy(name)
        assert found == name
        assert preset.about
        assert preset.exact is (name == "sjf")


def test_a_policy_file_is_named_after_itself(tmp_path):
    path = tmp_path / "night.yaml"
    path.write_text("between: fair\n")
    name, preset = find_policy(str(path))
    assert (name, preset.rules) == ("night", Rules(between="fair"))


def test_a_policy_that_does_not_exist_is_answered_with_one_that_does():
    with pytest.raises(SpecError) as caught:
        find_policy("fifoo")
    assert caught.value.problems[0].hint == "Did you mean 'fifo'?"
