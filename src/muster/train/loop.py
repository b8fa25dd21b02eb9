"""The training loop: steps, guards, saves, evaluations and requests. A restarted run continues exactly.

A step never waits for the device: losses and verdicts are read one step later, when their copies are complete.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from muster import runtime
from muster.train.config import Config
from muster.train.errors import Diverged, ReplicasDiffer
from muster.train.evaluate import evaluate
from muster.train.exact import exact
from muster.train.feed import StepInput
from muster.train.gang import join, leave
from muster.train.optim import measure
from muster.train.optim import step as update
from muster.train.plan import Plan, make_plan
from muster.train.readings import Step, noted, say
from muster.train.replicas import check_replicas
from muster.train.session import Session, session
from muster.train.sources import report_sources
from muster.train.startup import Startup


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended, on this rank. `stopped` is the reason if it ended early; None if it is complete."""

    step: int
    loss: float | None  # of the last step, on the first rank; None without a step
    ledger: int
    stopped: str | None = None
    figures: dict[str, float] = field(default_factory=dict)  # of the last report and the last evaluation


def train(config: Config, imports: float | None = None) -> Result:
    """Trains by the configuration, from the newest checkpoint if there is one. All ranks call it. `imports`: seconds
    that the process took for them before, if it knows."""
    startup = Startup({} if imports is None else {"imports": imports})
    joined = dist.is_initialized()
    with runtime.phase("build"), exact(config.exact):
        plan = make_plan(config, dist.get_world_size() if joined else runtime.world_size())
        with runtime.phase("rendezvous"):
            gang = join(config.device)
        with session(plan, gang, startup) as run:
            with startup.part("weights"):
                found = run.resume()
            if gang.device.type == "cuda":
                run.saver.prepare(run.snapshot())
            if gang.leads:
                _introduce(run, found.path if found else None)
            with runtime.phase("training"):
                result = steps(run)
    if not joined:
        leave()
    return result


def steps(run: Session) -> Result:
    """Runs steps until the last one, or until a stop is requested."""
    evaluated: dict[str, float] = {}
    stopped = None
    run.watch.mark("data")
    run.feed.ask(run.position)
    while True:
        run.watch.mark("data")
        asked = time.perf_counter()
        turn = run.feed.take()  # from here to `ask`, every rank does the same: the values are reduced
        run.watch.host += time.perf_counter() - asked if run.gang.world > 1 else 0.0
        last = run.step >= run.end
        stopped = None if last else turn.asked.leaving()
        save, look = turn.asked.save or run.due(), not stopped and _evaluation_due(run)
        keep = bool(turn.asked.keep) and not save
        if not settle(run, leave=0 if stopped or last or save or keep or look else 1):
            run.feed.ask(run.position)  # rolled back to a checkpoint
            continue
        if look:
            evaluated = evaluate(run)
        if stopped or last:
            break
        if save:
            run.save()
            run.watch.mark("save")
        elif keep:
            run.memory.save(run.snapshot())
            run.watch.mark("save")
        run.tracer.before(run.step + 1, bool(turn.asked.profile))
        one_step(run, turn)
        _compare_replicas(run)
        leads = run.gang.leads
        run.feed.ask(run.position, leads and run.due_now(), leads and run.memory.due(run.step, run.state_bytes))
        run.tracer.after(run.step)
        watch_saves(run)
    return _finish(run, stopped, evaluated)


def one_step(run: Session, turn: StepInput) -> None:
    """Forward, backward, clip, judge, update: queued on the device without waiting."""
    config, prepared, optimizer = run.config, run.prepared, run.optimizer
    run.watch.mark("data")
    lr = config.optimizer.lr * config.schedule.factor(run.step, config.steps)
    compiles = config.parallel.compile and run.step == run.began  # in the first step, on the host
    run.probe.begin(run.step - run.began)
    first = run.reporter.startup.part("compile") if compiles else nullcontext()
    with runtime.phase("compile" if compiles else "training"), first:
        loss = prepared.forward_backward(turn.micros, run.loss, max(1, turn.items))
    run.probe.end()
    run.watch.mark("wait" if run.watch.waits else "backward" if run.mesh.size("pp") == 1 else "forward_backward")
    norm, factor = measure(prepared.parts, run.mesh, config.clip, prepared.scaler)
    code = run.guard.judge(loss, norm)  # not 0: a bad step, which the optimizer skips
    skip = (code != 0).float()
    if prepared.scaler is not None:
        overflow = (~norm.isfinite()).float()
        prepared.scaler.update(overflow)  # `factor` has the scale of before
        skip = torch.maximum(skip, overflow)
    for group in optimizer.param_groups:
        group["lr"] = lr
    update(optimizer, skip, factor)
    optimizer.zero_grad(set_to_none=True)
    run.watch.mark("optimizer")
    position = run.position
    run.advance(turn)
    run.watch.share = run.probe.share
    run.readings.put(Step(run.step, position, lr, turn.items, run.ledger), loss, norm, code, run.watch.take())


def settle(run: Session, leave: int) -> bool:
    """Reports the steps whose scalars have arrived and acts on the guard's verdicts. False after a rollback."""
    for read in run.readings.take(leave):
        if run.gang.world > 1:
            runtime.spent("waiting", read.laps.seconds().get("wait", 0.0))
        if run.gang.leads:
            run.reporter.step(read)
        verdict = run.guard.act(read.step.number, read.code, read.loss, read.norm)
        if verdict.text and run.gang.leads:
            noted(f"guard ({verdict.action}): {verdict.text}")
        if verdict.action == "stop":
            raise Diverged(f"{verdict.text}. The run stops; its checkpoints up to there stay.")
        if verdict.action == "rollback":
            _roll_back(run, read.step, verdict.text)
            return False
    return True


def _compare_replicas(run: Session) -> None:
    """Compares the weights of the replicas when it is time. All ranks come here at the same step."""
    guards = run.config.guards
    if guards.replicas == "off" or run.step % guards.replicas_every or run.mesh.size("dp") == 1:
        return
    if run.guard.replicas_differ:  # it was told, and they never agree again by themselves
        return
    group = run.mesh.group("dp")
    try:
        check_replicas(run.prepared.parts, group)
    except ReplicasDiffer as error:
        run.guard.replicas_differ = True
        if guards.replicas == "stop":
            raise
        if dist.get_rank(group) == 0:
            noted(f"guard (note): at step {run.step} {error}")


def watch_saves(run: Session) -> None:
    """Measures the cost of a finished save, and logs the resulting interval for `every: auto`."""
    saving = run.saver.poll()
    if saving is None or not saving.done or saving is run.cadence.seen:
        return
    words = run.cadence.measured(saving)
    if words and run.gang.leads:
        noted(f"checkpoint every: auto chose {words}")


def _roll_back(run: Session, bad: Step, text: str) -> None:
    before = run.step
    found = run.roll_back(bad.position)
    if found is None:
        raise Diverged(f"{text}. There is no checkpoint to go back to: set checkpoint.every, or another guard policy.")
    if run.gang.leads:
        words = f"goes on with batch {run.position + 1}, so that what led there is left out"
        noted(f"went back from step {before} to step {run.step} ({found.path}) and {words}")


def _evaluation_due(run: Session) -> bool:
    every, at_end = run.config.evaluate.every, run.config.evaluate.at_end
    if every is None or run.step == run.began:
        return False
    return run.step % every == 0 or (at_end and run.step >= run.end)


def _finish(run: Session, stopped: str | None, evaluated: dict[str, float]) -> Result:
    """Saves the last state if needed, and waits for the save: then nothing can be lost."""
    began = time.time()
    deadline = run.gang.soonest(run.requests.deadline) if stopped else None
    with runtime.phase("saving"):
        if stopped or run.config.checkpoint.at_end:
            run.save(wait=True)
        saving = run.saver.wait()
    if saving is not None and saving.error is not None:
        raise saving.error
    if run.saved == run.step:
        run.memory.drop()
    if run.gang.leads and stopped:
        spare = f", {deadline - time.time():.1f} s before the deadline" if deadline else ""
        noted(f"{stopped}: saved step {run.step} in {time.time() - began:.1f} s{spare}; leaving")
    elif run.gang.leads:
        say(f"done: {run.step} steps, ledger {run.ledger:016x}")
    figures = {**run.reporter.last, **{f"eval_{name}": value for name, value in evaluated.items()}}
    return Result(run.step, run.reporter.last.get("loss"), run.ledger, stopped, figures)


def _introduce(run: Session, found: str | None) -> None:
    plan: Plan = run.plan
    count = sum(parameter.numel() for parameter in plan.model.parameters())
    config, device = run.config, run.gang.device.type
    left = f"steps {run.step + 1} to {run.end}" if run.step < run.end else f"all {run.end} steps are done"
    runtime.params(**config.to_dict(), parameters=count, world_size=run.gang.world, layout=run.mesh.layout.sizes())
    report_sources(plan)
    say(
        f"{config.task}: {count:,} parameters, {run.gang.world} process(es) on {device} as {run.mesh.layout}, "
        f"{config.data.batch} samples a step in {plan.micros} micro-batch(es) a rank, {left}"
    )
    if found:
        noted(f"continuing after step {run.step} ({found}), ledger {run.ledger:016x}")
