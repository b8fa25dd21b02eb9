"""`muster runs lineage`: what an object was made from, and what was made from it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from muster.api.lineage import LineageNode
from muster.cli import complete
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.output import PHASE_STYLES, emit, out

# The text of a link, from the point of view of its parent in the tree.
_UP = {"reads": "read", "writes": "written by", "saves": "saved by", "starts_from": "started from",
       "evaluates": "judged", "registers": "made from", "version": "version",
       "promotes": "promoted from"}  # fmt: skip
_DOWN = {"reads": "read by", "writes": "wrote", "saves": "saved", "starts_from": "start of", "evaluates": "judged by",
         "registers": "registered as", "version": "version", "promotes": "promoted to"}  # fmt: skip


def lineage(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="A run, data:NAME@VERSION, checkpoint:RUN/STEP, artifact:RUN/PATH or model:NAME/VERSION.",
            autocompletion=complete.jobs,
        ),
    ],
    up: Annotated[bool, typer.Option("--up", help="Only what it was made from.")] = False,
    down: Annotated[bool, typer.Option("--down", help="Only what was made from it.")] = False,
    depth: Annotated[int | None, typer.Option(min=1, max=100, help="Follow at most so many links.")] = None,
    json: Json = False,
) -> None:
    """Show lineage both ways: data, runs, checkpoints, evaluations and models."""
    way = "both" if up == down else "up" if up else "down"
    with client() as to:
        found = to.lineage(ref, way, depth)
    if json:
        emit(found)
        return
    for node, title, words in ((found.get("up"), "made from", _UP), (found.get("down"), "led to", _DOWN)):
        if node is not None:
            tree = Tree(Text.assemble(_label(node), ("  " + title, "dim")))
            _grow(tree, node, words)
            if not node["nodes"]:
                tree.add(Text("nothing that is known", style="dim"))
            out().print(tree)


def _grow(tree: Tree, node: LineageNode, words: dict[str, str]) -> None:
    for below in node["nodes"]:
        role = words.get(below["role"], below["role"])
        label = Text.assemble((f"{role} ", "dim"), _label(below), (" (see above)" if below["seen"] else "", "dim"))
        _grow(tree.add(label), below, words)
    if node["left_out"]:
        tree.add(Text(f"and {node['left_out']} earlier checkpoints", style="dim"))
    if node["cut"]:
        tree.add(Text("and more: see --depth", style="dim"))


def _label(node: LineageNode) -> Text:
    about = node["about"]
    if node["ref"] == "hidden":
        count = about.get("count", 1)
        return Text(about["text"] if count == 1 else f"{count} things in other projects", style="italic dim")
    label = Text(node["ref"].removeprefix("run:"), style="bold")
    if "phase" in about:
        label.append(f"  {about['phase']}", style=PHASE_STYLES.get(about["phase"], ""))
        label.append(f"  {about['project']}, {about['user']}", style="dim")
    if about.get("digest"):
        label.append(f"  {about['digest'][:12]}", style="dim")
    if about.get("gone"):
        label.append("  deleted", style="dim")
    return label
