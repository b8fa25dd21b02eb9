"""`muster nodes` says which free accelerators are of no use to typical jobs."""

from __future__ import annotations

from muster.api.capacity import CapacityView
from muster.cli.nodes import stranded_sentence


def test_stranded_accelerators_with_what_is_missing_beside_them() -> None:
    one: CapacityView = {
        "pool": "main", "accelerator": "H100", "total": 16, "used": 4, "free": 12, "drained": 0, "nodes": 2,
        "nodes_out": 0, "stranded": {"cpus": 3, "memory": 0, "accelerators": 0.5},
    }  # fmt: skip
    assert stranded_sentence(one) == (
        "pool main: 3.5 free H100 are of no use to typical jobs"
        " (3 lack CPUs, 0.5 lack more accelerators or the rest of a shared one)"
    )
