"""Retention: by kind, age and phase, as the project's rules say; never what a registered model came from."""

from __future__ import annotations

import json

import pytest
from content_kit import Content, both
from sqlalchemy import insert, select

from muster.core.errors import SpecError
from muster.core.policy_dump import dump_rules
from muster.core.policy_file import parse_rules
from muster.core.rules import Keep, ProjectRules, Rules
from muster.sched.describe import describe
from muster.store import record_tables as tables
from muster.track.retention import Removed, Retention

DAY = 86_400.0


def rules(**keep: object) -> Rules:
    return Rules(projects={"vision": ProjectRules(keep=Keep.model_validate(keep))})


def run(kept: Content, name: str, phase: str = "succeeded", project: str = "vision", **files: str) -> None:
    """A run that ended now, with these artifacts: kind → text."""
    given = {"experiment": 1, "name": name, "user": "ada", "kind": "train", "source": "job", "created_at": kept.now}
    given |= {"id": name, "project": project, "phase": phase, "valid": True, "problems": "[]", "purpose": ""}
    given |= {"attempts": 1, "code_commit": "", "code_branch": "", "code_dirty": False, "code_tree": "", "doc": "{}"}
    given |= {"ended_at": kept.now if phase != "running" else None}
    kept.db.write(lambda connection: connection.execute(insert(tables.runs), given))
    for kind, text in files.items():
        kept.artifacts.put(name, f"{kind}.bin", kept.add(text), kind=kind)


def left(kept: Content, name: str) -> list[str]:
    return [one.kind for one in kept.artifacts.list(name)]


@both
def test_by_kind_and_age_and_phase(kept: Content) -> None:
    keeper = Retention(kept.db, kept.blobs, lambda: rules(media=90 * DAY, failed=30 * DAY, code=200 * DAY))
    run(kept, "good", file="a", media="b", diff="c", model="d")
    run(kept, "bad", "failed", file="e", media="f", model="g")
    run(kept, "gone", "stopped", file="e")
    run(kept, "on", "running", media="h")
    run(kept, "other", project="text", media="i")
    kept.pass_days(31)
    assert keeper.apply(dry_run=True).projects == (Removed("vision", 2, 3, 3),)
    assert left(kept, "bad") == ["file", "media", "model"]
    assert keeper.apply().projects == (Removed("vision", 2, 3, 3),)
    assert (left(kept, "bad"), left(kept, "gone"), len(left(kept, "good"))) == (["model"], [], 4)
    kept.pass_days(60)
    keeper.apply()
    assert left(kept, "good") == ["diff", "file", "model"]
    kept.pass_days(120)
    outcome = keeper.apply()
    assert left(kept, "good") == ["file", "model"]
    assert (left(kept, "on"), left(kept, "other")) == (["media"], ["media"])
    assert outcome.blobs.blobs == 1  # what only the last one named
    with kept.db.reading() as connection:
        entries = connection.execute(select(tables.notes.c.run, tables.notes.c.text, tables.notes.c.doc)).all()
    assert sorted(entry.run for entry in entries) == ["bad", "gone", "good", "good"]
    assert json.loads(entries[0].doc)["files"] in (1, 2)
    assert "Retention removed" in entries[0].text


def test_without_rules_everything_stays(kept: Content) -> None:
    keeper = Retention(kept.db, kept.blobs, lambda: rules())
    run(kept, "bad", "failed", file="x")
    kept.pass_days(10_000)
    assert keeper.apply().projects == ()
    assert left(kept, "bad") == ["file"]


def test_models_go_when_the_rules_say_so(kept: Content) -> None:
    run(kept, "old", model="x")
    kept.pass_days(2)
    Retention(kept.db, kept.blobs, lambda: rules(model=DAY)).apply()
    assert left(kept, "old") == ["model"]
    Retention(kept.db, kept.blobs, lambda: rules(model=DAY, keep_models=False)).apply()
    assert left(kept, "old") == []


@both
def test_what_a_registered_model_came_from_stays(kept: Content) -> None:
    """data → pre → checkpoint → main → model; an evaluation is evidence; `aside` only reads the same data."""
    for name in ("pre", "main", "judge", "aside", "named"):
        run(kept, name, "failed", file=name)
    version = {"name": "gpt", "stage": "none", "user": "ada", "created_at": 1.0, "updated_at": 1.0, "description": ""}
    version |= {"doc": "{}"}
    rows = [("data:c4@v3", "run:pre"), ("data:c4@v3", "run:aside"), ("run:pre", "checkpoint:pre/40"),
            ("checkpoint:pre/40", "run:main"), ("run:main", "model:gpt/1")]  # fmt: skip
    promotion = {"name": "gpt", "version": 1, "time": 1.0, "actor": "ada", "old": "none", "new": "production"}
    promotion |= {"doc": json.dumps({"why": "best", "evidence": {"runs": [{"run": "judge", "metrics": {"x": 1}}]}})}

    def write(connection) -> None:
        for source, target in rows:
            link = {"source": source, "target": target, "role": "reads", "time": 1.0, "doc": "{}"}
            connection.execute(insert(tables.links), link)
        connection.execute(insert(tables.model_versions), {**version, "version": 1, "run": "", "source": "s3://x"})
        source = "runs:/named/model"
        connection.execute(insert(tables.model_versions), {**version, "version": 2, "run": "", "source": source})
        connection.execute(insert(tables.promotions), promotion)

    kept.db.write(write)
    kept.pass_days(9)
    Retention(kept.db, kept.blobs, lambda: rules(failed=DAY, file=DAY)).apply()
    assert {name: left(kept, name) for name in ("pre", "main", "judge", "aside", "named")} == {
        "pre": ["file"], "main": ["file"], "judge": ["file"], "aside": [], "named": ["file"],
    }  # fmt: skip


def test_an_artifact_that_was_replaced_meanwhile_stays(kept: Content) -> None:
    run(kept, "bad", "failed", file="old")
    kept.pass_days(9)
    keeper = Retention(kept.db, kept.blobs, lambda: rules(failed=DAY))
    real = kept.db.commit.submit
    replaced = kept.artifacts.make("bad", "file.bin", kept.add("new"), 3)

    class Meddling:
        """Somebody else's write comes just before the removal."""

        def submit(self, proposal):
            entry = kept.artifacts.record(replaced)
            real(lambda state: type(proposal(state))(records=[entry])).result()
            return real(proposal)

    object.__setattr__(kept.db, "commit", Meddling())
    keeper.apply()
    assert left(kept, "bad") == ["file"]


def test_the_rules_in_a_policy_file() -> None:
    text = "projects:\n  vision:\n    artifacts: {media: 90d, failed: 30d, keep_models: false, file: forever}\n"
    made = parse_rules(text, orders=["predicted"])
    assert made.project("vision").keep == Keep(media=90 * DAY, failed=30 * DAY, keep_models=False)
    assert parse_rules(dump_rules(made), orders=["predicted"]) == made
    said = str(describe(made, []))
    assert "kind media go 90 d after" in said
    assert made.project("other").keep == Keep()


@pytest.mark.parametrize("wrong", ["{media: soon}", "{films: 3d}", "90d", "{keep_models: maybe}", "{media: -1d}"])
def test_mistakes_in_it_are_told(wrong: str) -> None:
    with pytest.raises(SpecError) as told:
        parse_rules(f"projects: {{vision: {{artifacts: {wrong}}}}}", orders=["predicted"])
    assert told.value.problems[0].where.startswith("projects.vision.artifacts")
