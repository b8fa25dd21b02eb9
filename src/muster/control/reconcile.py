"""Compares the engine with the state and returns the actions that make it match. Pure functions; the loop acts."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from muster.control.node_health import is_spot, nodes_to_check
from muster.core.array import array_of
from muster.core.entities.study import trial_of_job
from muster.core.job import Job
from muster.core.reasons import CONSEQUENCE
from muster.core.spec import ranks_per_node, sections
from muster.core.start import current
from muster.core.state import State
from muster.engines.base import GangLaunch, WorkerReport
from muster.tune.trial_spec import with_seed
from muster.wire import (
    ARRAY,
    CHECKPOINT_KNOWN,
    CHECKPOINT_SINCE,
    CHECKPOINT_STEP,
    CHECKPOINT_WAIT,
    NEEDS_PREFIX,
    PARAMS,
    PREFLIGHT,
    PREFLIGHT_STEPS,
    SLURM_ARRAY,
    START_FROM,
    START_STEP,
    STUDY,
    TRIAL,
    ArrayNames,
    Start,
)

GANG_GRACE = (
    5.0  # seconds of grace for the rest of a broken gang: its collectives can't finish, so there is nothing to save
)

_NO_ENVS: Final[Mapping[str, str]] = MappingProxyType({})
_PATH_MAX = 4096  # characters of a path in the environment: the program reported it

Key = tuple[str, int]  # job, attempt
TokenFor = Callable[[str, int], str]


@dataclass(slots=True)
class Launch:
    gang: GangLaunch


@dataclass(slots=True)
class Stop:
    job: str
    attempt: int
    grace: float
    reason: str
    order: float  # when the order was given: one order is carried out once


@dataclass(slots=True)
class Forget:
    job: str
    attempt: int


Action = Launch | Stop | Forget


def desired(
    state: State, job_ids: Iterable[str], launched: Container[Key], token_for: TokenFor, now: float
) -> list[Action]:
    """The actions that the named jobs need now, given the launches that were already made."""
    actions: list[Action] = []
    for job_id in job_ids:
        job = state.jobs.get(job_id)
        if job is None or not job.active or job.attempt is None:
            continue
        number, workers = job.attempt.number, job.attempt.workers
        alive = sum(worker.state != "ended" for worker in workers)
        if job.stop is not None and alive:
            # A gang that was ordered to stop before its launch is never launched. The engine handles the stop.
            actions.append(Stop(job.id, number, job.stop.grace, job.stop.reason.code, job.stop.at))
        elif alive == len(workers):
            if job.phase == "starting" and (job.id, number) not in launched:
                pool = job.attempt.pool
                checked, spot = nodes_to_check(state, pool, now), is_spot(state, pool)
                envs, start = _trial_envs(state, job), _start(state, job)
                actions.append(Launch(gang_of(job, token_for(job.id, number), envs, checked, spot, start)))
        elif alive and job.attempt.broken:
            actions.append(Stop(job.id, number, GANG_GRACE, CONSEQUENCE, job.attempt.planned_at))
    return actions


def strays(state: State, reports: Iterable[WorkerReport]) -> list[Action]:
    """Actions for attempts in the reports that the engine still runs or keeps, but that the state has no use for."""
    actions: dict[tuple[str, int], Action] = {}
    for report in reports:
        job = state.jobs.get(report.job)
        current = job is not None and job.active and job.attempt is not None and job.attempt.number == report.attempt
        if current:
            continue
        key = (report.job, report.attempt)
        if report.status in ("running", "starting", "pending"):
            actions[key] = Stop(report.job, report.attempt, 0.0, CONSEQUENCE, 0.0)
        else:
            actions.setdefault(key, Forget(report.job, report.attempt))
    return list(actions.values())


def _envs(job: Job) -> dict[str, str]:
    """The environment of the job file, with what the job is told about others: jobs that it needed, and its array."""
    return {
        **_array_envs(job, SLURM_ARRAY), **job.spec.envs, **_array_envs(job, ARRAY), **_needs_envs(job),
        **_preflight_envs(job),
    }  # fmt: skip


def _array_envs(job: Job, names: ArrayNames) -> dict[str, str]:
    if job.array is None or job.index is None:
        return {}
    indexes = array_of(job).indexes
    values = (job.array, job.index, len(indexes), indexes[0], indexes[-1])
    return {name: str(value) for name, value in zip(names, values, strict=True)}


def _preflight_envs(job: Job) -> dict[str, str]:
    rung = job.spec.preflight
    if rung is None or rung.rung is None:
        return {}
    return {PREFLIGHT: rung.rung, **({PREFLIGHT_STEPS: str(rung.steps)} if rung.steps is not None else {})}


def _trial_envs(state: State, job: Job) -> dict[str, str]:
    trial = trial_of_job(state, job.id)
    if trial is None:
        return {}
    params = json.dumps(with_seed(trial.params, trial.seed))
    return {STUDY: trial.study, TRIAL: str(trial.number), PARAMS: params}


def _checkpoint_envs(job: Job) -> dict[str, str]:
    """What the program is told of the checkpoint to start from; see `muster.runtime.checkpoint_search`."""
    found: dict[str, str] = {}
    if job.checkpoint is not None and 0 < len(job.checkpoint.path) <= _PATH_MAX:
        found |= {CHECKPOINT_KNOWN: job.checkpoint.path, CHECKPOINT_WAIT: f"{job.spec.checkpoint.wait:g}"}
        if not job.has_saved:  # a program that saves elsewhere than where it was taken to still has to fetch it
            place = job.checkpoint.path.rpartition("/")[0]
            found |= {START_FROM: place, START_STEP: str(job.checkpoint.step)}
    elif job.start_due is not None:
        found[CHECKPOINT_WAIT] = f"{job.spec.checkpoint.wait:g}"
    if job.since_attempt:
        found[CHECKPOINT_SINCE] = str(job.since_attempt)
    if job.resume_step is not None:
        found[CHECKPOINT_STEP] = str(job.resume_step)
    return found


def _start(state: State, job: Job) -> Start | None:
    """The checkpoint of another run that the launchers take, unless the job has it already."""
    due = job.start_due
    if due is None:
        return None
    point = current(state, due)
    share = point.project == job.project and point.trusted == job.trusted
    return Start(point.run, point.step, point.store, share)


def _needs_envs(job: Job) -> dict[str, str]:
    """`MUSTER_NEEDS_PREPARE=prepare-12`: the jobs that it needed, by their names."""
    found: dict[str, str] = {}
    for needed, _ in job.needs:
        name = NEEDS_PREFIX + needed.rpartition("-")[0].upper().replace("-", "_")
        found[name] = f"{found[name]} {needed}" if name in found else needed
    return found


def gang_of(
    job: Job,
    token: str,
    envs: Mapping[str, str] = _NO_ENVS,
    check_nodes: Sequence[str] = (),
    spot: bool = False,
    start: Start | None = None,
) -> GangLaunch:
    """The launch of the job's current attempt. `envs`: more than what follows from the job itself."""
    assert job.attempt is not None
    spec = job.spec
    every = spec.checkpoint.every
    return GangLaunch(
        job=job.id,
        attempt=job.attempt.number,
        seats=[worker.seat for worker in job.attempt.workers],
        nproc=ranks_per_node(spec),
        run=spec.run,
        workdir=spec.workdir or "",
        envs={**_envs(job), **_checkpoint_envs(job), **envs},
        secrets=spec.secrets,
        token=token,
        checkpoint_keep=spec.checkpoint.keep,
        checkpoint_every=every if isinstance(every, float) else None,
        max_duration=max(spec.max_duration - job.ran, 0.001) if spec.max_duration is not None else None,
        memory=spec.resources.memory,
        stop_grace=spec.stop_grace,
        name=spec.name,
        project=job.project,
        user=job.user,
        pool=job.attempt.pool,
        priority=job.priority,
        ask=job.ask,
        require=spec.topology.require or "",
        prefer=spec.topology.prefer or "",
        options=sections(spec),
        image=spec.image or "",
        code=job.code,
        log_limit=spec.log_limit,
        trusted=job.trusted,
        check_nodes=check_nodes,
        spot=spot,
        warm=spec.retry.warm and spec.retry.max_restarts > 0,
        start=start,
    )
