"""A gang that waits on an autoscaling Ray cluster becomes a request, and starts on the nodes that come of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from live import LiveServer, stop_everything, until
from rigs.ray_rig import RayRig

POOL = """
[engines.ray.pools.ray]
node = {cpus = 2, memory = "1GB"}
max_nodes = 2
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    rig = RayRig(dashboard=False, nodes=0, grows=2)
    try:
        rig.start(tmp_path)
        server = LiveServer(tmp_path / "home", config=rig.config + POOL)
        server.start()
        try:
            yield server
        finally:
            stop_everything(server)
    finally:
        rig.close()


def test_a_gang_that_waits_has_nodes_made_for_it(server: LiveServer) -> None:
    until(lambda: server.get("/v1/engines")["engines"][0]["ok"], "Ray to answer")
    assert server.get("/v1/nodes")["nodes"] == []
    job = server.submit("echo $MUSTER_NODE", num_nodes=2, pool="ray", resources={"cpus": 2})["id"]
    server.wait(job, "queued")
    until(lambda: server.job(job)["phase"] == "succeeded", "new nodes, and its end", patience=150)
    assert len(set(server.output(job).split())) == 2
