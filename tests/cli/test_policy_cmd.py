"""`muster policy`: cases without a server, and a policy tried on the jobs of a real one."""

from __future__ import annotations

from pathlib import Path

CASES = """
cluster: {pools: {gpu: {accelerators: "H100:8"}}}
cases:
  - {name: small, job: {run: x, gpus: 2}, expect: accepted}
  - {name: large, job: {run: x, gpus: 8, num_nodes: 2}, expect: {refused: never_fits}}
"""


def test_cases_are_run_without_a_server(muster, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("defaults: {order: fifo}\n")
    (tmp_path / "policy_tests.yaml").write_text(CASES)
    found = muster("policy", "test", "policy.yaml")
    assert found.code == 0, found
    assert "pass  small: accepted" in found.out
    assert "2 of 2 cases passed" in found.err
    (tmp_path / "policy.yaml").write_text("defaults: {max_accelerators_per_user: 1}\n")
    failed = muster("policy", "test", "policy.yaml", "--cases", "policy_tests.yaml")
    assert failed.code == 1
    assert "FAIL  small: expected accepted, got refused for never_allowed" in failed.out
    told = muster("policy", "test", "policy.yaml", "--json")
    assert (told.code, told.json["ok"]) == (1, False)
    assert told.json["cases"][0]["got"]["codes"] == ["never_allowed"]
    assert muster("policy", "test", "nowhere.yaml").code == 1


def test_a_policy_is_tried_on_jobs_and_changes_nothing(at_home, live, tmp_path: Path) -> None:
    ids = [
        live.post("/v1/jobs", {"spec": {"name": f"judged-{n}", "run": "true", "kind": "data", **extra}})["id"]
        for n, extra in enumerate([{}, {"tags": {"owner": "ada"}}])
    ]
    (tmp_path / "policy.yaml").write_text("projects: {default: {require: [owner-team], missing: refuse}}\n")
    before = live.get("/v1/rules")["text"]
    found = at_home("policy", "check", "policy.yaml", "--since", "30d", "--json").json
    assert found["judged"] >= 2
    (effect,) = found["effects"]
    assert effect["code"] == "required_missing"
    assert effect["jobs"] == found["refused"] <= found["judged"]
    assert {job["job"] for job in effect["examples"]} & set(ids)
    told = at_home("policy", "check", "policy.yaml")
    assert f"{found['refused']:,} of {found['judged']:,} jobs since 30d ago would be refused" in told.out
    assert "required_missing" in told.out
    assert live.get("/v1/rules")["text"] == before
    assert at_home("policy", "show").out == at_home("queue", "rules").out
    assert at_home("policy", "check", "policy.yaml", "--since", "soon").code == 2
