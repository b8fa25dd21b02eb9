"""One gang of the Slurm engine, and how its Slurm job's state translates to its workers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.core.reasons import CONSEQUENCE
from muster.engines.base import WorkerReport, WorkerStatus
from muster.engines.slurm.model import Submission
from muster.engines.slurm.reasons import ENDED_BY_SLURM, exit_of, state_from_message
from muster.engines.slurm.shared import AttemptRecord, Key, Shared
from muster.wire import WorkerExit


@dataclass(slots=True)
class SlurmGang:
    key: Key
    record: AttemptRecord
    since: float = 0.0  # monotonic: when it became a Slurm job
    raw: str = ""  # SLURM_JOB_ID, once it runs
    nodes: tuple[str, ...] = ()  # in the order of its workers
    order: tuple[float, str] | None = None  # grace and reason of the current stop order
    signalled: bool = False  # its batch script was signalled to read the order
    kill_at: float = 0.0  # monotonic: the end of the grace
    held: Submission | None = None  # a submission that Slurm did not take yet
    held_why: str = ""
    held_until: float = 0.0  # monotonic
    ended: list[WorkerReport] | None = None
    recovery: subprocess.Popen[bytes] | None = None  # process that reports what the workers could not report

    def reports(self, status: WorkerStatus) -> list[WorkerReport]:
        worker_nodes = self.nodes if len(self.nodes) == self.record.workers else ("",) * self.record.workers
        return [WorkerReport(*self.key, worker, status, node=place) for worker, place in enumerate(worker_nodes)]

    def end(self, exits: Mapping[int, WorkerExit], otherwise: WorkerExit, sure: bool = True) -> list[WorkerReport]:
        """Ends the gang: each worker with its own exit status, or else with what Slurm says about the job."""
        self.ended = [
            replace(report, status="ended", exit=_better(exits.get(report.worker), otherwise), sure=sure)
            for report in self.reports("ended")
        ]
        return self.ended


def end_of(gang: SlurmGang, shared: Shared, state: str, sure: bool = True) -> list[WorkerReport]:
    """The end of a gang whose job has ended, or was requeued, with this state."""
    started = bool(shared.owner(gang.key))
    message = state_from_message(shared.end_message(gang.key))
    if state in ("", "CANCELLED", "FAILED", "REQUEUED") and message:
        state = message
    about = f"Slurm job {gang.record.slurm}"
    printed = shared.output(gang.raw or gang.record.slurm, 600) if not started else ""
    otherwise = exit_of(state or "UNKNOWN", started, f"{about}; it printed: {printed}" if printed else about)
    ordered = shared.ordered(gang.key)
    told = gang.order is not None or (ordered is not None and state in ("CANCELLED", "COMPLETED", "FAILED"))
    if told and not _is_earlier(state, gang.order):
        reason = gang.order[1] if gang.order is not None else ordered.reason if ordered is not None else ""
        detail = "stopped in Slurm's queue before it had started" if not started else f"ended by Slurm ({about})"
        otherwise = WorkerExit("stopped", reason, detail, otherwise.time)
    return gang.end(shared.exits(gang.key), otherwise, sure)


def cause_of(gang: SlurmGang | None, key: Key, worker: int, shared: Shared) -> tuple[str, str] | None:
    """Why a worker was told to exit, as far as known."""
    if gang is not None and gang.ended is not None and worker < len(gang.ended):
        ended = gang.ended[worker].exit
        return (ended.reason, ended.detail) if ended is not None else None
    ordered = shared.ordered(key)
    message = shared.end_message(key)
    state = state_from_message(message)
    if gang is not None and gang.order is not None and not _is_earlier(state, gang.order):
        return gang.order[1], "asked to stop"
    if state:
        found = exit_of(state, True, message)
        return found.reason, found.detail
    return (ordered.reason, "Slurm told the job to leave") if ordered is not None else None


def _is_earlier(state: str, order: tuple[float, str] | None) -> bool:
    """Whether what Slurm did to the job came before the order: the rest of a broken gang is told to stop because of
    it."""
    return order is not None and order[1] == CONSEQUENCE and state in ENDED_BY_SLURM


def worker_nodes(names: Sequence[str], workers: int) -> tuple[str, ...]:
    return tuple(names) if len(names) == workers else ()


def _better(said: WorkerExit | None, otherwise: WorkerExit) -> WorkerExit:
    """The launcher's exit, but with Slurm's reason where the launcher was only told to exit and does not know why."""
    if said is None:
        return otherwise
    vague = said.reason == "node_lost" and otherwise.reason not in ("launcher_lost", "launch_failed")
    return replace(said, outcome=otherwise.outcome, reason=otherwise.reason, detail=otherwise.detail) if vague else said
