"""The rung `resume` for tasks: the training loop itself, its own checkpoints, SIGKILL, and other processes."""

from __future__ import annotations

import math
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from muster.checks.findings import Check, Finding, Report, failed, ok
from muster.train.config import Config, Every
from muster.train.exact import exact
from muster.train.gang import join
from muster.train.loop import steps as train_steps
from muster.train.parallel import state_dicts
from muster.train.plan import make_plan
from muster.train.preflight.children import Child, ChildFailed, Send, free_port, gang_environment, method
from muster.train.preflight.hook import LIMIT, about
from muster.train.preflight.nests import digest
from muster.train.preflight.program import last_line
from muster.train.preflight.resume_checks import RESUME, Evidence, judge
from muster.train.preflight.tiny import layouts, tiny, undropped
from muster.train.preflight.traces import State, StepTrace, Trace, generators
from muster.train.readings import Read, Reporter
from muster.train.session import Session, session

BEFORE: Final = 5  # steps before the save
AFTER: Final = 4  # and after it
EQUAL: Final = 2e-3  # relative difference of a loss on another number of processes


@dataclass(frozen=True, slots=True)
class TaskEvidence(Evidence):
    """And the same without dropout: saved by one process, and resumed by two."""

    alone: Trace | str = ""
    moved: Trace | str = ""
    world: str = ""


def check_task_resume(
    config: Config, *, full_size: bool = False, skip: Sequence[str] = (), limit: float = LIMIT
) -> Report:
    """Runs the checks of the rung `resume` on a task."""
    began = time.monotonic()
    small, notes = tiny(config, full_size)
    layout = layouts(config)[0]
    with tempfile.TemporaryDirectory(prefix="preflight-") as folder:
        straight = _traced(_at(small, folder, "straight"), 1, BEFORE + AFTER, limit)
        saved = _traced(_saving(_at(small, folder, "run")), 1, BEFORE + AFTER, limit)
        resumed = _traced(_at(small, folder, "run"), 1, AFTER, limit) if _good(saved) else "nothing was saved"
        plain = undropped(small)
        alone = saved if plain == small else _traced(_saving(_at(plain, folder, "alone")), 1, BEFORE + AFTER, limit)
        where = "run" if plain == small else "alone"
        moved_config = replace(_at(plain, folder, where), mesh=layout)
        if layout.pp > 1:
            size = max(1, small.data.batch // 2)
            moved_config = replace(moved_config, data=replace(moved_config.data, micro_batch=size))
        moved = _traced(moved_config, 2, AFTER, limit) if _good(alone) else "nothing was saved"
    evidence = TaskEvidence(straight, saved, resumed, alone, moved, str(layout))
    return Report(config.task, judge(evidence, TASK_RESUME, skip), notes, about(), time.monotonic() - began)


def check_world(evidence: TaskEvidence) -> Finding:
    if isinstance(evidence.moved, str):
        return failed(f"two processes as {evidence.world}: {evidence.moved}", "See docs/training.md, resuming.")
    if isinstance(evidence.alone, str):
        return failed(f"one process without dropout: {evidence.alone}", "See docs/training.md, resuming.")
    pairs = list(zip(evidence.alone.steps[BEFORE:], evidence.moved.steps, strict=True))
    for step, (one, two) in enumerate(pairs, BEFORE + 1):
        if one.batch != two.batch:
            return failed(
                f"in step {step} as {evidence.world} other samples are read", "Don't change the data between."
            )
        if not math.isclose(one.metrics["loss"], two.metrics["loss"], rel_tol=EQUAL):
            loss, other = one.metrics["loss"], two.metrics["loss"]
            return failed(
                f"in step {step} as {evidence.world} the loss is {other:.6g} instead of {loss:.6g}",
                "Let nothing of the task depend on the number of processes: `loss` sums, `items` counts.",
            )
    return ok(f"two processes as {evidence.world} go on from it: the same samples, and losses to {EQUAL:g}")


class _Recorder(Reporter):
    """Sends each step instead of reporting it."""

    run: Session
    send: Send

    def step(self, read: Read) -> None:
        self.last = {"loss": read.loss}
        metrics = {"loss": read.loss, "gradient norm": read.norm}
        self.send(StepTrace(metrics, [read.step.lr], f"{read.step.ledger:016x}", generators()))
        if read.step.number == BEFORE and self.run.config.checkpoint.every is not None:
            self.send(_state(self.run))
        if read.step.number == BEFORE + AFTER and self.run.gang.world == 1:
            os.kill(os.getpid(), signal.SIGKILL)  # before it saves again

    def evaluation(self, step: int, figures: dict[str, float]) -> None:
        """Not part of a trace."""


def _traced(config: Config, world: int, count: int, limit: float) -> Trace | str:
    """A training of `world` processes, killed after `count` steps. What its first process sent, or how it failed."""
    port = free_port() if world > 1 else 0
    forks = not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    children = [Child.start(method(forks), _rank, config, rank, world, port) for rank in range(world)]
    until, state = time.monotonic() + limit, _Saved(State(), "")
    done: list[StepTrace] = []
    try:
        while len(done) < count:
            message = children[0].receive(until - time.monotonic())
            if isinstance(message, str):
                return message
            if isinstance(message, _Saved):
                state = message
            else:
                done.append(message)
    except TimeoutError:
        return f"did not make {count} steps in {limit:g} s"
    except ChildFailed as error:
        return f"failed after {len(done)} steps: {error}"
    finally:
        for child in children:
            child.kill()
    size = sum(each.stat().st_size for each in Path(str(config.checkpoint.where)).rglob("*"))
    return Trace(done, state.state, state.generators, {"bytes": size, "before": BEFORE})


@dataclass(frozen=True, slots=True)
class _Saved:
    """The state at a save, or after a load."""

    state: State
    generators: str


def _rank(send: Send, config: Config, rank: int, world: int, port: int) -> None:
    """In the new process: the training loop as it is, until it is killed."""
    try:
        if world > 1:
            os.environ.update(gang_environment(rank, world, port))
        plan = make_plan(config, world)
        gang = join("cpu")
        with exact(config.exact), session(plan, gang) as run:
            found = run.resume()
            if found is not None and rank == 0 and world == 1:
                send(_state(run))
            with _recorded(run, send):
                train_steps(run)
        send("the training ended before it was killed")
    except BaseException as error:
        send(f"raised {last_line(error)}")


@contextmanager
def _recorded(run: Session, send: Send) -> Iterator[None]:
    old = run.reporter
    recorder = _Recorder(old.meter, old.device, old.steps, old.print_every)
    recorder.run, recorder.send = run, send
    run.reporter = recorder
    yield


def _state(run: Session) -> _Saved:
    model, optimizer = state_dicts(run.prepared, run.optimizer)
    state = State(
        weights={name: digest(each) for name, each in model.items()},
        optimizer={name: digest(each) for name, each in optimizer.items()},
    )
    return _Saved(state, generators())


def _saving(config: Config) -> Config:
    return replace(config, checkpoint=replace(config.checkpoint, every=Every(steps=BEFORE)))


def _at(config: Config, folder: str, name: str) -> Config:
    where = str(Path(folder) / name)
    return replace(config, folder=where, checkpoint=replace(config.checkpoint, where=where))


def _good(trace: Any) -> bool:
    return isinstance(trace, Trace)


TASK_RESUME: Final[tuple[Check, ...]] = (
    *RESUME,
    Check("processes", "Another number of processes can go on from it.", check_world, ("save",)),
)
