"""Saved by 4 or 2 ranks in one layout, loaded by 4, 2 and 1 in every other: plain, FSDP, TP, FSDP x TP and pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed.checkpoint
from ckpt_kit import names
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from gang_kit import gang
from muster.runtime import rank_info
from muster.train.checkpoint import Saver, Snapshot, export, newest, reader, restore
from muster.train.errors import CheckpointError, CheckpointMismatch
from muster.train.models import safetensors

# Sizes that divide by 4, that leave some ranks less, and that leave some ranks nothing.
SHAPES = {"even.weight": (8, 12), "odd.weight": (7, 5), "small.bias": (3,), "cube.weight": (4, 6, 2), "scale": ()}


def full(seed: int) -> dict[str, Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=numbers) for name, shape in SHAPES.items()}


class Net(nn.Module):
    """Two layers that FSDP and TP share between them, with sizes that don't divide evenly among FSDP's ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 6)
        for n, value in enumerate(self.parameters()):
            nn.init.normal_(value, generator=torch.Generator().manual_seed(n))


def dtensors(values: dict[str, Tensor], mesh: Any, placements: list[Any]) -> dict[str, Tensor]:
    """Sharded where the tensor has the dimension, else the same on all ranks."""
    found: dict[str, Tensor] = {}
    for name, value in values.items():
        fits = [each if not isinstance(each, Shard) or each.dim < value.dim() else Replicate() for each in placements]
        found[name] = distribute_tensor(value.clone(), mesh, fits)
    return found


def lay(kind: str, seed: int, world: int, rank: int) -> dict[str, Tensor]:
    """The model's tensors as a layout has them."""
    values = full(seed)
    if kind == "plain":
        return values
    if kind == "pipeline":
        return {name: value for n, (name, value) in enumerate(values.items()) if n // 2 % world == rank}
    if kind == "fsdp":
        return dtensors(values, init_device_mesh("cpu", (world,)), [Shard(0)])
    if kind == "tp":
        return dtensors(values, init_device_mesh("cpu", (world,)), [Shard(1)])
    shape = (2, world // 2)
    return dtensors(
        values, init_device_mesh("cpu", shape), {"hybrid": [Replicate(), Shard(0)], "2d": [Shard(0), Shard(1)]}[kind]
    )


KINDS = ("plain", "pipeline", "fsdp", "tp", "hybrid", "2d")


def whole(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in values.items()}


def state(kind: str, seed: int, world: int) -> Snapshot:
    rank = rank_info.rank()
    model = lay(kind, seed, world, rank)
    optim: dict[str, Any] = {f"{name}.exp_avg": value for name, value in lay(kind, seed + 1, world, rank).items()}
    optim |= {f"{name}.step": torch.tensor(float(seed)) for name in model} | {"lr": seed / 3}
    return Snapshot(model, optim, {"rank": rank}, {"step": seed, "kind": kind})


def save_all(root: str, world: int) -> None:
    for number, kind in enumerate(KINDS):
        with Saver(f"{root}/{kind}-{world}") as saver:
            saver.save(state(kind, 10 * number + 1, world), wait=True)


def targets(world: int, saved: int) -> tuple[str, ...]:
    if world == 1:
        return ("plain",)
    return KINDS if saved == 4 else ("plain", "2d")


def load_all(root: str, world: int) -> int:
    """Into every layout, from every one that is there; how many."""
    done = 0
    for number, kind in enumerate(KINDS):
        for saved in (4, 2):
            found = newest(f"{root}/{kind}-{saved}")
            assert found is not None
            seed = 10 * number + 1
            for into in targets(world, saved):
                target = state(into, 777, world)
                # With 2 ranks' also in reads of a few rows each, as those of large tensors are.
                with mock.patch.object(reader, "SPAN", 64 if saved == 2 else reader.SPAN):
                    restored = restore(found, target)
                expected = full(seed), full(seed + 1)
                for name, value in whole(target.model).items():
                    assert torch.equal(value, expected[0][name]), (kind, saved, into, name)
                    moment = target.optim[f"{name}.exp_avg"]
                    moment = moment.full_tensor() if isinstance(moment, DTensor) else moment
                    assert torch.equal(moment, expected[1][name]), (kind, saved, into, name)
                    assert target.optim[f"{name}.step"] == seed
                assert target.optim["lr"] == seed / 3
                assert restored.extra == ({"rank": rank_info.rank()} if saved == world else None)
                assert restored.shared == {"step": seed, "kind": kind}
                done += 1
    _load_with_torch(f"{root}/fsdp-4", 21, world)
    return done


def _load_with_torch(where: str, seed: int, world: int) -> None:
    """torch's own way in, for who has it already."""
    if world > 1:
        found = newest(where)
        assert found is not None
        values = {f"model/{name}": value for name, value in lay("tp", 777, world, rank_info.rank()).items()}
        torch.distributed.checkpoint.load(values, storage_reader=found.reader())
        assert all(torch.equal(v, full(seed)[k.removeprefix("model/")]) for k, v in whole(values).items())


def fsdp_and_tp(root: str) -> None:
    """The real thing: `fully_shard` over `parallelize_module`, whose shards of one dimension are interleaved."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    net = Net()
    parallelize_module(net, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(net, mesh=mesh["fsdp"])
    with Saver(f"{root}/net") as saver:
        saver.save(Snapshot(dict(net.state_dict()), shared={"step": 1}), wait=True)
        found = saver.newest()
        assert found is not None
        with torch.no_grad():
            for value in net.parameters():
                value.zero_()
        restore(found, Snapshot(dict(net.state_dict())))
    for name, value in Net().state_dict().items():
        assert torch.equal(net.state_dict()[name].full_tensor(), value), name


def refusals(root: str) -> list[str]:
    """What all ranks must say together, and be able to go on after."""
    rank, said = rank_info.rank(), []
    with Saver(f"{root}/refused", busy="skip") as saver:
        for bad in (
            Snapshot({"w": torch.zeros(2 + rank)}, shared={"step": 1}),  # not the same tensor on all ranks
            Snapshot({"w": torch.zeros(2)}, shared={"step": rank}),
            Snapshot({"w": torch.zeros(2)}, {"x": open} if rank == 2 else {}, shared={"step": 1}),
        ):
            try:
                saver.save(bad, wait=True)
            except CheckpointError as error:
                said.append(str(error))
        saver.save(Snapshot({"w": torch.ones(2)}, shared={"step": 2}), wait=True)
        other = {"w": torch.zeros(2)} | ({"v": torch.zeros(1)} if rank == 3 else {})
        found = saver.newest()
        assert found is not None
        try:
            restore(found, Snapshot(other))
        except CheckpointMismatch as error:
            said.append(str(error))
        assert torch.equal(other["w"], torch.zeros(2))
    return said


def four(root: str) -> tuple[int, list[str]]:
    save_all(root, 4)
    fsdp_and_tp(root)
    return load_all(root, 4), refusals(root)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[str, list[tuple[int, list[str]]]]:
    """Where 2 and 4 ranks have saved every layout, and what the 4 ranks then found."""
    folder = str(tmp_path_factory.mktemp("reshard"))
    gang(2, save_all, folder, 2)
    return folder, gang(4, four, folder)


@pytest.fixture
def root(saved) -> str:
    return saved[0]


def test_four_ranks_load_every_layout(saved):
    root, results = saved
    assert [done for done, _ in results] == [len(KINDS) * (len(KINDS) + 2)] * 4
    files = names(Path(root) / "fsdp-4" / "step-000000021")
    assert [name for name in files if name.endswith(".bin")] == [f"rank-0000{rank}-0.bin" for rank in range(4)]


def test_ranks_refuse_together(saved):
    said = saved[1][0][1]
    assert all(each == said for _, each in saved[1])
    shapes, steps, values, missing = said
    assert "model/w is torch.float32 [2] on rank 0, torch.float32 [3] on rank 1" in shapes
    assert "ranks are at different steps: [0, 1, 2, 3]" in steps
    assert values.startswith("rank 2: a value in Snapshot.model or Snapshot.optim can't be saved")
    assert "missing in the checkpoint: model/v" in missing


def test_two_ranks_and_one_load_what_four_saved(root):
    assert gang(2, load_all, root, 2) == [len(KINDS) * (len(KINDS) + 2)] * 2
    assert load_all(root, 1) == len(KINDS) * 2


def test_what_four_saved_is_one_file(root, tmp_path):
    export(newest(f"{root}/2d-4"), tmp_path / "model.safetensors")
    found = safetensors.read_folder(tmp_path)
    assert found.keys() == SHAPES.keys()
    assert all(torch.equal(found[name], value) for name, value in full(51).items())
    net = newest(f"{root}/net")
    values = {name: torch.zeros_like(value) for name, value in Net().state_dict().items()}
    restore(net, Snapshot(values))
    assert all(torch.equal(values[name], value) for name, value in Net().state_dict().items())


def test_each_rank_writes_its_part_of_what_all_have(root):
    sizes = [path.stat().st_size for path in (Path(root) / "plain-4" / "step-000000001").glob("rank-*.bin")]
    assert len(sizes) == 4
    assert max(sizes) < 2 * sum(sizes) / 4
