"""The state of a run: the divided model, the data, the saver and the position; saved and restored together."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from muster import runtime, wire
from muster.data.ledger import START, fold
from muster.data.loader import Loader
from muster.train.checkpoint import Found, Saver, Snapshot, restore, rng_state, set_rng_state
from muster.train.config import Config
from muster.train.errors import CheckpointMismatch
from muster.train.feed import Feed, StepInput, described
from muster.train.gang import Gang, Requests
from muster.train.guards import Guard
from muster.train.memory import MemorySaves
from muster.train.mesh import Mesh, make_mesh
from muster.train.optim import adamw
from muster.train.parallel import Prepared, block_list, parallelize, state_dicts
from muster.train.plan import Plan
from muster.train.profile import Tracer
from muster.train.readings import Readings, Reporter, noted
from muster.train.saves import Cadence, cadence
from muster.train.startup import Startup
from muster.train.task import Counts, FillsParameters, Initialises
from muster.train.throughput import Meter, Stopwatch, peak_flops
from muster.train.waiting import WaitProbe

KEEP = 3  # checkpoints to keep, if neither the configuration nor the job sets it


@dataclass
class Session:
    """A run on this rank. `step` is the number of finished steps, `position` the next batch in the data."""

    plan: Plan
    gang: Gang
    mesh: Mesh
    prepared: Prepared
    optimizer: Optimizer
    guard: Guard
    feed: Feed
    saver: Saver
    requests: Requests
    cadence: Cadence
    memory: MemorySaves
    tracer: Tracer
    watch: Stopwatch
    probe: WaitProbe
    readings: Readings
    reporter: Reporter
    step: int = 0
    position: int = 0
    ledger: int = START
    jumps: list[tuple[int, int]] = field(default_factory=list)  # (step, position): where a rollback skipped data
    began: int = 0  # the step of the last resume or rollback
    saved: int = -1  # the step of the last save
    end: int = 0  # the last step: the configuration's, or earlier in a job of `muster preflight`
    found: Found | None = None  # the checkpoint to resume from, if it was looked for already

    @property
    def config(self) -> Config:
        return self.plan.config

    def loss(self, output: Any, batch: Any) -> Tensor:
        """The task's loss. It also marks the end of a forward pass."""
        loss = self.plan.task.loss(output, batch)
        if self.mesh.size("pp") == 1:
            self.watch.mark("forward")
        return loss

    def advance(self, turn: StepInput) -> None:
        """A step was queued: adds its samples to the ledger."""
        self.ledger = fold(self.ledger, self.position, turn.hash)
        self.step += 1
        self.position += 1

    def due(self) -> bool:
        return self.step > self.began and self.cadence.due_at(self.step)

    def due_now(self) -> bool:
        """Whether a save is due by this rank's clock, and would not have to wait: neither on disk nor in memory another
        one is still being written. One that is put off is due as soon as that is done."""
        return self.cadence.due_now() and not any(
            last is not None and not last.done for last in (self.saver.poll(), self.memory.poll())
        )

    def save(self, wait: bool = False) -> None:
        """Saves the current state, unless it is saved already. With `wait`, returns when it is committed."""
        if self.saved == self.step and wait:
            self.saver.wait()
        last = self.saver.poll()
        failed = last is not None and last.step == self.step and last.error is not None
        if self.saved == self.step and not failed:
            return
        self.cadence.started()
        with runtime.phase("saving"):
            self.saver.save(self.snapshot(), wait=wait or self.config.checkpoint.wait)
        self.saved = self.step

    def resume(self) -> Found | None:
        """Resumes from the newest valid checkpoint, if there is one; the same on every rank."""
        with runtime.phase("load"):
            found, self.found = self.found or self.saver.newest(memory=self.memory.saver), None
            self.memory.begin(found)
            if found is None:
                return None
            self._check_order(found)
            restored = restore(found, self.snapshot())
        shared = restored.shared
        self.step = self.began = restored.step
        self.saved = restored.step if self.saver.holds(found) else -1
        self.position, self.ledger = int(shared["position"]), int(shared["ledger"])
        self.jumps = [(int(step), int(position)) for step, position in shared["jumps"]]
        self.guard.load(shared["guard"])
        if self.prepared.scaler is not None and shared["scaler"] is not None:
            self.prepared.scaler.load_state_dict({key: torch.tensor(each) for key, each in shared["scaler"].items()})
        if restored.extra is not None:
            set_rng_state(restored.extra["rng"])
        else:  # another number of ranks: the saved generators don't fit, so they are seeded again
            seed_rank(self.config.seed, self.mesh.data_rank, self.step)
        return found

    def roll_back(self, bad: int) -> Found | None:
        """Rolls back to the newest checkpoint and skips the data up to `bad`. None if there is no checkpoint. Those in
        memory don't count: they are too near to what went wrong."""
        self.saver.wait()
        self.memory.drop()
        self.readings.drop()
        found = self.resume()
        if found is not None:
            self.position = bad + 1
            self.jumps.append((self.step, self.position))
            self.saved = -1  # the saved position is another one
        return found

    def snapshot(self) -> Snapshot:
        """The state for a restart. The tensors are the live ones: a save copies them, a restore fills them."""
        model, optim = state_dicts(self.prepared, self.optimizer)
        scaler = self.prepared.scaler
        shared = {
            "step": self.step,
            "position": self.position,
            "ledger": self.ledger,
            "jumps": self.jumps,
            "order": described(self.plan.order),
            "guard": self.guard.state(),
            "scaler": {key: each.item() for key, each in scaler.state_dict().items()} if scaler else None,
            "layout": self.mesh.layout.sizes(),
            "task": self.config.task,
            "model": self.config.model,
        }
        return Snapshot(model, optim, {"rng": rng_state()}, shared)

    def state_bytes(self) -> int:
        """About the size of a checkpoint. A rank knows the tensors of its own pipeline stage."""
        return self.mesh.size("pp") * sum(each.numel() * each.element_size() for _, each in self.snapshot().tensors())

    def _check_order(self, found: Found) -> None:
        """Checks that the data is unchanged: otherwise the ledger would be meaningless."""
        before, now = found.shared["order"], described(self.plan.order)
        changed = [f"{key} was {before[key]} and is {now[key]}" for key in now if before.get(key) != now[key]]
        if not changed:
            return
        text = f"{found.path} was saved with other data: {'; '.join(changed)}"
        if not self.config.data.may_change:
            hint = "Set data.may_change=true to go on all the same, or give another checkpoint.where."
            raise CheckpointMismatch(f"{text}. {hint}")
        if self.gang.leads:
            noted(f"{text}; it goes on all the same, as data.may_change says")


@contextmanager
def session(plan: Plan, gang: Gang, startup: Startup | None = None) -> Iterator[Session]:
    """Creates a run that is ready for its first step, or for the step after its checkpoint."""
    startup = startup or Startup()
    config, mesh = plan.config, make_mesh(plan.layout, gang.device)
    place, folder = where(config), run_folder(config)
    keep = config.checkpoint.keep or int(os.environ.get(wire.CHECKPOINT_KEEP, KEEP))
    saver = Saver(place, keep, config.checkpoint.keep_every, tolerate=config.checkpoint.tolerate)
    memory = MemorySaves(saver, config.checkpoint.memory, place, gang.device.type == "cpu")
    with saver, memory, Requests(folder, config.checkpoint.grace) as requests, _loader(plan, mesh) as loader:
        with runtime.phase("load"):
            found = saver.newest(memory=memory.saver)
        with startup.part("weights"):
            prepared = _prepared(plan, mesh, found is not None)
        seed_rank(config.seed, mesh.data_rank, 0)
        tracer = Tracer(config.profile, folder, gang.device, gang.rank)
        run = Session(
            plan=plan,
            gang=gang,
            mesh=mesh,
            prepared=prepared,
            optimizer=adamw(prepared.parts, config.optimizer),
            guard=Guard(config.guards, gang.device, scaled=prepared.scaler is not None),
            feed=Feed(loader, plan.task, mesh, gang, requests),
            saver=saver,
            requests=requests,
            cadence=cadence(config.checkpoint, gang.world),
            memory=memory,
            tracer=tracer,
            watch=_stopwatch(prepared, gang),
            probe=_wait_probe(prepared, gang),
            readings=Readings(gang.device),
            reporter=Reporter(_meter(plan, gang), gang.device, config.steps, config.print_every, startup),
            end=min(config.steps, runtime.preflight_steps() or config.steps),
            found=found,
        )
        try:
            yield run
        finally:
            tracer.close()


def where(config: Config) -> str:
    """The location of the checkpoints. A job of `muster preflight` leaves those of the real run alone."""
    named = config.checkpoint.where
    if named and runtime.preflight_rung():
        return f"{named.rstrip('/')}/preflight-{runtime.job()}"
    return named or str(runtime.checkpoint_dir() or "checkpoints")


def run_folder(config: Config) -> Path:
    """The run's own folder, for traces and trace requests."""
    place = where(config)
    return Path(config.folder or ("." if "://" in place else place)).absolute()


def seed_rank(seed: int, data_rank: int, step: int) -> None:
    """Seeds a rank's generators, such as for dropout. Tensor and pipeline peers get the same seed."""
    mixed = int(np.random.SeedSequence([seed, data_rank, step]).generate_state(1, np.uint64)[0])
    torch.manual_seed(mixed)
    random.seed(mixed)
    np.random.seed(mixed & 0xFFFF_FFFF)


def _prepared(plan: Plan, mesh: Mesh, restored: bool) -> Prepared:
    """`restored`: the values of all parameters come from a checkpoint."""
    task, config = plan.task, plan.config
    fill = (lambda part: task.initialise(part, config.seed)) if isinstance(task, Initialises) else None
    if restored and isinstance(task, FillsParameters) and task.fills_parameters_only:
        fill = _leave_empty
    return parallelize(plan.model, mesh, config.parallel, config.precision, initialise=fill)


def _leave_empty(part: nn.Module) -> None:
    """For parts whose every value is loaded later."""


def _loader(plan: Plan, mesh: Mesh) -> Loader:
    samples = [each.samples for each in plan.data.supplies]
    data = plan.config.data
    return Loader(
        samples, plan.order, mesh.data_world, mesh.data_rank, plan.micros, plan.data.collate, data.ahead, data.workers,
        plan.data.decode,
    )  # fmt: skip


def _stopwatch(prepared: Prepared, gang: Gang) -> Stopwatch:
    watch, part = Stopwatch(gang.device), prepared.parts[0]
    if prepared.mesh.size("pp") == 1:
        part.register_forward_pre_hook(watch.forward_begins)
    if isinstance(part, DistributedDataParallel) and prepared.mesh.size("pp") == 1:
        # The backward pass ends at the first parameter. The reductions of all gradients are awaited after it.
        first = next(one for one in part.parameters() if one.requires_grad)
        first.register_post_accumulate_grad_hook(watch.own_work_ends)  # type: ignore[no-untyped-call]
        watch.waits = True
    return watch


def _wait_probe(prepared: Prepared, gang: Gang) -> WaitProbe:
    """With DDP every step is measured. In a pipeline the ranks are never at the same block."""
    part = prepared.parts[0]
    measured = isinstance(part, DistributedDataParallel) or prepared.mesh.size("pp") > 1
    blocks = [] if measured else block_list(part)
    probe = WaitProbe(gang.device, gang.talk if blocks else None)
    if blocks:
        probe.attach(part, blocks)
    return probe


def _meter(plan: Plan, gang: Gang) -> Meter:
    flops = plan.task.flops() if isinstance(plan.task, Counts) else None
    return Meter(plan.task.unit, flops, plan.config.peak_flops or peak_flops(gang.device), gang.world)
