"""Lineage both ways, across projects, and blind where one may not look."""

from __future__ import annotations

import pytest

from muster.core.entities.project import ProjectSet
from muster.core.errors import Invalid
from muster.core.event import Event
from muster.core.payload import decode
from muster.track.lineage import Node
from record_kit import Record


@pytest.fixture
def chain(record: Record) -> Record:
    """data → train-1 (default) → checkpoint 400 → tune-2 (secret) → model, judged by eval-3 (default)."""
    join(record, "ada", "default")
    first = record.submit(data=["c4-en@v3"])
    record.start(first)
    for step in range(100, 1001, 100):
        record.saved(first, step, f"/c/{step}")
    record.submit("python tune.py --init /c/400", name="tune", project="secret", data=["books@v1"])
    record.track.models.create("gpt", "default")
    record.track.models.register("gpt", user="ada", run="tune-2")
    record.submit("python eval.py --model model:gpt/1", name="judge", kind="eval")
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


def test_data_sets_by_version_with_who_used_them(chain: Record) -> None:
    data = chain.track.data_sets
    found, more = data.versions(None)
    assert [(one["name"], one["version"], one["readers"], one["writers"]) for one in found] == [
        ("books", "v1", 1, 0), ("c4-en", "v3", 1, 0),
    ]  # fmt: skip
    assert not more
    assert [one["name"] for one in data.versions(["default"])[0]] == ["c4-en"]
    assert [one["name"] for one in data.versions(None, contains="OOK")[0]] == ["books"]
    assert data.versions(None, contains="data:")[0] == []  # it is no part of any name
    assert data.versions(["default"], name="books") == ([], False)
    (use,) = data.uses("c4-en", ["default"])[0]
    assert (use["run"], use["role"], use["version"], use["project"]) == ("train-1", "reads", "v3", "default")
    assert data.uses("c4", None) == data.uses("c4-en@v4", None) == ([], False)


def test_what_a_run_says_of_a_data_set_is_kept_with_its_version(record: Record) -> None:
    first = record.submit(data=["c4-en@v3"])
    record.start(first)
    says = {"type": "data", "name": "c4-en", "version": "v3", "digest": "sha256:ab", "rows": 7}
    record.report(first, {**says, "role": "input"})
    record.later()
    record.report(first, {**says, "name": "clean", "version": "1", "role": "output", "bytes": 10})
    clean, c4 = record.track.data_sets.versions(None)[0]
    assert (clean["name"], clean["writers"], clean["readers"], clean["bytes"]) == ("clean", 1, 0, 10)
    assert (c4["digest"], c4["rows"], c4["bytes"], c4["readers"]) == ("sha256:ab", 7, None, 1)


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


def test_names_of_data_that_others_alone_use(chain: Record) -> None:
    lineage = chain.track.lineage
    chain.submit(project="secret", data=["c4-en@v9"])
    assert lineage.known("data:books@v1", None)
    assert lineage.known("data:books", ["secret"])
    assert not lineage.known("data:books", ["default"])
    assert not lineage.known("data:books@v1", ["default"])
    assert lineage.known("data:c4-en", ["default"])
    assert " version data:c4-en@v9" in flat(lineage.downstream("data:c4-en"))
    assert "v9" not in repr(lineage.downstream("data:c4-en", visible=["default"]))


class TestAcrossProjects:
    """Eve is in `other` alone; the runs of `default` are not hers to speak of."""

    def sources(self, record: Record, ref: str) -> list[str]:
        return flat(record.track.lineage.upstream(ref))[1:]

    def test_a_worker_can_not_say_that_it_made_anothers_run(self, record: Record) -> None:
        ours = record.submit()
        theirs = record.submit(user="eve", project="other")
        record.track.models.create("gpt", "default")
        record.track.models.register("gpt", user="ada", run=ours)
        record.start(theirs)
        for name in (f"run:{ours}", f"artifact:{ours}/a", f"checkpoint:{ours}/4", "model:gpt/1", "run:never-there"):
            for role in ("output", "input"):
                record.report(theirs, {"type": "data", "name": name, "role": role})
        assert self.sources(record, f"run:{ours}") == []
        assert self.sources(record, "model:gpt/1") == [f" registers run:{ours}"]
        assert flat(record.track.lineage.downstream(f"run:{ours}")) == [f"run:{ours}", " registers model:gpt/1"]
        told = self.sources(record, f"run:{theirs}")
        assert f" reads data:run:{ours}" in told
        assert " reads data:run:never-there" in told  # what is not there reads as what may not be seen

    def test_nor_start_from_it(self, record: Record) -> None:
        ours = record.submit()
        record.start(ours)
        record.saved(ours, 4, "/c/4")
        command = f"python a.py --init run:{ours} --from /c/4"
        theirs = record.submit(command, user="eve", project="other", data=[f"run:{ours}"])
        record.start(theirs)
        record.report(theirs, {"type": "params", "values": {"x": f"checkpoint:{ours}/4", "y": "/c/4"}})
        assert self.sources(record, f"run:{theirs}") == [f" reads data:run:{ours}"]

    def test_a_path_that_two_projects_claim(self, record: Record) -> None:
        """Whoever reports another's path as its own checkpoint is not what the other's next run starts from."""
        theirs = record.submit(user="eve", project="other")
        record.start(theirs)
        record.report(theirs, {"type": "checkpoint", "step": 4, "path": "/c/4", "bytes": 1})
        ours = record.submit("python a.py --init /c/4")
        assert self.sources(record, f"run:{ours}") == []

    def test_within_a_project_and_for_a_member_of_both(self, record: Record) -> None:
        ours = record.submit()
        same = record.submit(user="eve", data=[f"run:{ours}"])
        assert self.sources(record, f"run:{same}") == [f" reads run:{ours}"]
        join(record, "bob", "default")
        both = record.submit(user="bob", project="other", data=[f"run:{ours}"])
        assert self.sources(record, f"run:{both}") == [f" reads run:{ours}"]
        record.start(both)
        record.report(both, {"type": "data", "name": f"run:{ours}", "role": "output"})
        record.report(both, {"type": "data", "name": f"artifact:{both}/a", "role": "output"})
        assert self.sources(record, f"run:{ours}") == []  # nobody's run writes another's
        assert self.sources(record, f"artifact:{both}/a")[0] == f" writes run:{both}"

    def test_jobs_of_one_moment(self, record: Record) -> None:
        """The first one's run is not in the record yet when the second one's references are looked at."""
        state, events = record.store.state(), []
        for offset, data in enumerate([[], ["run:train-1"]]):
            spec = {"name": "train", "run": "true", "project": "default", "data": data}
            given = {"number": state.next_number + offset, "name": "train", "queue": "default", "user": "ada"}
            given |= {"key": None, "expect": None, "spec": spec}
            events.append(Event(decode("job.submitted", given), 5.0, "ada", "default", f"train-{given['number']}"))
        record.events(*events)
        assert self.sources(record, "run:train-2") == [" reads run:train-1"]


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


def join(record: Record, user: str, project: str) -> None:
    member = {"name": project, "user": user, "role": "viewer"}
    record.events(
        Event(ProjectSet(name=project, description=""), record.later(), "root", project),
        Event(decode("project.member", member), record.later(), "root", project),
    )


def flat(node: Node, depth: int = 0) -> list[str]:
    said = " ".join(filter(None, [node.role, node.ref, "(seen)" if node.seen else "", "(cut)" if node.cut else ""]))
    return [" " * depth + said, *(line for below in node.nodes for line in flat(below, depth + 1))]
