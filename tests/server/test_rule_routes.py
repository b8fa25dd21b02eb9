"""The policy over HTTP, on a real server: read in plain language, set all or nothing, checked against what is there."""

from __future__ import annotations

import pytest

from live import LiveServer, live_server, until
from muster.core.rules import Rules

POLICY = """
between: fair
queues:
  team: {weight: 2, quota: {local: 6}, order: shortest}   # the pool has 8
  below: {parent: team, quota: {local: 4}}
projects: {vision: {max_accelerators: 4}}
"""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    config = "nodes = 2\naccelerators = 'H100:4'\ncpus = 64\n"
    with live_server(tmp_path_factory.mktemp("ruled"), config=config) as server:
        until(lambda: len(server.get("/v1/nodes")["nodes"]) == 2, "the nodes")
        server.post("/v1/projects", {"name": "vision"})
        for name, project in (("team", "default"), ("below", "default"), ("seen", "vision")):
            server.post("/v1/queues", {"name": name, "project": project})
        yield server


def put(server: LiveServer, text: str, token: str | None = None, **body: object):
    with server.http(token) as http:
        return http.put("/v1/rules", json={"text": text, **body})


def pool_of(server: LiveServer) -> str:
    return str(server.get("/v1/nodes")["nodes"][0]["pool"])


def policy_for(server: LiveServer) -> str:
    return POLICY.replace("local:", f"{pool_of(server)}:")


def test_the_defaults_are_in_force_and_told(ruled: LiveServer) -> None:
    assert put(ruled, "{}").status_code == 200
    found = ruled.get("/v1/rules")
    assert Rules.model_validate(found["rules"]) == Rules()
    assert found["text"] == "{}"
    assert found["described"][0]["title"] == "The whole cluster"
    assert {"team", "below", "seen", "default"} <= {part["name"] for part in found["described"]}


def test_a_policy_is_checked_then_put_in_force_and_told(ruled: LiveServer) -> None:
    put(ruled, "{}")
    text = policy_for(ruled)
    tried = put(ruled, text, dry_run=True).json()
    assert (tried["applied"], ruled.get("/v1/rules")["text"]) == (False, "{}")
    changed = {change["title"]: change for change in tried["changes"]}
    assert changed["The whole cluster"]["removed"] == [
        "Queues are equal: the one whose best job ranks highest goes first."
    ]
    assert any("6 " in line and "are its own" in line for line in changed["Queue team of project default"]["added"])
    done = put(ruled, text).json()
    assert (done["applied"], done["changes"], done["rules"]) == (True, tried["changes"], tried["rules"])
    assert ruled.get("/v1/rules")["text"] == text
    queues = {queue["name"]: queue for queue in ruled.get("/v1/queues")["queues"]}
    assert (queues["team"]["order"], queues["team"]["weight"]) == ("shortest", 2.0)
    assert (queues["below"]["quota"], queues["below"]["parent"]) == ({pool_of(ruled): 4}, "team")
    # The event log has who set it; the same again is no news.
    events = ruled.get("/v1/events", kind="rules.set", limit=1000)["events"]
    assert events[-1]["data"]["text"] == text
    assert put(ruled, text).json()["changes"] == []
    assert ruled.get("/v1/events", kind="rules.set", limit=1000)["events"] == events


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("queues: {team: {order: shortst}}", "queues.team.order (line 1)"),
        ("queues: {nobody: {weight: 2}}", "queues.nobody"),
        ("queues: {team: {quota: {POOL: 9}}}", "queues"),
        ("queues: {team: {quota: {elsewhere: 1}}}", "queues.team.quota.elsewhere"),
        ("queues: {team: , seen: {parent: team}}", "queues.seen.parent"),
        ("projects: {nowhere: {weight: 2}}", "projects.nowhere"),
    ],
)
def test_a_refused_policy_leaves_the_rules_in_force(ruled: LiveServer, text: str, where: str) -> None:
    put(ruled, policy_for(ruled))
    before = ruled.get("/v1/rules")
    for dry_run in (True, False):
        answer = put(ruled, text.replace("POOL", pool_of(ruled)), dry_run=dry_run, source="policy.yaml")
        assert answer.status_code == 422
        error = answer.json()["error"]
        assert error["message"] == "policy.yaml has one mistake."
        assert [problem["where"] for problem in error["problems"]] == [where]
        assert ruled.get("/v1/rules") == before


def test_who_may_read_and_set_it(ruled: LiveServer) -> None:
    put(ruled, policy_for(ruled))
    with ruled.http() as http:
        assert http.put("/v1/projects/vision/members/vera", json={"role": "admin"}).status_code == 200
        token = http.post("/v1/tokens", json={"user": "vera", "name": "test"}).json()["token"]
    assert put(ruled, "{}", token).status_code == 403
    assert put(ruled, "{}", token, dry_run=True).status_code == 403
    with ruled.http(token) as http:
        found = http.get("/v1/rules").json()
    assert found["rules"]["between"] == "fair"
    assert (found["rules"]["queues"], set(found["rules"]["projects"])) == ({}, {"vision"})
    assert "team" not in str(found)
    assert "seen" in [part["name"] for part in found["described"]]


def test_rules_outlive_the_server(tmp_path) -> None:
    with live_server(tmp_path / "home") as server:
        assert put(server, "half_life: 3d").status_code == 200
        server.kill()
        server.start()
        assert server.get("/v1/rules")["rules"]["half_life"] == 3 * 86_400


def test_a_server_starts_with_a_policy_file_or_says_what_is_wrong_with_it(tmp_path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("between: fair\nqueues: {to-come: {weight: 2}}\n")
    with live_server(tmp_path / "home", "--policy", str(path)) as server:
        assert server.get("/v1/rules")["text"] == path.read_text()
        server.stop()
        path.write_text("betwen: fair\n")
        server.start(wait=False)
        assert server.wait_dead() == 1
        assert "betwen (line 1)" in server.log()
        assert "Traceback" not in server.log()
        path.write_text("between: rank\nhalf_life: 1d\n")
        server.start()
        assert server.get("/v1/rules")["rules"]["half_life"] == 86_400


def test_a_policy_file_that_is_not_there_is_told(tmp_path) -> None:
    server = LiveServer(tmp_path / "home", config="policy = 'nowhere.yaml'\n")
    server.start(wait=False)
    assert server.wait_dead() == 1
    assert f"The policy file {server.home / 'nowhere.yaml'} can't be read: No such file" in server.log()
