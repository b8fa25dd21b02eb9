"""Layouts and meshes: what is read, what is refused with its numbers, and where each rank stands."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from gang_kit import gang
from muster.train.errors import MeshError
from muster.train.mesh import Layout, make_mesh


def test_a_layout_is_read_and_told() -> None:
    layout = Layout.parse({"dp": 2, "tp": 2, "pp": 2})
    assert layout == Layout(dp=2, tp=2, pp=2)
    assert str(layout) == "pp 2 x dp 2 x tp 2"
    assert str(Layout()) == "one process"
    layout.check(8)


@pytest.mark.parametrize(
    ("given", "world", "expected"),
    [
        ({"dp": -1}, 4, Layout(dp=4)),
        ({"fsdp": "auto", "tp": 2}, 8, Layout(fsdp=4, tp=2)),
        ({"dp": 2, "fsdp": "auto"}, 6, Layout(dp=2, fsdp=3)),
    ],
)
def test_auto_takes_what_is_left(given: dict[str, Any], world: int, expected: Layout) -> None:
    assert Layout.parse(given).resolve(world) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dp": 2, "cp": 2}, "cp is not a dimension; expected some of pp, dp, fsdp, tp"),
        ({"tp": "auto"}, "tp is -1 .auto., which only dp or fsdp may be"),
        ({"dp": 0}, "dp is 0; expected a number from 1"),
        ({"dp": "two"}, "dp is 'two'; expected a number from 1"),
        ({"dp": True}, "dp is True; expected a number"),
        ({"dp": -1, "fsdp": -1}, "dp and fsdp are both -1"),
    ],
)
def test_what_is_no_layout_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(MeshError, match=words):
        Layout.parse(given)


def test_a_layout_that_does_not_fit_tells_the_numbers() -> None:
    with pytest.raises(MeshError, match="pp 2 x dp 2 x tp 2 = 8, but 6 processes"):
        Layout(dp=2, tp=2, pp=2).check(6)
    with pytest.raises(MeshError, match="with 4 fixed does not divide 6 processes"):
        Layout(dp=-1, tp=4).check(6)
    with pytest.raises(MeshError, match="dp 2 = 2, but 1 processes"):
        make_mesh(Layout(dp=2), "cpu")


def test_one_process_needs_no_group() -> None:
    mesh = make_mesh(Layout(dp=-1), "cpu")
    assert (mesh.world, mesh.rank, mesh.data_world, mesh.data_rank) == (1, 0, 1, 0)
    assert mesh.reduce(torch.tensor(3.0)) == 3.0


def mesh_dimensions(layout: Layout) -> tuple[str, ...]:
    devices = make_mesh(layout, "cpu").devices
    assert devices is not None
    return devices.mesh_dim_names or ()


def stand() -> dict[str, Any]:
    mesh = make_mesh(Layout(dp=2, fsdp=2, tp=2), "cpu")
    mine = torch.tensor(float(mesh.rank))
    layouts = (Layout(dp=8), Layout(dp=4, pp=2), Layout(dp=4, tp=2))
    return {
        "dimensions": [mesh_dimensions(layout) for layout in layouts],
        "place": dict(mesh.place),
        "data": (mesh.data_rank, mesh.data_world),
        "tp": float(mesh.reduce(mine.clone(), "tp")),
        "data sum": float(mesh.reduce(mine.clone(), "dp", "fsdp")),
        "all": float(mesh.reduce(mine.clone())),
        "most": float(mesh.reduce(mine.clone(), op=dist.ReduceOp.MAX)),
    }


def test_each_rank_knows_its_place() -> None:
    found = gang(8, stand)
    assert [each["place"] for each in found] == [
        {"pp": 0, "dp": dp, "fsdp": fsdp, "tp": tp} for dp in (0, 1) for fsdp in (0, 1) for tp in (0, 1)
    ]
    assert [each["data"] for each in found] == [(rank // 2, 4) for rank in range(8)]
    assert [each["tp"] for each in found] == [1.0, 1.0, 5.0, 5.0, 9.0, 9.0, 13.0, 13.0]
    assert [each["data sum"] for each in found] == [12.0, 16.0] * 4
    assert {(each["all"], each["most"]) for each in found} == {(28.0, 7.0)}
    # FSDP replicates what tensor parallelism has split, as one shard; no other dimension of one process is there.
    assert all(each["dimensions"] == [("dp",), ("pp", "dp"), ("dp", "fsdp", "tp")] for each in found)
