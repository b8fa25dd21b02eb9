"""What every placement keeps: all or nothing, a node of its own for each worker, and nothing taken when it says no."""

from __future__ import annotations

import pytest
from hypothesis import given

from muster.core.state import State
from muster.sched.place import Free
from muster.sched.placements import PLACEMENTS
from worlds import estate, fold, job_event, node_event, worlds


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
class TestPlacement:
    @given(state=worlds())
    def test_all_or_nothing(self, name: str, state: State) -> None:
        free = Free(state)
        for job in state.jobs.values():
            before = {node.name: free.left(node) for node in state.nodes.values()}
            room = sum(1 for left in before.values() if left.holds(job.ask))
            seats = PLACEMENTS.get(name).place(job, free)
            if seats is None:
                assert room < job.spec.num_nodes
                assert before == {node.name: free.left(node) for node in state.nodes.values()}
            else:
                assert len({seat.node for seat in seats}) == job.spec.num_nodes
                for seat in seats:
                    assert before[seat.node].holds(job.ask)
                    assert free.left(state.nodes[seat.node]) == before[seat.node] - job.ask

    def test_only_healthy_nodes_of_the_pool(self, name: str) -> None:
        state = fold(
            [
                *estate(),
                node_event("a", 1, 4),
                node_event("b", 1, 4, pool="other"),
                job_event(1, pool="main", num_nodes=1),
            ]
        )
        seats = PLACEMENTS.get(name).place(state.jobs["job-1"], Free(state))
        assert [seat.node for seat in seats] == ["a"]
        state.nodes["a"].health = "draining"
        assert PLACEMENTS.get(name).place(state.jobs["job-1"], Free(state)) is None


def test_pack_fills_the_fuller_node_and_spread_the_emptier() -> None:
    state = fold([*estate(), node_event("a", 4, 8), node_event("b", 2, 8), job_event(1, gpus=1)])
    job = state.jobs["job-1"]
    assert PLACEMENTS.get("pack").place(job, Free(state))[0].node == "b"
    assert PLACEMENTS.get("spread").place(job, Free(state))[0].node == "a"
