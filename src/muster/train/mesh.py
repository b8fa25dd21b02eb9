"""The mesh: the number of processes in each dimension of parallelism, and this process's position in it.

Dimensions from outside to inside: `pp` (pipeline stages), `dp` (replicas), `fsdp` (shards of the weights), `tp` (shards
of each matrix). Neighbouring ranks are neighbours in `tp`, which communicates most, so `tp` stays inside a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from muster.train.errors import MeshError

DIMS: Final = ("pp", "dp", "fsdp", "tp")
AUTO: Final = -1


@dataclass(frozen=True)
class Layout:
    """The number of processes in each dimension. `dp` or `fsdp` may be -1: all remaining ones."""

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    pp: int = 1

    @classmethod
    def parse(cls, given: Mapping[str, int | str]) -> Layout:
        """A layout from `{"dp": 2, "tp": 2}`; `-1` or `"auto"` for one of dp and fsdp. Raises `MeshError`."""
        unknown = sorted(set(given) - set(DIMS))
        if unknown:
            raise MeshError(f"mesh: {', '.join(unknown)} is not a dimension; expected some of {', '.join(DIMS)}.")
        return cls(**{name: _size(name, value) for name, value in given.items()})._checked()

    def resolve(self, world: int) -> Layout:
        """The layout with -1 replaced by what is left of `world` processes."""
        waiting = [name for name in DIMS if getattr(self, name) == AUTO]
        if not waiting:
            return self
        rest = self._product()
        if world % rest:
            raise MeshError(f"mesh: {self} with {rest} fixed does not divide {world} processes.")
        return replace(self, **{waiting[0]: world // rest})

    def check(self, world: int) -> None:
        """Raises `MeshError` with the numbers unless the product is `world`."""
        self._checked()
        resolved = self.resolve(world)
        if resolved._product() != world:
            raise MeshError(f"mesh: {resolved} = {resolved._product()}, but {world} processes.")

    @property
    def data_world(self) -> int:
        """Processes that read different data."""
        return self.dp * self.fsdp

    def sizes(self) -> dict[str, int]:
        """Sizes by name, from outside to inside."""
        return {name: getattr(self, name) for name in DIMS}

    def __str__(self) -> str:
        given = [f"{name} {size}" for name, size in self.sizes().items() if size != 1]
        return " x ".join(given) or "one process"

    def _product(self) -> int:
        product = 1
        for size in self.sizes().values():
            product *= 1 if size == AUTO else size
        return product

    def _checked(self) -> Layout:
        for name, size in self.sizes().items():
            if size == AUTO and name not in ("dp", "fsdp"):
                raise MeshError(f"mesh: {name} is -1 (auto), which only dp or fsdp may be; give a number from 1.")
            if size < 1 and size != AUTO:
                raise MeshError(f"mesh: {name} is {size}; expected a number from 1, or -1 for dp or fsdp.")
        if self.dp == AUTO and self.fsdp == AUTO:
            raise MeshError("mesh: dp and fsdp are both -1 (auto); give a number for one of them.")
        return self


@dataclass(frozen=True)
class Mesh:
    """A layout applied to the processes, and this process's position in it.

    `devices` is None for a single process. It has the dimensions with several processes alone, because each one makes
    process groups.
    """

    layout: Layout
    device: torch.device
    devices: DeviceMesh | None
    place: Mapping[str, int]

    @property
    def data_world(self) -> int:
        """Processes that read different data: dp x fsdp."""
        return self.layout.data_world

    @property
    def data_rank(self) -> int:
        """The index of this process's share of the data; equal for all of its tp and pp peers."""
        return self.place["dp"] * self.layout.fsdp + self.place["fsdp"]

    @property
    def world(self) -> int:
        """The total number of processes."""
        return 1 if self.devices is None else self.devices.size()

    @property
    def rank(self) -> int:
        """This process's number in the gang."""
        return 0 if self.devices is None else dist.get_rank()

    def size(self, name: str) -> int:
        """Processes in one dimension."""
        return self.layout.sizes()[name]

    def sub(self, *names: str) -> DeviceMesh:
        """The part of the DeviceMesh with these dimensions. Only with more than one process."""
        assert self.devices is not None, "one process alone has no DeviceMesh"
        return self.devices[names[0] if len(names) == 1 else names]

    def group(self, name: str) -> dist.ProcessGroup:
        """The process group of one dimension. Only with more than one process."""
        return self.sub(name).get_group()

    def reduce(
        self, tensor: torch.Tensor, *names: str, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM
    ) -> torch.Tensor:
        """Reduces in place over these dimensions (default: all), without a host sync. Returns the tensor."""
        wide = [name for name in names or DIMS if self.size(name) > 1]
        if len(wide) == sum(size > 1 for size in self.layout.sizes().values()):
            if wide:
                dist.all_reduce(tensor, op=op)  # one collective over all processes instead of one per dimension
            return tensor
        for name in wide:
            dist.all_reduce(tensor, op=op, group=self.group(name))
        return tensor


def make_mesh(layout: Layout, device: torch.device | str) -> Mesh:
    """The mesh over the default process group, or of a single process if there is none. Raises `MeshError`."""
    device = torch.device(device)
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    layout.check(world)
    layout = layout.resolve(world)
    if world == 1:
        return Mesh(layout, device, None, dict.fromkeys(DIMS, 0))
    sizes = {name: size for name, size in layout.sizes().items() if size > 1 or (name == "fsdp" and _one_shard(layout))}
    devices = init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    coordinate = devices.get_coordinate()
    assert coordinate is not None, "the mesh covers every rank"
    return Mesh(layout, device, devices, {**dict.fromkeys(DIMS, 0), **dict(zip(sizes, coordinate, strict=True))})


def _one_shard(layout: Layout) -> bool:
    """Whether FSDP replicates a model that is not sharded: with tensor parallelism, which DDP doesn't support."""
    return layout.dp > 1 and layout.tp > 1


def _size(name: str, value: int | str) -> int:
    if value == "auto":
        return AUTO
    if isinstance(value, bool) or not isinstance(value, int):
        raise MeshError(f'mesh: {name} is {value!r}; expected a number from 1, or "auto" for dp or fsdp.')
    return value
