"""Sends engines what they need beside launches and stops: the demand of waiting jobs, machines to drain, and jobs that
are over."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from muster.core.entities import ENGINE
from muster.core.resources import Resources
from muster.core.state import State
from muster.engines.base import Draining, Engine, Growing, Keeping, NodeInfo
from muster.sched.board import Board
from muster.sched.wanted import wanted

SHOWN: Final = 150  # characters of a drain's reason that every engine shows


class EngineHints:
    """`look_…` runs between two commits; `drain` and `send` run after them and send what the engine doesn't know."""

    def __init__(self, engine: Engine) -> None:
        self._growing = engine if isinstance(engine, Growing) else None
        self._draining = engine if isinstance(engine, Draining) else None
        self._keeping = engine if isinstance(engine, Keeping) else None
        self._over: list[str] = []
        self._wants: Sequence[tuple[str, Resources, int]] | None = None
        self._sent: Sequence[tuple[str, Resources, int]] | None = None
        self._drains: dict[str, str] = {}
        self._drained: dict[str, str] = {}  # machine → reason, as last sent
        self._undrains: list[str] = []

    def look_at_waiting(self, state: State, board: Board, now: float) -> None:
        pools = self._growing.most() if self._growing is not None else {}
        self._wants = wanted(board, state.rules, now, pools) if pools else None

    def look_at_nodes(self, state: State, nodes: Sequence[NodeInfo], back: Container[str] = ()) -> None:
        """Collects machines that were drained or quarantined in Muster and that their engine still uses, and those that
        come back (`back`) and were drained by Muster."""
        if self._draining is None or not state.machines:
            return
        self._drains = {}
        for node in nodes:
            known = state.machines.get(node.name)
            if known is not None and node.name in back:
                ours = known.why and " ".join(known.why.split())[:SHOWN] in node.why
                if node.health == "draining" and (ours or node.name in self._drained):
                    self._undrains.append(node.name)
                self._drained.pop(node.name, None)
            elif known is None or known.health not in ("draining", "quarantined") or known.by == ENGINE:
                self._drained.pop(node.name, None)
            elif node.health == "healthy":
                self._drains[node.name] = known.why or known.health

    def look_at_kept(self, state: State) -> None:
        """Collects the jobs of which the engine keeps something for a next attempt, and that won't have one."""
        kept = self._keeping.kept() if self._keeping is not None else ()
        self._over = [each for each in kept if (job := state.jobs.get(each)) is None or job.final]

    def drain(self) -> None:
        """Before gangs are launched, which must not start there."""
        for node in self._undrains:
            if self._draining is not None:
                self._draining.undrain(node)
        for node, why in self._drains.items():
            if self._draining is not None and self._drained.get(node) != why:
                self._draining.drain(node, why)
                self._drained[node] = why
        self._drains, self._undrains = {}, []

    def send(self) -> None:
        for job in self._over:
            if self._keeping is not None:
                self._keeping.release(job)
        self._over = []
        if self._growing is not None and self._wants is not None and self._wants != self._sent:
            self._growing.want(self._wants)
            self._sent = self._wants
