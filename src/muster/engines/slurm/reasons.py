"""Translates Slurm's reason codes and job states into sentences and into Muster's reasons."""

from __future__ import annotations

import re
import time
from typing import Final

from muster.engines.base import Wait
from muster.engines.slurm.model import JobRow
from muster.wire import Outcome, WorkerExit

# Slurm's reason code → what it means and what would change it.
WAITS: Final[dict[str, str]] = {
    "Priority": "jobs with a higher priority go first; it starts when they have, or before them if it fits beside them",
    "Resources": "the nodes that it needs are in use; it is next when they are free",
    "BeginTime": "its time to begin has not come yet; Slurm sets one for a little while after it queued a job again",
    "Dependency": "a job that it depends on is not over",
    "DependencyNeverSatisfied": "a job that it depends on ended otherwise than wanted: it never starts; stop it",
    "JobHeldUser": "somebody holds it; `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it; ask for `scontrol release`",
    "JobArrayTaskLimit": "as many tasks of its array run as may",
    "PartitionDown": "the partition is down; an administrator must bring it up",
    "PartitionInactive": "the partition is inactive; an administrator must bring it up",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives to one job: ask for fewer, or another pool",
    "PartitionTimeLimit": "it asks for more time than the partition gives: set a shorter `max_duration`",
    "PartitionConfig": "the partition does not take such a job: use another pool",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved; see `muster nodes`",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted: correct `slurm.reservation`",
    "Licenses": "a licence that it needs is in use",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node has what it asks for: correct `slurm.constraint` or its resources",
    "NonZeroExitCode": "it ended with an error",
    "Cleaning": "what is left of its last run is being cleared away",
    "Prolog": "the nodes are being prepared",
    "InvalidAccount": "the account does not exist or may not be used: correct `slurm.account`",
    "InvalidQOS": "the QOS does not exist or may not be used: correct `slurm.qos`",
    "AccountNotAllowed": "the account may not use this partition",
    "QOSNotAllowed": "the QOS may not be used in this partition",
    "BurstBufferResources": "its burst buffer has no room yet",
    "FrontEndDown": "the front end that would start it is down",
    "SchedDefer": "Slurm starts nothing at once by its settings; it is looked at in the next round",
    "None": "Slurm has not looked at it yet",
}
_LIMIT: Final = re.compile(r"(QOS|Assoc)(Grp|Max)?(\w*?)(Per\w+|Limit|)$")
_GRES: Final = {"GRES": "GPUs", "CPU": "CPUs", "Cpu": "CPUs", "Node": "nodes", "Job": "jobs", "Jobs": "jobs",
                "Mem": "memory", "Memory": "memory", "Submit": "submitted jobs"}  # fmt: skip

# State of a job that ended without a launcher's report → outcome, reason, sentence.
_ENDS: Final[dict[str, tuple[Outcome, str, str]]] = {
    "NODE_FAIL": ("failed", "node_lost", "Slurm lost a node of the job"),
    "BOOT_FAIL": ("failed", "node_lost", "a node of the job did not boot"),
    "PREEMPTED": ("stopped", "preempted", "Slurm gave its nodes to a job that goes first"),
    "TIMEOUT": ("stopped", "time_limit", "Slurm's time limit for the job was reached"),
    "DEADLINE": ("stopped", "time_limit", "its deadline in Slurm was reached"),
    "OUT_OF_MEMORY": ("failed", "out_of_memory", "Slurm found it to use more memory than it asked for"),
    "CANCELLED": ("stopped", "cancelled_outside", "somebody cancelled it in Slurm"),
    "REVOKED": ("stopped", "preempted", "Slurm has moved it to another cluster"),
}
# The states that no order of Muster leads to.
ENDED_BY_SLURM: Final = frozenset({*_ENDS, "REQUEUED"}) - {"CANCELLED"}
# Text in Slurm's message to the batch script → state.
_STATE_MARKS: Final = (
    ("DUE TO PREEMPTION", "PREEMPTED"),
    ("DUE TO TIME LIMIT", "TIMEOUT"),
    ("DUE TO NODE FAIL", "NODE_FAIL"),
    ("DUE TO JOB REQUEUE", "REQUEUED"),
    ("CANCELLED AT", "CANCELLED"),
)


def wait_of(job: str, attempt: int, row: JobRow) -> Wait:
    """Why a job in Slurm's queue waits."""
    word = row.reason.split(",")[0].strip("() ") or "None"
    code = word if " " not in word else "ReqNodeNotAvail" if "DOWN" in word else "Resources"
    message = f"in Slurm's queue as job {row.id} ({code}): {WAITS.get(code) or _limit(code)}"
    return Wait(job, attempt, code, message, row.starts_at)


def state_from_message(message: str) -> str:
    """The state for a line such as `*** JOB 5 ON n1 CANCELLED AT ... DUE TO PREEMPTION ***`; "" if there is none."""
    return next((state for mark, state in _STATE_MARKS if mark in message), "")


def exit_of(state: str, started: bool, about: str) -> WorkerExit:
    """The exit of a worker that left no exit status, from its job's state.
    `about` names the job and what it printed."""
    now = time.time()
    if state == "REQUEUED":
        return WorkerExit("stopped", "preempted", f"somebody had Slurm queue it again ({about})", now)
    if state in _ENDS:
        outcome, reason, sentence = _ENDS[state]
        return WorkerExit(outcome, reason, f"{sentence} ({about})", now)
    if not started:
        return WorkerExit("failed", "launch_failed", f"it ended as {state} before a launcher had started: {about}", now)
    return WorkerExit("failed", "launcher_lost", f"it ended as {state} without a word of its launcher: {about}", now)


def _limit(code: str) -> str:
    """A sentence for a limit's code. Slurm has dozens, such as QOSMaxGRESPerUser or AssocGrpCPURunMinutesLimit."""
    match = _LIMIT.match(code)
    if not match or not (match[2] or match[4]):
        return "Slurm says no more than that"
    whose = "the QOS" if match[1] == "QOS" else "the account or user"
    scope = {"PerUser": " for each user", "PerAccount": " for each account", "PerJob": " for one job",
             "PerNode": " on one node"}.get(match[4].removesuffix("Limit"), "")  # fmt: skip
    what = next((words for key, words in _GRES.items() if key in match[3]), "resources")
    minutes = " times minutes" if "Minutes" in match[3] else ""
    return (
        f"{whose} allows no more {what}{minutes}{scope}; it starts when others have ended, or with a higher limit "
        "(`sacctmgr show qos` and `sacctmgr show assoc`)"
    )
