"""Queues, nodes, events, projects, secrets and tokens from the command line, on a real server; and the doctor."""

from __future__ import annotations

import io
import re
import shutil

import pytest

from muster.client import Client


def test_queues(at_home):
    made = at_home("queue", "create", "research", "--max-priority", "60", "--json").json
    assert (made["name"], made["project"], made["max_priority"]) == ("research", "default", 60)
    assert "research" in [queue["name"] for queue in at_home("queue", "--json").json["queues"]]
    shown = at_home("queue", "ls").out
    assert "0-60" in shown
    assert at_home("queue", "show", "research").err == "Nobody waits in research.\n"
    assert at_home("queue", "show", "nothing").code == 1


def test_a_node_is_quarantined_and_released(at_home):
    assert at_home("nodes", "quarantine", "local-0", "-r", "burnt").out.startswith("local-0 is quarantined")
    assert "quarantined (burnt)" in at_home("nodes").out
    assert at_home("nodes", "release", "local-0", "--json").json["health"] == "healthy"


def test_nodes_are_drained_and_put_back(at_home):
    found = at_home("nodes", "drain", "local-0", "--reason", "new fans", "--json")
    assert found.json["health"] == "draining"
    assert "draining (new fans)" in at_home("nodes").out
    assert at_home("nodes", "undrain", "local-0").out == "local-0 is healthy\n"
    assert at_home("nodes", "drain", "nowhere").code == 1


def test_nodes_show_the_spares_of_their_pool(at_home, live, tmp_path):
    (node,) = live.get("/v1/nodes")["nodes"]
    before, policy = live.get("/v1/rules")["text"], tmp_path / "policy.yaml"
    policy.write_text(f"pools: {{{node['pool']}: {{spares: 1}}}}")
    assert at_home("queue", "apply", str(policy)).code == 0
    try:
        shown = at_home("nodes").out
        assert "healthy, spare" in shown
        assert f"pool {node['pool']}: 1 of 1 spares are free" in shown
        assert at_home("nodes", "--json").json["nodes"][0]["spare"] is True
        refused = at_home("run", "-d", "--", "true")
        assert refused.code == 1
        assert "keeps free for jobs that lose a node" in refused.err
    finally:
        policy.write_text(before)
        assert at_home("queue", "apply", str(policy)).code == 0
    assert "spare" not in at_home("nodes").out


def test_events_are_a_document_or_lines(at_home, live):
    job = live.wait(live.submit("true", name="told")["id"])["id"]
    kinds = [event["kind"] for event in at_home("events", "--job", job, "--json").json["events"]]
    assert kinds[0] == "job.submitted"
    assert kinds[-1] == "job.succeeded"
    last = at_home("events", "--job", job, "--last", "1").out
    assert "job.succeeded" in last
    assert len(last.splitlines()) == 1
    assert at_home("events", "--all", "--kind", "job.submitted", "--job", job).out.count("\n") == 1


def test_projects_members_and_secrets(at_home, monkeypatch):
    assert at_home("project", "create", "vision", "--description", "images").code == 0
    assert at_home("project", "member", "vision", "bob", "member", "--json").json["members"] == {"bob": "member"}
    assert "bob (member)" in at_home("project").out
    assert "expected viewer" in at_home("project", "member", "vision", "bob", "boss").err.lower()
    monkeypatch.setattr("sys.stdin", io.StringIO("hush\n"))
    found = at_home("project", "secret", "set", "HF_TOKEN", "--project", "vision")
    assert (found.code, found.out) == (0, "secret HF_TOKEN of project vision is set\n")
    assert at_home("project", "secret", "ls", "-p", "vision", "--json").json == {"names": ["HF_TOKEN"]}
    assert at_home("project", "secret", "rm", "HF_TOKEN", "-p", "vision").code == 0
    assert "has no secrets" in at_home("project", "secret", "ls", "-p", "vision").err
    assert at_home("project", "member", "vision", "bob", "none").out == "bob is no longer in project vision\n"


def test_a_secret_reaches_its_job_and_an_empty_one_is_told(at_home, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hush"))
    at_home("project", "secret", "set", "WORD")
    code = "import os; print(len(os.environ['WORD']))"
    assert at_home("run", "--secret", "WORD", "--", "python3", "-c", code).out == "4\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "the value is empty" in at_home("project", "secret", "set", "WORD").err


def test_a_token_is_printed_once_and_works_until_it_is_revoked(at_home, live):
    found = at_home("token", "create", "ci", "--user", "robot", "--role", "viewer", "--expires", "30d")
    token = found.out.strip()
    assert found.out == f"{token}\n"
    assert "not shown again" in found.err
    with Client(live.url, token) as robot:
        assert robot.whoami()["user"] == "robot"
    listed = next(one for one in at_home("token", "ls", "--json").json["tokens"] if one["name"] == "ci")
    assert token not in str(listed)
    assert re.search(r"valid for (30d00h|29d23h)", at_home("token").out)
    assert at_home("token", "revoke", listed["id"]).code == 0
    assert "revoked" in at_home("token").out
    assert "expected viewer" in at_home("token", "create", "x", "--role", "god").err.lower()


def test_a_token_is_revoked_by_its_name_unless_several_have_it(at_home):
    at_home("token", "create", "laptop")
    assert at_home("token", "revoke", "laptop").out.endswith("(laptop) is revoked\n")
    at_home("token", "create", "laptop")
    assert at_home("token", "revoke", "laptop").code == 0  # the other one of the name is worthless already
    ids = [at_home("token", "create", "twice", "--json").json["id"] for _ in range(2)]
    found = at_home("token", "revoke", "twice")
    assert found.code == 1
    assert "'twice' is the name of several tokens" in found.err
    assert all(one in found.err for one in ids)
    states = {one["id"]: one["revoked_at"] for one in at_home("token", "ls", "--json").json["tokens"]}
    assert [states[one] for one in ids] == [None, None]
    assert at_home("token", "revoke", ids[0]).code == 0
    assert at_home("token", "revoke", "twice", "--json").json == {"id": ids[1]}
    missing = at_home("token", "revoke", "no such token")
    assert "There is no token 'no such token' that you can see." in missing.err


def test_a_role_that_is_lowered_is_said(at_home, live, monkeypatch):
    assert "lena is a member of no project" in at_home("token", "create", "a", "--user", "lena").err
    at_home("project", "create", "lowered")
    at_home("project", "member", "lowered", "lena", "viewer")
    told = at_home("token", "create", "b", "--user", "lena", "--role", "admin")
    assert "It allows no more than viewer, not admin: lena is no more than that in any project." in told.err
    assert "allows" not in at_home("token", "create", "c", "--user", "lena", "--role", "viewer").err
    weak = at_home("token", "create", "d", "--role", "viewer", "--superuser", "--expires", "1h", "--json").json
    assert weak["notes"] == []
    monkeypatch.setenv("MUSTER_TOKEN", weak["token"])
    made = at_home("token", "create", "e", "--role", "admin", "--expires", "2h")
    assert "Its role is viewer, not admin: the token that made it allows no more." in made.err
    assert "It ends sooner than asked for" in made.err


def test_several_reasons_of_a_refusal_are_listed_below_one_another(at_home, tmp_path):
    found = at_home("run", "--queue", "nowhere", "--nodes", "999", "--", "true")
    assert found.code == 1
    lines = found.err.splitlines()
    assert lines[0] == "error: refused for 2 reasons"
    assert [line.split(":")[0].strip() for line in lines if line.startswith("  ") and line[2] != " "] == [
        "unknown_queue",
        "never_fits",
    ]


def test_the_doctor_finds_the_server_and_the_token(at_home, live):
    told = at_home("doctor", "--json")
    found = {check["name"]: check for check in told.json["checks"]}
    assert told.json["ok"] is True
    assert told.code == 0
    for name in ("python", "packages", "home", "disk", "sqlite", "bash", "port", "server", "clock", "token", "torch"):
        assert found[name]["status"] in ("ok", "warn"), found[name]
    assert found["server"]["detail"] == f"{live.url} is ready and leads"
    assert "superuser" in found["token"]["detail"]
    assert str(shutil.which("python")) in found["torch"]["detail"]  # a busy machine takes longer than it waits


@pytest.mark.usefixtures("without_torch")
def test_the_doctor_fails_with_what_to_mend(at_home, live, muster, monkeypatch, tmp_path):
    (live.home / "token").chmod(0o644)
    try:
        found = at_home("doctor")
    finally:
        (live.home / "token").chmod(0o600)
    assert found.code == 1
    assert f"fail  token file: {live.home / 'token'} can be read by others\n      chmod 600" in found.out
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "fresh"))
    told = muster("doctor")
    assert told.code == 0
    assert "warn  server: No server is running" in told.out
    assert f"warn  torch: {tmp_path / 'bin' / 'python'} has none" in told.out
    assert not (tmp_path / "fresh").exists()


@pytest.mark.usefixtures("without_torch")
def test_the_doctor_names_a_wrong_setting(muster, tmp_path):
    (tmp_path / "no-server").mkdir()
    (tmp_path / "no-server" / "config.toml").write_text("prot = 1\n")
    found = muster("doctor")
    assert found.code == 1
    assert "Did you mean `port`?" in found.out
