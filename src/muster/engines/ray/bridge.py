"""The bridge to Ray: a child process of the server. Only it imports Ray, so that a crash in Ray ends no server.

`python -m muster.engines.ray.bridge`: a line of JSON on stdin is a request, {"id": 1, "do": "look", ...}; a line on
stdout is the answer, {"id": 1, "ok": ...} or {"id": 1, "error": TEXT}; {"changed": true} means that a look would return
something new.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final

from muster.engines.ray.agent_links import AgentLinks
from muster.engines.ray.cluster import Cluster
from muster.engines.ray.groups import PlacementGroups
from muster.engines.ray.starting import GangStarter

SILENT: Final = 20.0  # seconds without an answer of Ray's head before it counts as away


class Bridge:
    """Answers requests, with one method for each."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._cluster = Cluster()
        self._agent_links = AgentLinks(self._cluster, self._changed)
        self._groups = PlacementGroups(self._cluster, self._agent_links, self._changed)
        self._starting = GangStarter(self._cluster, self._agent_links, self._groups, self._changed)
        self._announced = False

    async def connect(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Connects to Ray. `ask` has `address`, `namespace`, `package`, `agent` (settings), `urls`, `certificate`,
        `nodes_every` and `steer`."""
        about = self._cluster.connect(ask["address"], ask["namespace"], ask["package"])
        await self._agent_links.open(ask["agent"], ask["urls"], ask["certificate"], ask["nodes_every"])
        if ask["steer"]:
            await self._groups.open(ask["agent"]["installation"])
        return about

    async def look(self, ask: dict[str, Any]) -> dict[str, Any]:
        self._announced = False
        silent = time.monotonic() - self._agent_links.answered_at
        if silent > SILENT:
            raise ConnectionError(f"Ray's head has not answered for {silent:.0f} s")
        waiting = [gang for gang in self._agent_links.ledger.gangs.values() if gang.wait and gang.stage == "reserving"]
        return {
            "workers": self._agent_links.ledger.reports(),
            "waits": [[*gang.key, *(gang.wait or ("", ""))] for gang in waiting],
            "nodes": self._agent_links.described(),
        }

    async def launch(self, ask: dict[str, Any]) -> None:
        for raw in ask["gangs"]:
            self._starting.launch(raw)

    async def stop(self, ask: dict[str, Any]) -> None:
        for job, attempt, grace, reason in ask["orders"]:
            self._starting.stop((job, attempt), grace, reason)

    async def forget(self, ask: dict[str, Any]) -> None:
        for job, attempt in ask["attempts"]:
            self._starting.forget((job, attempt))

    async def want(self, ask: dict[str, Any]) -> None:
        await self._groups.want([(bundle, labels) for bundle, labels in ask["bundles"]])

    async def probe(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Runs the doctor's probe on a node, by its agent."""
        return await self._agent_links.probe(ask["node"], ask["mark"], ask["write"])

    async def check(self, ask: dict[str, Any]) -> list[dict[str, Any]]:
        """Runs the checks of a node, by its agent."""
        found: list[dict[str, Any]] = await self._agent_links.order(ask["node"], {}, "check", ask["shared"])
        return found

    def _changed(self) -> None:
        self._groups.nudge()
        if not self._announced:  # once until the next look
            self._announced = True
            self._say({"changed": True})


async def serve(asked: Callable[[Callable[[str | None], None]], None], say: Callable[[dict[str, Any]], None]) -> None:
    """Answers requests until stdin is closed. `asked` starts a thread that passes every line on."""
    bridge = Bridge(say)
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def hand_over(line: str | None) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, line)

    asked(hand_over)
    answering: set[asyncio.Task[None]] = set()
    while (line := await lines.get()) is not None:
        ask = json.loads(line)
        task = asyncio.create_task(_answer(getattr(bridge, ask["do"]), ask, say))
        answering.add(task)
        task.add_done_callback(answering.discard)
    os._exit(0)  # no cleanup: the agents and the placement groups stay


async def _answer(
    handle: Callable[[dict[str, Any]], Awaitable[Any]], ask: dict[str, Any], say: Callable[[dict[str, Any]], None]
) -> None:
    try:
        say({"id": ask["id"], "ok": await handle(ask)})
    except Exception as error:
        traceback.print_exc()
        say({"id": ask["id"], "error": str(error) or repr(error)})


def main() -> None:
    # Ray may print to stdout: redirect that, so that it is not taken for an answer.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(answer: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps(answer) + "\n")
            out.flush()

    def asked(hand_over: Callable[[str | None], None]) -> None:
        def read() -> None:
            for line in sys.stdin:
                hand_over(line)
            hand_over(None)

        threading.Thread(target=read, daemon=True).start()

    asyncio.run(serve(asked, say))


if __name__ == "__main__":
    main()
