"""What pools and nodes of several engines are called: each as its engine calls it, unless another had the name first.

A pool `gpu` that engine `b` has too is shown as `b-gpu`, a node `n1` as `n1@b`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Names:
    def __init__(self) -> None:
        self._pools: dict[str, tuple[str, str]] = {}  # as it is shown → engine, and its name there
        self._nodes: dict[str, tuple[str, str]] = {}
        self._shown_pools: dict[tuple[str, str], str] = {}  # the other way round
        self._shown_nodes: dict[tuple[str, str], str] = {}

    def recall(self, pools: Mapping[str, str], nodes: Iterable[tuple[str, str]]) -> None:
        """`pools` and `nodes` as they were shown, each with its engine."""
        for shown, engine in pools.items():
            there = shown.removeprefix(f"{engine}-")
            clashed = pools.get(there, engine) != engine
            self._keep(self._pools, self._shown_pools, shown, engine, there if clashed else shown)
        for shown, engine in nodes:
            self._keep(self._nodes, self._shown_nodes, shown, engine, shown.removesuffix(f"@{engine}"))

    def owners(self) -> dict[str, str]:
        """Every pool as it is shown → its engine."""
        return {shown: engine for shown, (engine, _) in self._pools.items()}

    def pool(self, shown: str) -> tuple[str, str]:
        """Its engine, and what it is called there; an engine of "" for one that was never heard of."""
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
