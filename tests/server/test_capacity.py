"""The capacity of the cluster: sums that are those of the nodes, for anybody who is signed in."""

from __future__ import annotations

from live import LiveServer, until
from muster.core.entities import Node
from muster.core.resources import Resources
from muster.server.routes.capacity import sums


def node(name: str, free: int, health: str = "healthy", **more: str) -> Node:
    total = Resources(8000, 2**30, 8, "H100")
    return Node(name, "main", total, health=health, free=Resources(8000, 2**30, free, "H100"), **more)  # type: ignore[arg-type]


def test_what_is_used_on_a_drained_node_is_used_and_the_rest_is_neither_used_nor_free() -> None:
    nodes = [node("a", 8), node("b", 3), node("c", 6, "draining"), node("s", 8, role="slot")]
    small = Node("d", "main", Resources(4000), free=Resources(1000))
    found = sums([*nodes, small], [])
    gpus, cpus = found["main", "H100"], found["main", ""]
    assert (gpus.total, gpus.used, gpus.drained, gpus.nodes, gpus.out) == (24, 7, 6, 3, 1)
    assert (cpus.total, cpus.used, cpus.drained, cpus.nodes) == (4000, 3000, 0, 1)


def test_a_gang_uses_and_a_drain_takes_out(server: LiveServer) -> None:
    def now() -> dict[str, float]:
        (found,) = server.get("/v1/capacity")["pools"]
        assert found["total"] == found["used"] + found["free"] + found["drained"]
        return dict(found)

    before = now()
    assert (before["accelerator"], before["total"], before["nodes"]) == ("H100", 8, 2)
    name = server.get("/v1/nodes")["nodes"][0]["name"]
    server.post(f"/v1/nodes/{name}/health", {"health": "draining", "reason": "a test"})
    try:
        assert (now()["nodes_out"], now()["drained"]) == (1, 4)
        job = server.submit("sleep 600", resources={"accelerators": "H100:2"})["id"]
        until(lambda: now()["used"] >= 2, "the gang")
        server.post(f"/v1/jobs/{job}/stop", {"force": True})
        server.wait(job)
    finally:
        server.post(f"/v1/nodes/{name}/health", {"health": "healthy"})
    until(lambda: now()["drained"] == 0, "the node to be back")
