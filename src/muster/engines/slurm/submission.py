"""Turns a gang into a Slurm batch job. A pure function, so that the submission can be shown and tested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from muster.core.errors import EngineError
from muster.core.units import ANY_ACCELERATOR, by_priority
from muster.engines.base import GangLaunch
from muster.engines.slurm.model import MachineRow, Submission, gpus_of
from muster.engines.slurm.settings import PoolSettings, SlurmSettings

MIDDLE: Final = 50  # the priority that maps to a nice value of 0
SWITCH_WAIT: Final = 5  # minutes that a gang waits for its preferred single switch
SLACK: Final = 60  # seconds; Slurm may send the signal before the limit this much too early
# Options that change a job's resources or start time, but neither its identity nor what it runs.
ALLOWED: Final = frozenset({
    "acctg-freq", "batch", "begin", "bb", "cluster-constraint", "contiguous", "core-spec", "cores-per-socket",
    "cpu-freq", "cpus-per-gpu", "deadline", "delay-boot", "distribution", "exclusive", "extra-node-info", "gpu-bind",
    "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "hint", "hold", "licenses", "mail-type",
    "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "no-kill",
    "ntasks-per-core", "ntasks-per-gpu", "oversubscribe", "overcommit", "power", "prefer", "priority", "profile",
    "reboot", "sockets-per-node", "spread-job", "switches", "thread-spec", "threads-per-core", "time-min", "tmp",
    "tres-per-task", "use-min-nodes", "wckey", "segment",
})  # fmt: skip


def submission_of(
    gang: GangLaunch,
    settings: SlurmSettings,
    pool: PoolSettings,
    machines: Sequence[MachineRow],
    installation: str,
    privileged: bool,
) -> Submission:
    """The submission without script, folders and environment. Raises EngineError for a gang that can't be submitted."""
    options = gang.options
    extra = (*settings.extra, *options.get("extra", ()))
    if not any(option.startswith("--switches") for option in extra):
        extra = (*extra, *_switches(gang, settings))
    _check_extra(options.get("extra", ()))
    signal = math.ceil(float(options.get("signal", 60.0)))
    return Submission(
        name=f"muster-{gang.job}",
        comment=f"muster:{installation}:{gang.job}:{gang.attempt}",
        partition=pool.partition,
        nodes=len(gang.seats),
        cpus=max(1, math.ceil(gang.ask.milli_cpus / 1000)),
        script="",
        arguments=(),
        folder="",
        output="",
        memory=math.ceil(gang.ask.memory / (1 << 20)),
        gres=_text(options, "gres") or _gres(gang, machines),
        minutes=_minutes(gang, signal),
        nice=_nice(gang, settings, privileged),
        signal=signal,
        requeue=bool(options.get("requeue", True)),
        exclusive=bool(options.get("exclusive", False)),
        qos=_text(options, "qos") or by_priority(settings.priority_qos, gang.priority) or pool.qos or settings.qos,
        account=_text(options, "account") or pool.account or settings.account,
        constraint=_text(options, "constraint"),
        reservation=_text(options, "reservation"),
        dependency=_text(options, "dependency"),
        nodelist=_text(options, "nodelist"),
        exclude=_text(options, "exclude"),
        extra=extra,
    )


def together(wanted: Sequence[Submission], most: int) -> list[list[int]]:
    """Groups submissions that can go as one array: indices, at most `most` per group.
    Any other is a group of its own."""
    groups: dict[object, list[int]] = {}
    for index, each in enumerate(wanted):
        alone = each.nodes > 1 or bool(each.nodelist)
        mark: object = index if alone else replace(each, name="", comment="", arguments=())
        groups.setdefault(mark, []).append(index)
    return [group[at : at + most] for group in groups.values() for at in range(0, len(group), max(1, most))]


def _gres(gang: GangLaunch, machines: Sequence[MachineRow]) -> str:
    """The gres request. It names the GPU type if the partition's nodes have one and the job asks for it."""
    ask = gang.ask
    if not ask.accelerators:
        return ""
    kinds = {kind for machine in machines for kind, _ in gpus_of(machine.gres) if kind}
    named = sorted(kind for kind in kinds if kind.lower() == ask.accelerator.lower())
    if ask.accelerator != ANY_ACCELERATOR and named:
        return f"gpu:{named[0]}:{ask.accelerators}"
    return f"gpu:{ask.accelerators}"


def _switches(gang: GangLaunch, settings: SlurmSettings) -> tuple[str, ...]:
    """The option for nodes on one switch: required without limit, or preferred for SWITCH_WAIT minutes."""
    if len(gang.seats) < 2 or not settings.switch or settings.switch not in (gang.require, gang.prefer):
        return ()
    return ("--switches=1",) if gang.require == settings.switch else (f"--switches=1@{SWITCH_WAIT}",)


def _minutes(gang: GangLaunch, signal: int) -> int | None:
    """The time limit, late enough that the launcher, which counts in seconds,
    ends the job itself and cleanly before."""
    if gang.max_duration is None:
        return None
    return math.ceil((gang.max_duration + max(signal, gang.stop_grace) + SLACK) / 60)


def _nice(gang: GangLaunch, settings: SlurmSettings, privileged: bool) -> int | None:
    """The nice value. Only a privileged user may raise its priority; any user may lower it."""
    if gang.options.get("nice") is not None:
        return int(gang.options["nice"])
    if settings.priority != "nice":
        return None
    wanted = (MIDDLE - gang.priority) * settings.nice_scale
    return wanted if privileged else max(0, wanted)


def _check_extra(extra: Sequence[str]) -> None:
    for option in extra:
        name = option.partition("=")[0].removeprefix("--")
        if not option.startswith("--") or name not in ALLOWED:
            raise EngineError(
                f"slurm.extra: {option!r} is not an option that a job may give to sbatch.",
                "Write it in its long form, `--name=value`; what the job file has a name for is given there.",
            )


def _text(options: Mapping[str, Any], name: str) -> str:
    return str(options.get(name) or "")
