"""Artifacts: names for content, in a tree; paths that could lead elsewhere are refused."""

from __future__ import annotations

import json

import pytest
from content_kit import Content, both, sha
from hypothesis import given
from hypothesis import strategies as st

from muster.core.errors import Conflict, Invalid, NotFound
from muster.track.artifacts import Artifact, Folder
from muster.track.holders import Holder
from muster.track.paths import check_path
from muster.track.snapshots import Code, parse_manifest

ALL = Holder("user:ada", None)
BAD = [
    "", "/etc/passwd", "../up", "a/../b", "a/./b", "a//b", "a/", "~/x", "C:/x", "c:x", "a\\b", "..\\up", "a\0b", "a\nb",
    "a/..", ".", "..", "x" * 256, "/".join(["y" * 200] * 6), "\ud800", "é" * 128,
]  # fmt: skip


@pytest.mark.parametrize("path", BAD)
def test_paths_that_are_refused(path: str) -> None:
    with pytest.raises(Invalid) as told:
        check_path(path)
    assert "relative path" in told.value.hint


def test_none_of_them_is_kept(kept: Content) -> None:
    digest = kept.add("x")
    for path in BAD:
        with pytest.raises(Invalid):
            kept.artifacts.put("run", path, digest)
    assert kept.artifacts.list("run") == []


@given(st.text(max_size=40))
def test_what_is_let_through_stays_inside(path: str) -> None:
    try:
        check_path(path)
    except Invalid:
        return
    parts = path.split("/")
    assert all(part not in ("", ".", "..") for part in parts)
    assert not path.startswith("/")
    assert path.encode().decode() == path


@both
def test_a_tree(kept: Content) -> None:
    one, two = kept.add("one"), kept.add("two!")
    for path in ("b.txt", "plots/loss.png", "plots/deep/x.bin", "plots2/y", "Plots/z"):
        kept.artifacts.put("run", path, one)
    kept.artifacts.put("run", "a.txt", two, kind="media", attempt=3, doc={"step": 7})
    assert [one.path for one in kept.artifacts.list("run", "plots")] == ["plots/deep/x.bin", "plots/loss.png"]
    level = kept.artifacts.children("run")
    assert [(type(one), one.path) for one in level] == [
        (Folder, "Plots"), (Artifact, "a.txt"), (Artifact, "b.txt"), (Folder, "plots"), (Folder, "plots2"),
    ]  # fmt: skip
    assert [(one.path, one.bytes) for one in kept.artifacts.children("run", "plots")] == [
        ("plots/deep", 3), ("plots/loss.png", 3),
    ]  # fmt: skip
    found = kept.artifacts.get("run", "a.txt")
    assert found is not None
    assert (found.digest, found.bytes, found.kind, found.attempt, found.doc) == (two, 4, "media", 3, {"step": 7})
    assert kept.artifacts.totals("run") == Folder("", 6, 19)
    assert kept.artifacts.runs_with(two) == {"run"}
    assert [one.path for one in kept.artifacts.remove("run", "plots")] == ["plots/deep/x.bin", "plots/loss.png"]
    assert len(kept.artifacts.list("run")) == 4
    with pytest.raises(NotFound):
        kept.artifacts.remove("run", "plots")


@both
def test_a_path_is_given_other_content(kept: Content) -> None:
    kept.artifacts.put("run", "x", kept.add("old"))
    kept.artifacts.put("run", "x", kept.add("newer"))
    (found,) = kept.artifacts.list("run")
    assert (found.digest, found.bytes) == (sha("newer"), 5)


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b/c", "a/b"), ("a/b/c", "a")])
def test_a_file_is_no_folder(kept: Content, first: str, second: str) -> None:
    digest = kept.add("x")
    kept.artifacts.put("run", first, digest)
    with pytest.raises(Conflict, match="both a file and a folder"):
        kept.artifacts.put("run", second, digest)
    kept.artifacts.put("other", second, digest)


@both
def test_content_must_be_there(kept: Content) -> None:
    with pytest.raises(NotFound):
        kept.artifacts.put("run", "x", sha("nowhere"))
    kept.db.write(kept.artifacts.record(kept.artifacts.make("run", "x", sha("nowhere"), 3)))
    assert kept.artifacts.list("run") == []
    with pytest.raises(Invalid, match="bytes"):
        kept.artifacts.put("run", "x", kept.add("four"), 5)


@pytest.mark.parametrize("wrong", [{"digest": "abc"}, {"kind": "virus"}, {"doc": {"x": "y" * 70_000}}, {"run": "a\0"}])
def test_other_things_that_can_not_be(kept: Content, wrong: dict) -> None:
    given = {"run": "run", "path": "x", "digest": kept.add("x"), **wrong}
    with pytest.raises(Invalid):
        kept.artifacts.put(**given)


class TestSnapshots:
    def tree(self, kept: Content, files: dict[str, str]) -> str:
        return kept.add(json.dumps({path: [sha(text), len(text), 0o644] for path, text in files.items()}))

    def test_a_whole_one_is_tied_to_its_run(self, kept: Content) -> None:
        kept.add("import torch")
        code = Code(commit="ab12", tree=self.tree(kept, {"train.py": "import torch"}), files=1, bytes=12)
        assert kept.snapshots.accept(code, ALL) == code
        kept.db.write(*kept.snapshots.records(code, "default", 5.0)("job-1"))
        found = kept.snapshots.of_run("job-1")
        assert found is not None
        assert found.files == {"train.py": (sha("import torch"), 12, 0o644)}
        assert kept.snapshots.refers("job-1", sha("import torch"))
        assert not kept.snapshots.refers("job-2", sha("import torch"))

    def test_what_is_not_there_is_left_out_and_said(self, kept: Content) -> None:
        half = self.tree(kept, {"train.py": "never uploaded"})
        for tree in (half, sha("nothing"), kept.add("no manifest"), kept.add(json.dumps({"../x": [sha("x"), 1, 1]}))):
            found = kept.snapshots.accept(Code(commit="ab12", tree=tree, diff=sha("gone"), files=3), ALL)
            assert (found.commit, found.tree, found.diff, found.files) == ("ab12", "", "", 0)
            assert len(found.notes) == 2

    @both
    def test_it_is_asked_again_after_something_was_deleted(self, kept: Content) -> None:
        kept.add("a")
        tree = self.tree(kept, {"a.py": "a"})
        assert kept.snapshots.whole(tree, ALL)
        kept.pass_days(2)
        assert kept.snapshots.whole(tree, ALL)  # remembered, so nothing was made young
        kept.blobs.collect()
        assert not kept.snapshots.whole(tree, ALL)
        kept.add("a")
        assert not kept.snapshots.whole(tree, ALL)
        assert kept.snapshots.whole(self.tree(kept, {"a.py": "a"}), ALL)

    @given(raw=st.one_of(st.binary(max_size=60), st.recursive(st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8).map(lambda doc: json.dumps(doc).encode())))  # fmt: skip
    def test_manifests_that_are_none(self, raw: bytes) -> None:
        try:
            found = parse_manifest(raw, "t")
        except Invalid:
            return
        assert all(len(digest) == 64 for digest in found.digests())
