"""Signals of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.core.entities.node import Node
from muster.core.entities.node_record import NODE_RECORDS, follows_node
from muster.monitor.alerts.rule import Reading, Subject
from muster.monitor.alerts.signals.base import View

DAY: Final = 86_400.0
WEEK: Final = 7 * DAY
PLATFORM: Final = frozenset({"engine", "checks"})  # who takes a node out that is sick; a person who does it knows


def out(view: View) -> Iterator[Reading]:
    """1 for a node that the engine or the checks took out. Nodes that a person drains are left out."""
    for node in (*view.state.nodes.values(), *view.state.machines.values()):
        if node.health != "healthy" and node.role != "slot" and node.by in PLATFORM:
            yield Reading(_subject(node), 1.0, {"health": node.health, "why": node.why})


def findings(view: View) -> Iterator[Reading]:
    """Things that were seen of a node while jobs ran there: its clock, its links, errors of its kernel."""
    for name in view.recent.names("finding"):
        node, count = view.state.find_node(name), view.recent.count("finding", name, view.now - DAY)
        if node is not None and count:
            yield Reading(_subject(node), count, {"last": view.recent.text("finding", name)})


def slow(view: View) -> Iterator[Reading]:
    """Programs that were slow on this node and on no other."""
    for name, record in NODE_RECORDS.all(view.state).items():
        node = view.state.find_node(name)
        if node is not None and len(record.slow) > 1:
            found = follows_node(view.state, name, view.now - WEEK)
            yield Reading(_subject(node), len(found), {"programs": ", ".join(found)})


def disk(view: View) -> Iterator[Reading]:
    """The used part of the fullest file system, where a launcher samples the node."""
    return _sampled(view, "disk")


def network_errors(view: View) -> Iterator[Reading]:
    """Packets in a minute that were lost or dropped."""
    return _sampled(view, "lost")


def _sampled(view: View, name: str) -> Iterator[Reading]:
    for one, figures in view.machines.items():
        node, value = view.state.find_node(one), getattr(figures, name)
        if node is not None and value is not None:
            yield Reading(_subject(node), value)


def _subject(node: Node) -> Subject:
    return Subject("node", node.name, pool=node.pool, nodes=(node.name,))
