"""Maps the pool and node names of several engines to the names that are shown, which are unique.

A name is shown as its engine has it, unless another engine used it first: then a pool `gpu` of engine `b` is shown as
`b-gpu`, and a node `n1` as `n1@b`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Names:
    def __init__(self) -> None:
        self._pools: dict[str, tuple[str, str]] = {}  # shown name → engine, and the engine's own name
        self._nodes: dict[str, tuple[str, str]] = {}
        self._shown_pools: dict[tuple[str, str], str] = {}  # the reverse
        self._shown_nodes: dict[tuple[str, str], str] = {}

    def restore(self, pools: Mapping[str, str], nodes: Iterable[tuple[str, str]]) -> None:
        """Restores names. `pools` and `nodes` are shown names, each with its engine."""
        for shown, engine in pools.items():
            there = shown.removeprefix(f"{engine}-")
            clashed = pools.get(there, engine) != engine
            self._keep(self._pools, self._shown_pools, shown, engine, there if clashed else shown)
        for shown, engine in nodes:
            self._keep(self._nodes, self._shown_nodes, shown, engine, shown.removesuffix(f"@{engine}"))

    def owners(self) -> dict[str, str]:
        """Shown name of every pool → its engine."""
        return {shown: engine for shown, (engine, _) in self._pools.items()}

    def pool(self, shown: str) -> tuple[str, str]:
        """The pool's engine and the engine's own name for it; the engine is "" for an unknown pool."""
        return self._pools.get(shown, ("", shown))

    def node(self, shown: str) -> tuple[str, str]:
        return self._nodes.get(shown, ("", shown))

    def show_pool(self, engine: str, name: str) -> str:
        shown = self._shown_pools.get((engine, name))
        if shown is None:
            shown = name
            while shown in self._pools:
                shown = f"{engine}-{shown}"
            self._keep(self._pools, self._shown_pools, shown, engine, name)
        return shown

    def show_node(self, engine: str, name: str) -> str:
        shown = self._shown_nodes.get((engine, name))
        if shown is None:
            shown = name
            while shown in self._nodes:
                shown = f"{shown}@{engine}"
            self._keep(self._nodes, self._shown_nodes, shown, engine, name)
        return shown

    @staticmethod
    def _keep(
        names: dict[str, tuple[str, str]], shown_of: dict[tuple[str, str], str], shown: str, engine: str, name: str
    ) -> None:
        names[shown], shown_of[engine, name] = (engine, name), shown
