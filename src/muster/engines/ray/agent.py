"""The agent: a detached actor on every Ray node that runs the node's workers, with or without a server.

Any client of a Ray cluster can call any of its actors. So an agent only executes calls that are signed with the key
that it shares with its server's bridge, and it proves to the bridge that it has the key before it receives anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from muster.engines.ray.node_workers import NodeWorkers
from muster.engines.ray.signing import Verifier

METHODS: Final = ("hello", "launch", "stop", "forget", "poll", "probe", "check")  # of NodeWorkers


class Agent:
    """Thread-safe. `settings`: those of `NodeWorkers`, and `key`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._verifier = Verifier(str(settings["key"]))
        self._workers = NodeWorkers({name: value for name, value in settings.items() if name != "key"})

    def introduce(self, nonce: str) -> tuple[str, str]:
        """This process's session, and the proof that it has the key."""
        return self._verifier.session, self._verifier.prove(nonce)

    def ask(self, message: str, signature: str) -> Any:
        """Calls a method of `NodeWorkers`. Raises BadSignature for a message that the bridge
        has not signed for this session."""
        method, given = self._verifier.open(message, signature)
        if method not in METHODS:
            raise ValueError(f"there is no {method!r}")
        return getattr(self._workers, method)(*given)
