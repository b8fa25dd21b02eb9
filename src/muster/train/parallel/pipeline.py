"""Pipeline parallelism: stages of blocks over `pp`, with the schedules GPipe, 1F1B and interleaved 1F1B.

PyTorch's part is imported when a pipeline is made: it loads the compiler, which takes longer than to check a config.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from muster.train.errors import MeshError
from muster.train.mesh import Mesh
from muster.train.parallel.prepared import LossFn, Micro, Prepared, bare
from muster.train.parallel.settings import ParallelSettings

if TYPE_CHECKING:
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

    Schedule = PipelineScheduleSingle | PipelineScheduleMulti


@dataclass(frozen=True)
class Span:
    """One stage: blocks `first` to `end - 1`."""

    index: int
    first: int
    end: int
    is_first: bool
    is_last: bool


@dataclass
class Pipeline(Prepared):
    """The stages of a model over `pp`. All micro-batches of a step must have the same shape."""

    indices: list[int]  # of the parts among all stages
    _schedules: dict[Any, tuple[Schedule, _Loss]] = field(default_factory=dict)

    def _forward_backward(self, micros: Sequence[Micro], loss_fn: LossFn, factor: float | Tensor) -> Tensor:
        schedule, loss = self._schedule(micros, train=True)
        loss.take(micros, loss_fn, factor)
        numbers = torch.arange(len(micros))  # represent the batches, on the host: the schedule splits only tensors
        inputs = _joined(micros) if self.indices[0] == 0 else []
        schedule.step(*inputs, target=numbers, return_outputs=False)
        return loss.given()

    def _evaluate(self, micros: Sequence[Micro], loss_fn: LossFn) -> Tensor:
        total = torch.zeros((), device=self.mesh.device)
        for micro in micros:  # one by one: the outputs of all together may not fit on the last stage
            schedule, _ = self._schedule([micro], train=False)
            output = schedule.step(*micro.inputs)
            if output is not None:
                total += loss_fn(output, micro.batch)
        return total

    def _schedule(self, micros: Sequence[Micro], *, train: bool) -> tuple[Schedule, _Loss]:
        """The schedule for this number and shape of micro-batches, created at first use."""
        shapes = [tuple((each.shape, each.dtype) for each in micro.inputs) for micro in micros]
        if any(shape != shapes[0] for shape in shapes):
            raise MeshError(f"pp {self.mesh.size('pp')}: micro-batches of one shape are needed, but they are {shapes}.")
        key = (train, len(micros), shapes[0])
        if key not in self._schedules:
            if train:
                check_micros(len(micros), self.mesh, self.settings)
            stages = self._stages(micros[0].inputs)
            loss = _Loss(self.mesh.device)
            self._schedules[key] = self._made(stages, len(micros), loss if train else None), loss
        return self._schedules[key]

    def _made(self, stages: list[PipelineStage], count: int, loss: _Loss | None) -> Schedule:
        from torch.distributed.pipelining import schedules  # noqa: PLC0415

        options: dict[str, Any] = {"loss_fn": loss, "scale_grads": False}  # the loss is scaled by the global batch
        trains, name = loss is not None, self.settings.schedule
        if name == "interleaved":
            many = schedules.ScheduleInterleaved1F1B if trains else schedules.ScheduleLoopedBFS
            return many([*stages], count, **options)
        one = schedules.Schedule1F1B if trains and name == "1f1b" else schedules.ScheduleGPipe
        return one(stages[0], count, **options)

    def _stages(self, inputs: tuple[Tensor, ...]) -> list[PipelineStage]:
        """The parts as stages. The shapes between them are found by one forward pass through the pipeline."""
        from torch.distributed.pipelining import PipelineStage  # noqa: PLC0415

        count = self.mesh.size("pp") * len(self.parts)
        made = []
        with torch.no_grad(), torch.random.fork_rng(_devices(self.mesh)):
            for index, part in zip(self.indices, self.parts, strict=True):
                given = inputs if index == 0 else (self._received(index - 1),)
                output = bare(part)(*given)
                if index < count - 1:
                    self._send(output, index + 1)
                stage = PipelineStage(
                    part,
                    index,
                    count,
                    self.mesh.device,
                    input_args=tuple(_described(each, index > 0) for each in given),
                    output_args=(_described(output, True),),
                    group=self.mesh.group("pp"),
                )
                made.append(stage)
        self.reshard()
        return made

    def _send(self, output: Tensor, stage: int) -> None:
        about: list[Any] = [(output.shape, output.dtype)]
        dist.send_object_list(about, group=self.mesh.group("pp"), group_dst=stage % self.mesh.size("pp"))

    def _received(self, stage: int) -> Tensor:
        about: list[Any] = [None]
        dist.recv_object_list(about, group=self.mesh.group("pp"), group_src=stage % self.mesh.size("pp"))
        shape, dtype = about[0]
        return torch.zeros(shape, dtype=dtype, device=self.mesh.device)


def spans(blocks: int, mesh: Mesh, settings: ParallelSettings) -> list[Span]:
    """This process's stages of a model with this many blocks: nearly equal, the first ones larger."""
    pp = mesh.size("pp")
    virtual = settings.virtual if settings.schedule == "interleaved" else 1
    count = pp * virtual
    if count > blocks:
        raise MeshError(f"pp {pp} x {virtual} stages a process = {count} stages, but the model has {blocks} blocks.")
    borders = [blocks // count * index + min(index, blocks % count) for index in range(count + 1)]
    return [
        Span(index, borders[index], borders[index + 1], index == 0, index == count - 1)
        for index in range(mesh.place["pp"], count, pp)
    ]


def check_micros(count: int, mesh: Mesh, settings: ParallelSettings) -> None:
    """Raises `MeshError` for a number of micro-batches that the schedule doesn't support."""
    pp = mesh.size("pp")
    if settings.schedule == "1f1b" and count < pp:
        raise MeshError(f"pp {pp} with schedule 1f1b needs {pp} micro-batches a step or more, but there are {count}.")
    if settings.schedule == "interleaved" and count % max(1, count // pp):
        raise MeshError(
            f"pp {pp} with schedule interleaved takes {max(1, count // pp)} rounds for {count} micro-batches a step, "
            f"which don't divide by them; a multiple of {pp} always does."
        )


@dataclass
class _Loss:
    """The loss of a micro-batch by its number: the schedule is created before the batches are known."""

    device: torch.device
    micros: Sequence[Micro] = ()
    loss_fn: LossFn | None = None
    factor: float | Tensor = 1.0
    losses: list[Tensor] = field(default_factory=list)

    def take(self, micros: Sequence[Micro], loss_fn: LossFn, factor: float | Tensor) -> None:
        self.micros, self.loss_fn, self.factor, self.losses = micros, loss_fn, factor, []

    def __call__(self, output: Tensor, number: Tensor) -> Tensor:
        assert self.loss_fn is not None, "taken before a step"
        loss = self.loss_fn(output, self.micros[int(number)].batch)
        self.losses.append(loss.detach())
        return loss * self.factor

    def given(self) -> Tensor:
        """The sum of the step's losses; zero if the last stage is on another process."""
        losses, self.losses, self.micros = self.losses, [], ()
        return torch.stack(losses).sum() if losses else torch.zeros((), device=self.device)


def _joined(micros: Sequence[Micro]) -> list[Tensor]:
    """The inputs of all micro-batches concatenated, for the schedule, which splits them again."""
    return [torch.cat(each) for each in zip(*(micro.inputs for micro in micros), strict=True)]


def _described(tensor: Tensor, grad: bool) -> Tensor:
    """Shape, strides (torch 2.11 compares them) and type without memory."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta", requires_grad=grad)


def _devices(mesh: Mesh) -> list[torch.device]:
    return [mesh.device] if mesh.device.type == "cuda" else []
