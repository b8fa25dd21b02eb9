"""The registry: versions, aliases, and promotions that keep the evidence as it was."""

from __future__ import annotations

import pytest

from muster.core.errors import Conflict, Invalid, NotFound
from record_kit import Record


@pytest.fixture
def shop(record: Record) -> Record:
    run = record.track.runs.create(project="p", user="ada", source="sdk", id="judge").id
    record.report(run, rows=[(0, 3.0), (1, 2.0)])
    record.track.models.create("gpt", "p", description="small", tags={"a": "1"})
    for _ in range(2):
        record.track.models.register("gpt", user="ada", run="judge")
    return record


class TestModels:
    def test_versions_count_up(self, shop: Record) -> None:
        models = shop.track.models
        assert [(one.version, one.source, one.stage, one.status) for one in models.versions("gpt")] == [
            (1, "run:judge", "none", "READY"),
            (2, "run:judge", "none", "READY"),
        ]
        models.delete_version("gpt", 1)
        assert models.register("gpt", user="bob", source="s3://b/m").version == 3
        assert models.version("gpt", 1) is None
        with pytest.raises(NotFound, match="no version 1"):
            models.need_version("gpt", 1)
        assert [one.version for one in models.versions(run="judge")] == [2]
        models.delete_version("gpt", 3)
        models.change("gpt", tags={"b": "2"})
        assert models.register("gpt", user="bob", source="s3://b/m").version == 4  # nobody means another by 3

    def test_names(self, shop: Record) -> None:
        models = shop.track.models
        with pytest.raises(Conflict):
            models.create("gpt", "q")
        for bad in ("", "a/b", "a:b", "x" * 251, "\0"):
            with pytest.raises(Invalid):
                models.create(bad, "p")
        models.set_alias("gpt", "best", 2)
        models.promote("gpt", 2, "staging", actor="ada")
        assert models.change("gpt", new="gpt-2").description == "small"
        assert models.get("gpt") is None
        assert models.need_version("gpt-2", models.aliases("gpt-2")["best"]).stage == "staging"
        assert shop.track.lineage.upstream("model:gpt-2/2").nodes[0].ref == "run:judge"
        assert [one.name for one in models.search(["p"], contains="PT-")] == ["gpt-2"]
        assert models.search(["q"]) == []
        assert models.search(tags={"a": "2"}) == []

    def test_what_can_be_said_of_them(self, shop: Record) -> None:
        models = shop.track.models
        assert models.change("gpt", description="large").description == "large"
        assert models.change("gpt", tags={"a": None, "b": "2"}).tags == {"b": "2"}
        assert models.change_version("gpt", 1, description="first", status="FAILED").status == "FAILED"
        found = models.change_version("gpt", 1, tags={"x": "y"})
        assert (found.tags, found.description, found.status) == ({"x": "y"}, "first", "FAILED")

    def test_deleting_a_version_touches_the_model(self, shop: Record) -> None:
        models = shop.track.models
        before = models.need("gpt").updated_at
        shop.moment[0] += 60
        models.delete_version("gpt", 1)
        assert models.need("gpt").updated_at >= before + 60

    def test_an_alias_moves(self, shop: Record) -> None:
        models = shop.track.models
        models.set_alias("gpt", "best", 1)
        models.set_alias("gpt", "best", 2)
        assert models.aliases("gpt") == {"best": 2}
        for bad in ("v1", "3", "latest", "a b", ""):
            with pytest.raises(Invalid, match="alias"):
                models.set_alias("gpt", bad, 1)
        models.delete_alias("gpt", "best")
        assert models.aliases("gpt") == {}

    def test_deleting_takes_all_of_it(self, shop: Record) -> None:
        models = shop.track.models
        models.set_alias("gpt", "best", 1)
        models.promote("gpt", 1, "staging", actor="ada")
        models.delete("gpt")
        assert (models.get("gpt"), models.versions("gpt"), models.aliases("gpt")) == (None, [], {})
        assert models.promotions.promotions("gpt") == []
        assert shop.track.lineage.downstream("run:judge").nodes == []


class TestPromotions:
    def test_the_evidence_is_kept_as_it_was(self, shop: Record) -> None:
        models = shop.track.models
        made = models.promote("gpt", 1, "production", actor="ada", evidence=["judge"], why="lowest loss")
        assert (made.old, made.new) == ("none", "production")
        proof = {"run": "judge", "project": "p", "phase": "running", "metrics": {"loss": {"value": 2.0, "step": 1}}}
        assert made.doc == {"why": "lowest loss", "evidence": [proof]}
        shop.report("judge", rows=[(2, float("nan"))])
        assert models.promotions.promotions("gpt", 1)[0].doc["evidence"] == [proof]
        again = models.promote("gpt", 2, "production", actor="bob", evidence=["judge"], archive_others=True)
        assert again.doc["evidence"][0]["metrics"]["loss"]["value"] == "NaN"
        assert {one.version: one.stage for one in models.versions("gpt")} == {1: "archived", 2: "production"}
        assert models.latest("gpt", ["production"])["production"].version == 2
        (entry, *_) = shop.track.logbook.entries(project="p", kinds=["promotion"])
        assert "none → production" in entry.text
        assert "lowest loss" in entry.text
        assert "`judge`: loss 2.0" in entry.text

    def test_nothing_goes_to_production_without(self, shop: Record) -> None:
        models = shop.track.models
        with pytest.raises(Invalid, match="without evidence"):
            models.promote("gpt", 1, "production", actor="ada", why="trust me")
        with pytest.raises(Invalid, match="without evidence"):
            models.promote("gpt", 1, "production", actor="ada", force=True)
        forced = models.promote("gpt", 1, "production", actor="ada", force=True, why="the old one is broken")
        assert forced.doc["forced"]
        with pytest.raises(NotFound, match="no run 'nobody'"):
            models.promote("gpt", 2, "production", actor="ada", evidence=["nobody"])
        with pytest.raises(Invalid, match="no metric 'acc'"):
            models.promote("gpt", 2, "production", actor="ada", evidence=["judge"], metrics=["acc"])
        with pytest.raises(Invalid, match="no stage"):
            models.promote("gpt", 2, "heaven", actor="ada")
        with pytest.raises(NotFound, match="no version 9"):
            models.promote("gpt", 9, "staging", actor="ada")
