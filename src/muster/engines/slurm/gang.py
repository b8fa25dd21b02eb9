"""One gang as the Slurm engine knows it, and what Slurm's word for its job means for its workers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.engines.base import WorkerReport, WorkerStatus
from muster.engines.slurm.model import Submission
from muster.engines.slurm.reasons import exit_of, state_told
from muster.engines.slurm.shared import Kept, Key, Shared
from muster.wire import WorkerExit


@dataclass(slots=True)
class Gang:
    key: Key
    kept: Kept
    since: float = 0.0  # monotonic: when it became a job of Slurm's
    raw: str = ""  # SLURM_JOB_ID, once it runs
    nodes: tuple[str, ...] = ()  # in the order of its workers
    order: tuple[float, str] | None = None  # grace and reason of the stop order under way
    rung: bool = False  # its script was told to look at the order
    kill_at: float = 0.0  # monotonic: the end of the grace
    held: Submission | None = None  # Slurm takes it later
    held_why: str = ""
    held_until: float = 0.0  # monotonic
    ended: list[WorkerReport] | None = None
    recovery: subprocess.Popen[bytes] | None = None  # ships what the workers could not tell

    def reports(self, status: WorkerStatus) -> list[WorkerReport]:
        places = self.nodes if len(self.nodes) == self.kept.workers else ("",) * self.kept.workers
        return [WorkerReport(*self.key, worker, status, node=place) for worker, place in enumerate(places)]

    def end(self, exits: Mapping[int, WorkerExit], otherwise: WorkerExit, sure: bool = True) -> list[WorkerReport]:
        """Each worker as it said itself, or as Slurm says of the job."""
        self.ended = [
            replace(report, status="ended", exit=_better(exits.get(report.worker), otherwise), sure=sure)
            for report in self.reports("ended")
        ]
        return self.ended


def end_of(gang: Gang, shared: Shared, state: str, sure: bool = True) -> list[WorkerReport]:
    """The end of a gang whose job is over, or is queued again, with this state."""
    started = bool(shared.owner(gang.key))
    told = state_told(shared.told(gang.key))
    if state in ("", "CANCELLED", "FAILED", "REQUEUED") and told:
        state = told
    about = f"Slurm job {gang.kept.slurm}"
    printed = shared.output(gang.raw or gang.kept.slurm, 600) if not started else ""
    otherwise = exit_of(state or "UNKNOWN", started, f"{about}; it printed: {printed}" if printed else about)
    ordered = shared.ordered(gang.key)
    if gang.order is not None or (ordered is not None and state in ("CANCELLED", "COMPLETED", "FAILED")):
        reason = gang.order[1] if gang.order is not None else ordered.reason if ordered is not None else ""
        detail = "stopped in Slurm's queue before it had started" if not started else f"ended by Slurm ({about})"
        otherwise = WorkerExit("stopped", reason, detail, otherwise.time)
    return gang.end(shared.exits(gang.key), otherwise, sure)


def cause_of(gang: Gang | None, key: Key, worker: int, shared: Shared) -> tuple[str, str] | None:
    """Why a worker was told to leave, as far as it is known by now."""
    if gang is not None and gang.ended is not None and worker < len(gang.ended):
        ended = gang.ended[worker].exit
        return (ended.reason, ended.detail) if ended is not None else None
    ordered = shared.ordered(key)
    told = shared.told(key)
    if gang is not None and gang.order is not None:
        return gang.order[1], "asked to stop"
    if state := state_told(told):
        found = exit_of(state, True, told)
        return found.reason, found.detail
    return (ordered.reason, "Slurm told the job to leave") if ordered is not None else None


def places(names: Sequence[str], workers: int) -> tuple[str, ...]:
    return tuple(names) if len(names) == workers else ()


def _better(said: WorkerExit | None, otherwise: WorkerExit) -> WorkerExit:
    """A launcher that was only told to leave does not know why."""
    if said is None:
        return otherwise
    vague = said.reason == "node_lost" and otherwise.reason not in ("launcher_lost", "launch_failed")
    return replace(said, outcome=otherwise.outcome, reason=otherwise.reason, detail=otherwise.detail) if vague else said
