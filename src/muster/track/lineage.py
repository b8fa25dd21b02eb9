"""Lineage: trees of what was made from what, in both directions and across projects, filtered by the caller's
rights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import Connection, select

from muster.api.lineage import LineageNode
from muster.core.errors import Invalid
from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import check_text, loads
from muster.store.insert import add
from muster.track.record_db import RecordDb
from muster.track.rows import Doc, chunks, link_row

ROLES: Final = ("reads", "writes", "saves", "starts_from", "evaluates", "registers", "promotes")
KINDS: Final = ("data", "run", "checkpoint", "artifact", "model")
DEPTH: Final = 20  # links that a tree follows from its root
_NODES_MAX: Final = 2000  # per tree
_KEPT: Final = 3  # newest checkpoints of a run that are shown although nothing was made from them
HIDDEN: Final = "something in another project"

Direction = Literal["up", "down"]
_DIRECTIONS: Final[tuple[Direction, ...]] = ("up", "down")


@dataclass(frozen=True, slots=True)
class Link:
    source: str
    target: str
    role: str
    time: float
    doc: Doc


@dataclass(slots=True)
class Node:
    """A node of a tree, with the nodes that it was made from, or that were made from it."""

    ref: str  # `run:gpt-17`; `hidden` if the caller may not see it
    role: str = ""  # of the link that leads to it
    about: Doc = field(default_factory=dict)  # known facts: name, phase, project, metrics' names, digest
    nodes: list[Node] = field(default_factory=list)
    left_out: int = 0  # older checkpoints from which nothing was made
    seen: bool = False  # whether it is also elsewhere in the tree, with its nodes
    cut: bool = False  # whether there are more nodes

    def to_dict(self) -> LineageNode:
        return {
            "ref": self.ref,
            "role": self.role,
            "about": self.about,
            "nodes": [node.to_dict() for node in self.nodes],
            "left_out": self.left_out,
            "seen": self.seen,
            "cut": self.cut,
        }


class Lineage:
    def __init__(self, db: RecordDb) -> None:
        self._db = db

    def add(self, source: str, target: str, role: str, doc: Mapping[str, Any] | None = None) -> None:
        self._db.write(self.record(source, target, role, doc))

    def record(self, source: str, target: str, role: str, doc: Mapping[str, Any] | None = None) -> Record:
        """Raises Invalid for an invalid link."""
        check_text(source, target)
        if role not in ROLES:
            raise Invalid(f"There is no link of the role {role!r}.", f"Use one of {', '.join(ROLES)}.")
        for ref in (source, target):
            check_ref(ref)
        row = link_row(source, target, role, self._db.now(), doc)
        return lambda connection: add(connection, tables.links, [row])

    def upstream(self, ref: str, *, visible: Collection[str] | None = None, depth: int = DEPTH) -> Node:
        """What it was made from. `visible`: the projects that the caller may see; None: all."""
        return self._tree(ref, "up", visible, depth)

    def downstream(self, ref: str, *, visible: Collection[str] | None = None, depth: int = DEPTH) -> Node:
        """What was made from it."""
        return self._tree(ref, "down", visible, depth)

    def known(self, ref: str, visible: Collection[str] | None) -> bool:
        """Whether it, or a version of it, is linked to something that the caller may see."""
        trees = (self._tree(ref, direction, visible, 2) for direction in _DIRECTIONS)
        return any(_leads_to(tree.nodes) for tree in trees)

    def _tree(self, ref: str, direction: Direction, visible: Collection[str] | None, depth: int) -> Node:
        check_ref(ref)
        root = Node(ref)
        with self._db.reading() as connection:
            walk = _Walk(connection, direction, visible)
            level = [root]
            walk.fill_in(level)
            for _ in range(depth):
                level = walk.next_level(level)
                if not level:
                    break
            for node in level:
                node.cut = True
        _thin(root)
        return root


def check_ref(ref: str) -> None:
    kind, colon, name = ref.partition(":")
    if not colon or kind not in KINDS or not name:
        raise Invalid(
            f"{ref[:100]!r} is no name in the lineage.",
            "Use a run, or `data:NAME@VERSION`, `checkpoint:RUN/STEP`, `artifact:RUN/PATH` or `model:NAME/VERSION`.",
        )


def run_in(ref: str) -> str | None:
    """The run that a reference is, or belongs to."""
    kind, _, name = ref.partition(":")
    if kind == "run":
        return name
    return name.partition("/")[0] if kind in ("checkpoint", "artifact") else None


class _Walk:
    """Builds a tree level by level, with a few statements per level."""

    def __init__(self, connection: Connection, direction: Direction, visible: Collection[str] | None) -> None:
        self._connection, self._direction, self._visible = connection, direction, visible
        self._met: dict[str, Doc | None] = {}  # reference → known facts; None if the caller may not see it
        self._placed: set[str] = set()
        self._count = 0

    def fill_in(self, nodes: Sequence[Node]) -> None:
        """Fills in the known facts of each node. A node that the caller may not see loses its name."""
        self._describe([node.ref for node in nodes if node.ref not in self._met])
        for node in nodes:
            about = self._met.get(node.ref)
            if about is None:
                node.ref, node.about = "hidden", {"text": HIDDEN}
            else:
                node.about = {**about, **node.about}

    def next_level(self, level: Sequence[Node]) -> list[Node]:
        """The next level, added to the tree."""
        open_: list[Node] = []
        for node in level:
            if node.ref == "hidden":
                continue
            node.seen = node.ref in self._placed
            self._placed.add(node.ref)
            if not node.seen:
                open_.append(node)
        found: list[Node] = []
        links = self._links([node.ref for node in open_])
        for node in open_:
            for ref, role, doc in links.get(node.ref, ()):
                if self._count >= _NODES_MAX:
                    node.cut = True
                    break
                self._count += 1
                node.nodes.append(Node(ref, role, doc))
            found += node.nodes
        self.fill_in(found)
        for node in open_:
            node.nodes = _once_hidden(node.nodes)
        return [node for node in found if node.ref != "hidden"]

    def _links(self, refs: Sequence[str]) -> dict[str, list[tuple[str, str, Doc]]]:
        links = tables.links.c
        here, there = (links.target, links.source) if self._direction == "up" else (links.source, links.target)
        found: dict[str, list[tuple[str, str, Doc]]] = {}
        for part in chunks(refs):
            query = select(here, there, links.role, links.doc).where(here.in_(part)).order_by(links.time, there)
            for ref, other, role, doc in self._connection.execute(query):
                found.setdefault(ref, []).append((other, role, loads(doc)))
        for ref in refs:
            found.setdefault(ref, []).extend(self._implied(ref, {other for other, _, _ in found.get(ref, ())}))
        return found

    def _implied(self, ref: str, known: Collection[str]) -> list[tuple[str, str, Doc]]:
        """Links that are not stored: a run made its own files; a name without a version stands for all its versions."""
        run, found = run_in(ref), list[tuple[str, str, Doc]]()
        if self._direction == "up" and run is not None and not ref.startswith("run:") and f"run:{run}" not in known:
            found.append((f"run:{run}", "saves" if ref.startswith("checkpoint:") else "writes", {}))
        if mark := _versions(ref):
            links = tables.links.c
            column = links.target if self._direction == "up" else links.source
            versions = column.startswith(f"{ref}{mark}", autoescape=True)
            other = links.source if self._direction == "up" else links.target
            ends = self._connection.execute(select(column, other).where(versions).distinct().order_by(column)).all()
            names = dict.fromkeys(name for name, _ in self._seen(ends))
            found += [(name, "version", {}) for name in names if name not in known]
        return found

    def _seen(self, ends: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
        """The pairs whose other end is visible: a name that only other projects use is not shown."""
        self._describe([other for _, other in ends if other not in self._met])
        return (pair for pair in ends if self._met.get(pair[1]) is not None)

    def _describe(self, refs: Iterable[str]) -> None:
        by_run: dict[str, list[str]] = {}
        by_model: dict[str, list[str]] = {}
        for ref in refs:
            run = run_in(ref)
            if run is not None:
                by_run.setdefault(run, []).append(ref)
            elif ref.startswith("model:"):
                by_model.setdefault(ref[6:].rpartition("/")[0] or ref[6:], []).append(ref)
            else:
                self._met[ref] = {}
        runs, models = tables.runs.c, tables.models.c
        columns = (runs.id, runs.project, runs.name, runs.phase, runs.user, runs.kind, runs.created_at, runs.valid)
        for part in chunks(list(by_run)):
            for row in self._connection.execute(select(*columns).where(runs.id.in_(part))):
                for ref in by_run.pop(row.id):
                    self._meet(ref, row.project, dict(row._mapping) if ref.startswith("run:") else {"run": row.id})
        for part in chunks(list(by_model)):
            for name, project in self._connection.execute(
                select(models.name, models.project).where(models.name.in_(part))
            ):
                for ref in by_model.pop(name):
                    self._meet(ref, project, {"project": project})
        for refs_left in (*by_run.values(), *by_model.values()):
            for ref in refs_left:
                self._met[ref] = {"gone": True} if self._visible is None else None

    def _meet(self, ref: str, project: str, about: Doc) -> None:
        self._met[ref] = about if self._visible is None or project in self._visible else None


def _leads_to(nodes: Sequence[Node]) -> bool:
    """Whether any of the nodes or their children is more than the name of a data set."""
    own = (node.ref != "hidden" and not node.ref.startswith("data:") for node in nodes)
    return any(own) or any(_leads_to(node.nodes) for node in nodes)


def _versions(ref: str) -> str:
    """The separator between name and version if the reference has no version, else ""."""
    if ref.startswith("data:") and "@" not in ref:
        return "@"
    return "/" if ref.startswith("model:") and "/" not in ref else ""


def _once_hidden(nodes: list[Node]) -> list[Node]:
    """Merges the hidden nodes under one node into one, with their number."""
    hidden = [node for node in nodes if node.ref == "hidden"]
    if len(hidden) > 1:
        hidden[0].about["count"] = len(hidden)
    return [node for node in nodes if node.ref != "hidden"] + hidden[:1]


def _thin(node: Node) -> None:
    """Removes a run's older checkpoints from which nothing was made."""
    for below in node.nodes:
        _thin(below)
    bare = [one for one in node.nodes if one.role == "saves" and not one.nodes and not one.seen]
    drop = {id(one) for one in bare[:-_KEPT]}
    if node.ref.startswith("run:") and drop:
        node.nodes = [one for one in node.nodes if id(one) not in drop]
        node.left_out = len(drop)
