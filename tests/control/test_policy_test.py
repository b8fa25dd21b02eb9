"""Cases of a policy through the real admission checks, without a server; files of cases that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.control.policy_cases import read_cases
from muster.control.policy_test import PolicyTest, check_policy
from muster.core.errors import SpecError

POLICY = """
queues: {research: {quota: {a100: 16}, borrow: none}}
projects: {language: {require: [purpose], missing: refuse}}
pools: {l4: {kinds: [session]}}
"""
CLUSTER = """
cluster:
  projects: {language: {ada: admin, bob: member, eve: viewer}, vision: {bob: member}}
  queues: {research: {project: language, max_priority: 75}}
  pools:
    a100: {nodes: 4, accelerators: "A100:8", cpus: 64, memory: 512GB}
    l4: {accelerators: "L4:1", cpus: 8}
  secrets: {language: [HF_TOKEN]}
"""
JOB = "{run: python t.py, project: language, queue: research, purpose: why, gpus: 'A100:8'"


def run(folder: Path, cases: str, policy: str = POLICY, cluster: str = CLUSTER) -> PolicyTest:
    return check_policy(policy, f"{cluster}\ncases:\n{cases}", folder, "policy.yaml", "tests.yaml")


def case(job: str, expect: str, **more: str) -> str:
    return f"- {{job: {job}, expect: {expect}{''.join(f', {key}: {value}' for key, value in more.items())}}}\n"


@pytest.mark.parametrize(
    ("job", "expect", "more"),
    [
        (JOB + "}", "accepted", {"user": "bob"}),
        (JOB + ", secrets: [HF_TOKEN]}", "accepted", {}),
        (JOB + ", secrets: [OTHER]}", "{refused: unknown_secret}", {}),
        (JOB + ", num_nodes: 3}", "{refused: never_allowed}", {"user": "ada"}),
        (JOB + ", num_nodes: 5}", "{refused: [never_fits, never_allowed]}", {}),
        (JOB + ", pool: l4}", "refused", {}),
        ("{run: x, project: language, queue: research}", "{refused: required_missing}", {}),
        (JOB + ", priority: urgent}", "{refused: priority_out_of_range}", {}),
        ("{run: x, project: vision, queue: nowhere}", "{refused: unknown_queue}", {}),
        (JOB + "}", "{refused: not_allowed}", {"user": "eve"}),
        (JOB + "}", "{refused: not_allowed}", {"role": "viewer"}),
        (JOB + "}", "accepted", {"role": "superuser"}),
        (JOB + "}", "{refused: wrong_project}", {"project": "vision", "user": "bob"}),
        ("{run: x, envs: {API_TOKEN: ghp_" + "9Fq3LmZ8xKp2VtR7sWn4YbD6hJc1AeUo5iGk}}", "refused", {}),
        ("{run: x, image: 'other.example/a:1', project: vision}", "accepted", {}),
        ("{run: x, nodez: 3}", "{refused: bad_spec}", {}),
    ],
)
def test_a_case_passes_as_admission_says(tmp_path: Path, job: str, expect: str, more: dict[str, str]) -> None:
    found = run(tmp_path, case(job, expect, **more))
    assert [one.wrong for one in found.results] == [""], found.results
    assert found.passed


def test_guards_of_images_are_tested_by_name(tmp_path: Path) -> None:
    policy = "guards: [{check: images, action: refuse, projects: [vision], approved: ['reg.example/*@sha256:*']}, " \
        "{check: images, action: warn, approved: ['reg.example/*']}]"  # fmt: skip
    digest = "sha256:" + "a" * 64
    cases = case("{run: x, project: vision, image: 'reg.example/a:1'}", "{refused: image_not_approved}")
    cases += case(f"{{run: x, project: vision, image: 'reg.example/a@{digest}'}}", "accepted")
    cases += case("{run: x, image: 'other.example/a:1'}", "{warned: none that the policy approves}")
    cases += case("{run: x, image: 'reg.example/a:1'}", "accepted")
    found = run(tmp_path, cases, policy)
    assert found.passed, found


def test_a_difference_is_told(tmp_path: Path) -> None:
    cases = case(JOB + "}", "refused") + case(JOB + ", num_nodes: 3}", "accepted")
    cases += case(JOB + ", num_nodes: 3}", "{refused: never_fits}") + case(JOB + "}", "{warned: cost}")
    found = run(tmp_path, cases)
    assert [one.wrong for one in found.results] == [
        "expected refused, got accepted",
        "expected accepted, got refused for never_allowed",
        "not refused for never_fits; refused for never_allowed too",
        "expected warned, got accepted",
    ]
    assert not found.passed
    assert "policy apply" in found.results[1].said.details[0], "it says who can grant it"


def test_a_refusal_names_the_people_who_can_grant_it(tmp_path: Path) -> None:
    (one,) = run(tmp_path, case(JOB + ", priority: urgent}", "refused")).results
    assert one.said.details[0].endswith("ada (an admin of the project) can grant it.")


def test_a_case_may_be_a_job_file_or_text(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "gpt.yaml").write_text("run: python t.py\nproject: vision\n")
    cases = "- {file: jobs/gpt.yaml, expect: accepted}\n- {job: 'run: true', expect: accepted}\n"
    cases += "- {file: jobs/none.yaml, expect: {refused: bad_spec}}\n"
    assert run(tmp_path, cases).passed


def test_a_policy_that_does_not_fit_the_cluster_fails(tmp_path: Path) -> None:
    policy = "queues: {research: {quota: {a100: 99}}, gone: {weight: 2}}"
    found = run(tmp_path, case("{run: x}", "accepted"), policy)
    assert [problem.where for problem in found.problems] == ["queues.gone", "queues"]
    assert not found.passed
    with pytest.raises(SpecError, match="a tree of queues"):
        run(tmp_path, case("{run: x}", "accepted"), "queues: {a: {parent: b}, b: {parent: a}}")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("cases: 5", "cases"),
        ("{}", "cases"),
        ("cases: [{job: {run: x}, expect: perhaps}]", "cases[0].expect"),
        ("cases: [{job: {run: x}, expect: {refused: never_allow}}]", "cases[0].expect.refused"),
        ("cases: [{job: {run: x}, expect: {refused: completed}}]", "cases[0].expect.refused"),
        ("cases: [{expect: accepted}]", "cases[0]"),
        ("cases: [{job: {run: x}, file: y, expect: accepted}]", "cases[0]"),
        ("cases: [{job: {run: x}, expect: accepted, who: me}]", "cases[0].who"),
        ("cases: [5]", "cases[0].expect"),
        ("cases: []\ncluster: {pools: {a: {nodes: 99999999}}}", "cluster.pools.a.nodes"),
        ("cases: []\ncluster: {projects: {a: {bob: owner}}}", "cluster.projects"),
        ("a: [*b]", "line 1"),
        ("- x", "whole file"),
    ],
)
def test_a_file_of_cases_that_is_wrong_is_told(text: str, where: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_cases(text, "tests.yaml")
    assert any(where in str(problem) for problem in refused.value.problems), str(refused.value)


def test_resources_that_can_not_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cluster\.pools\.a"):
        run(tmp_path, case("{run: x}", "accepted"), "{}", "cluster: {pools: {a: {memory: lots}}}")
