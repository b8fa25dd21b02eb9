"""`muster queue rules` and `muster queue apply`, on a real server: plain language in, plain language out."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from live import live_server, until


@pytest.fixture
def policy(at_home, tmp_path):
    """Writes a policy file; the rules are the defaults before and after."""
    path = tmp_path / "policy.yaml"

    def write(text: str) -> str:
        path.write_text(text)
        return str(path)

    at_home("queue", "create", "lab")
    assert at_home("queue", "apply", write("{}")).code == 0
    yield write
    assert at_home("queue", "apply", write("{}")).code == 0


def test_the_rules_in_plain_language(at_home, policy):
    at_home("queue", "apply", policy("queues: {lab: {order: fifo, weight: 3, max_per_user: 2}}\n"))
    told = at_home("queue", "rules").out
    assert told.startswith("The whole cluster\n  Queues are equal")
    assert "\nQueue lab of project default\n  Jobs of lab start in this order: first come, first served." in told
    only = at_home("queue", "rules", "lab").out
    assert only.startswith("Queue lab of project default\n")
    assert "At most 2 jobs of one user run at once." in only
    assert "cluster" not in only
    assert at_home("queue", "rules", "--yaml").out == "queues: {lab: {order: fifo, weight: 3, max_per_user: 2}}\n"
    found = at_home("queue", "rules", "--json").json
    assert found["rules"]["queues"]["lab"]["weight"] == 3.0
    assert at_home("queue", "rules", "nowhere").code == 1
    assert at_home("queue", "rules", "lab", "--yaml").code == 2


def test_the_policy_of_the_docs_can_be_tried_on_any_machine(muster, monkeypatch, tmp_path):
    page = Path(__file__).parents[2] / "docs" / "scheduling.md"
    section = page.read_text().partition("## A policy for three teams")[2]
    (tmp_path / "teams.yaml").write_text(section.partition("```yaml\n")[2].partition("```")[0])
    up = re.search(r"^muster up -d (.*?) *(#.*)?$", section, re.MULTILINE)
    assert up is not None
    with live_server(tmp_path / "home", *up[1].split()) as server:
        monkeypatch.setenv("MUSTER_HOME", str(server.home))
        until(lambda: len(muster("nodes", "--json").json["nodes"]) == 8, "the nodes")
        refused = muster("queue", "apply", "teams.yaml")
        assert refused.code == 1
        assert "muster queue apply --create" in refused.err
        tried = muster("queue", "apply", "teams.yaml", "--create", "--check")
        names = "language, vision, vision-batch, vision-paper, speech, eval"
        assert f"queues of project default would be created: {names}\n" in tried.out
        assert [queue["name"] for queue in muster("queue", "--json").json["queues"]] == ["default"]
        made = muster("queue", "apply", "teams.yaml", "--create")
        assert made.code == 0
        assert f"queues of project default created: {names}\n" in made.out
        assert muster("queue", "apply", "teams.yaml", "--create", "--json").json["created"] == []
        assert muster("run", "--queue", "vision-paper", "--gpus", "1", "--", "true").code == 0


def test_missing_queues_are_created_only_with_a_policy_that_is_right(at_home, policy):
    wrong = policy("queues: {fresh: {quota: {nowhere: 1}}}\n")
    assert at_home("queue", "apply", wrong, "--create").code == 1
    assert "fresh" not in at_home("queue").out
    lost = at_home("queue", "apply", policy("queues: {fresh: {weight: 2}}\n"), "--create", "--project", "nobody")
    assert lost.code == 1
    assert "There is no project 'nobody'" in lost.err


def test_the_list_shows_what_queues_are_held_to(at_home, policy):
    at_home("queue", "apply", policy("queues: {lab: {order: fifo, weight: 2.5}}\n"))
    row = next(line.split() for line in at_home("queue").out.splitlines() if line.startswith("lab "))
    assert row == ["lab", "default", "fifo", "2.5", "-", "0-100", "0", "0"]


def test_apply_says_what_changes_and_check_changes_nothing(at_home, policy):
    file = policy("queues:\n  lab: {max_running: 4, order: fifo}\n")
    tried = at_home("queue", "apply", file, "--check")
    assert tried.code == 0
    lines = tried.out.splitlines()
    assert lines[0] == "Queue lab of project default"
    assert any(line.startswith("  - Jobs of lab start in this order: higher priority first") for line in lines)
    assert "  + At most 4 of its jobs run at once." in lines
    assert "Nothing was changed" in tried.err
    assert at_home("queue", "rules", "--json").json["rules"]["queues"] == {}
    done = at_home("queue", "apply", file)
    assert (done.out, done.err) == (tried.out, "These rules are in force.\n")
    again = at_home("queue", "apply", file, "--json").json
    assert (again["applied"], again["changes"]) == (True, [])
    assert at_home("queue", "apply", file).err == "The rules in force say the same.\n"


def test_a_refused_file_says_where_and_leaves_the_rules(at_home, policy):
    at_home("queue", "apply", policy("queues: {lab: {weight: 2}}\n"))
    file = policy("between: fare\nqueues:\n  lab: {weigth: 2}\n")
    found = at_home("queue", "apply", file)
    assert found.code == 1
    assert f"{file} has 2 mistakes." in found.err
    assert "between (line 1): got 'fare'" in found.err
    assert "queues.lab.weigth (line 3)" in found.err
    assert "Did you mean `weight`?" in found.err
    told = at_home("queue", "apply", file, "--check", "--json")
    assert (told.code, len(told.json["error"]["problems"])) == (1, 2)
    assert at_home("queue", "rules", "--json").json["rules"]["queues"]["lab"]["weight"] == 2.0


def test_from_standard_input_and_no_file(at_home, policy, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("half_life: 1d\n"))
    assert at_home("queue", "apply", "-", "--check", "--json").json["rules"]["half_life"] == 86_400
    missing = at_home("queue", "apply", "nothing.yaml")
    assert missing.code == 1
    assert "There is no policy file nothing.yaml." in missing.err


def test_the_schema_of_a_policy_file(muster):
    assert muster("schema", "--policy", "--json").json["title"] == "Muster policy"
    assert '"title": "Muster policy"' in muster("schema", "--policy").out
    assert muster("schema", "--json").json["title"] == "Muster job"
