"""Lineage both ways, across projects, and blind where one may not look."""

from __future__ import annotations

import pytest

from muster.core.errors import Invalid
from muster.track.lineage import Node
from record_kit import Record


@pytest.fixture
def chain(record: Record) -> Record:
    """data → train-1 (default) → checkpoint 400 → tune-2 (secret) → model, judged by eval-3 (default)."""
    first = record.submit(data=["c4-en@v3"])
    record.start(first)
    for step in range(100, 1001, 100):
        event = record.of(first, "checkpoint.committed", 1, step=step, path=f"/c/{step}", bytes=1, rank=0)
        record.events(event)
    record.submit("python tune.py --init /c/400", name="tune", project="secret", data=["books@v1"])
    record.submit("python eval.py --model model:gpt/1", name="judge", kind="eval")
    record.track.models.create("gpt", "default")
    record.track.models.register("gpt", user="ada", run="tune-2")
    record.later()
    record.track.models.promote("gpt", 1, "production", actor="ada", evidence=["judge-3"], why="good")
    return record


def test_what_a_model_was_trained_on(chain: Record) -> None:
    tree = chain.track.lineage.upstream("model:gpt/1")
    assert flat(tree) == [
        "model:gpt/1",
        " registers run:tune-2",
        "  starts_from checkpoint:train-1/400",
        "   saves run:train-1",
        "    reads data:c4-en@v3",
        "  reads data:books@v1",
        " evaluates run:judge-3",
        "  evaluates model:gpt/1 (seen)",
    ]


def test_what_uses_a_data_set(chain: Record) -> None:
    tree = chain.track.lineage.downstream("data:c4-en")
    assert flat(tree)[:4] == [
        "data:c4-en",
        " version data:c4-en@v3",
        "  reads run:train-1",
        "   saves checkpoint:train-1/400",
    ]
    (run,) = tree.nodes[0].nodes
    assert [node.ref for node in run.nodes][-3:] == [f"checkpoint:train-1/{step}" for step in (800, 900, 1000)]
    assert run.left_out == 6
    assert run.nodes[0].nodes[0].ref == "run:tune-2"


def test_what_may_not_be_seen_has_no_name(chain: Record) -> None:
    tree = chain.track.lineage.upstream("model:gpt/1", visible=["default"])
    assert flat(tree) == [
        "model:gpt/1",
        " evaluates run:judge-3",
        "  evaluates model:gpt/1 (seen)",
        " registers hidden",
    ]
    assert tree.nodes[-1].about == {"text": "something in another project"}
    assert "tune" not in repr(tree)
    assert "books" not in repr(chain.track.lineage.downstream("checkpoint:train-1/400", visible=["default"]))


def test_a_tree_ends_somewhere(light: Record) -> None:
    lineage = light.track.lineage
    for number in range(60):
        lineage.add(f"data:d{number}", f"data:d{number + 1}", "writes")
    lineage.add("data:d60", "data:d0", "writes")
    cut = lineage.downstream("data:d0", depth=5)
    assert len(flat(cut)) == 6
    assert "(cut)" in flat(cut)[-1]
    whole = lineage.downstream("data:d0", depth=100)
    assert flat(whole)[-1].strip() == "writes data:d0 (seen)"


@pytest.mark.parametrize("ref", ["", "gpt", "data:", "wrong:x", ":x"])
def test_what_is_no_name(light: Record, ref: str) -> None:
    with pytest.raises(Invalid, match="no name in the lineage"):
        light.track.lineage.upstream(ref)
    with pytest.raises(Invalid):
        light.track.lineage.add(ref, "run:x", "reads")


def flat(node: Node, depth: int = 0) -> list[str]:
    said = " ".join(filter(None, [node.role, node.ref, "(seen)" if node.seen else "", "(cut)" if node.cut else ""]))
    return [" " * depth + said, *(line for below in node.nodes for line in flat(below, depth + 1))]
