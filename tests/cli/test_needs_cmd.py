"""Jobs that need each other, from the command line, on a real server: one call, one answer, and the right order."""

from __future__ import annotations

from pathlib import Path

import pytest

from live import until
from muster.client import Client

PREPARE = "name: prepare\nrun: sleep 0.3; date +%s%N > prepared\n"
TRAIN = "name: train\nneeds: [prepare]\nrun: cat prepared; date +%s%N; echo after $MUSTER_NEEDS_PREPARE\n"


def _file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    """The one that needs the other comes first."""
    return _file(tmp_path, "train.yaml", TRAIN), _file(tmp_path, "prepare.yaml", PREPARE)


def test_two_files_of_one_call_run_one_after_the_other(at_home, live, two):
    found = at_home("submit", "--json", *two)
    assert found.code == 0, found.err
    train, prepare = found.json["jobs"]
    assert train["needs"] == {prepare["id"]: "succeeded"}
    assert live.wait(train["id"])["phase"] == "succeeded", live.output(train["id"])
    prepared, trained, *words = live.output(train["id"]).split()
    assert int(prepared) < int(trained)
    assert words == ["after", prepare["id"]]
    assert prepare["id"] in at_home("status", train["id"]).out
    again = at_home("submit", *two)
    assert again.out.count("submitted") == 2
    with Client(home=live.home) as to:
        assert f", after {to.job('prepare').id}" in again.out


def test_why_says_what_it_waits_for_and_what_ended_it(at_home, live, tmp_path):
    fails = _file(tmp_path, "fails.yaml", "name: fails\nrun: until test -e go; do sleep 0.05; done; exit 3\n")
    behind = _file(tmp_path, "behind.yaml", "name: behind\nneeds: [fails]\nrun: 'true'\n")
    first, job = (one["id"] for one in at_home("submit", "--json", fails, behind).json["jobs"])
    until(lambda: live.job(first)["phase"] == "running", "the one that it needs")
    told = at_home("why", job)
    assert f"it waits until {first} (running) succeeds" in told.out
    (tmp_path / "go").touch()
    assert live.wait(job)["phase"] == "stopped"
    told = at_home("why", job)
    assert f"{first} failed, and this job starts only if it succeeds" in told.out
    assert f"muster resume {first} {job}" in told.out
    refused = at_home("resume", job)
    assert refused.code == 1
    assert f"it starts only if {first} succeeds, and that failed" in refused.err


def test_nothing_is_accepted_when_one_is_refused_or_they_need_each_other_in_a_circle(at_home, live, tmp_path):
    one = _file(tmp_path, "one.yaml", "name: nb-one\nrun: 'true'\nneeds: [nb-two]\n")
    two = _file(tmp_path, "two.yaml", "name: nb-two\nrun: 'true'\nneeds: [nb-none]\n")
    found = at_home("submit", one, two)
    assert found.code == 1
    assert "it needs 'nb-none', and project 'default' has no such job" in found.err
    assert "accepted together or not at all" in found.err
    (tmp_path / "two.yaml").write_text("name: nb-two\nrun: 'true'\nneeds: [nb-one]\n")
    for verb in ("submit", "check"):
        found = at_home(verb, one, two)
        assert found.code == 1
        assert "need each other in a circle: nb-one" in found.err
    assert live.get("/v1/jobs", name="nb-one")["jobs"] == live.get("/v1/jobs", name="nb-two")["jobs"] == []


def test_a_dry_run_says_what_it_starts_after(at_home, two):
    found = at_home("submit", "--dry-run", *two)
    assert found.code == 0, found.err
    assert "starts after" in found.out
    assert "prepare, then:" in found.out


def test_jobs_of_the_client_are_needs(live, tmp_path):
    with Client(home=live.home) as to:
        first = to.submit({"name": "sdk-first", "run": "true", "workdir": str(tmp_path)}, snapshot=False)
        job = to.submit({"name": "sdk-then", "run": "true", "needs": [first], "workdir": str(tmp_path)}, snapshot=False)
        assert job.needs == {first.id: "succeeded"}
        assert job.wait().phase == "succeeded"
        answers = to.submit_many(
            [
                {"name": "sdk-b", "run": "true", "needs": {"sdk-a": "ended"}, "workdir": str(tmp_path)},
                {"name": "sdk-a", "run": "true", "workdir": str(tmp_path)},
            ],
            keys=["sdk-key-b", "sdk-key-a"], snapshot=False, together=True,
        )  # fmt: skip
        b, a = (one["id"] for one in answers if isinstance(one, dict))
        assert to.job(b).needs == {a: "ended"}
