"""A job, its attempts and their workers, as the state holds them. Only `core.state.apply` changes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from muster.api.words import ACTIVE, FINAL, WorkerState
from muster.api.words import PHASES as PHASES
from muster.api.words import Phase as Phase
from muster.core.reasons import Reason
from muster.core.repair import NOTHING, Repair
from muster.core.resources import Resources
from muster.core.seat import Seat as Seat
from muster.core.seat import is_slot, seat_from
from muster.core.spec import JobSpec, ask
from muster.core.start import StartPoint


@dataclass(slots=True)
class Worker:
    seat: Seat
    state: WorkerState = "starting"
    exit: dict[str, Any] | None = None  # wire.WorkerExit as a dict
    at: str = ""  # the machine that the engine chose, if Muster assigned a slot

    @property
    def placed(self) -> bool:
        """Whether its machine is known. A slot is not a machine."""
        return bool(self.at) or not is_slot(self.seat.node)

    @property
    def node(self) -> str:
        """Its machine; its slot as long as the machine is not known."""
        return self.at or self.seat.node


@dataclass(slots=True)
class Attempt:
    """One launch of the whole gang."""

    number: int
    planned_at: float
    workers: list[Worker]
    running_at: float | None = None
    ended_at: float | None = None
    outcome: str | None = None
    reason: Reason | None = None
    from_step: int | None = None  # step of the checkpoint that it started from
    pool: str = ""  # the pool of its nodes
    step: int | None = None  # the last step that it reported, once it has ended
    # Of an elastic gang: how many nodes the cluster could give it now, where the cluster chooses them; None: not known.
    room: int | None = None
    broken: bool = False  # a worker has ended, and not well: the others can't go on

    def to_doc(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_doc(cls, doc: dict[str, Any]) -> Attempt:
        workers = [Worker(seat_from(w["seat"]), w["state"], w["exit"], w.get("at", "")) for w in doc["workers"]]
        return cls(**{**doc, "workers": workers, "reason": _reason(doc["reason"])})


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """The last committed checkpoint of the run. `attempt` is 0 for one of another run that it starts from."""

    step: int
    path: str
    time: float
    bytes: int
    attempt: int

    def at(self, step: int) -> CheckpointMark:
        """The mark of another checkpoint in the same folder."""
        folder, slash, _ = self.path.rpartition("/")
        return replace(self, step=step, path=f"{folder}/step-{step:09d}" if slash else "")


@dataclass(frozen=True, slots=True)
class StopOrder:
    """Why a gang is stopped, and the phase of the job afterwards."""

    reason: Reason
    then: Literal["stopped", "queued"]
    grace: float  # seconds
    at: float


@dataclass(slots=True)
class Job:
    id: str
    number: int
    project: str
    queue: str
    user: str
    spec: JobSpec
    submitted_at: float
    phase: Phase = "queued"
    since: float = 0.0  # when it entered the phase
    reason: Reason | None = None  # why it is in this phase, if the events gave a reason
    key: str | None = None  # idempotency key of its submission
    started_at: float | None = None
    finished_at: float | None = None
    attempt: Attempt | None = None  # the current one, or the last
    charges: dict[str, int] = field(default_factory=dict)  # restarts by category
    not_before: float = 0.0
    stop: StopOrder | None = None
    checkpoint: CheckpointMark | None = None
    ran: float = 0.0  # seconds that ended attempts spent running, for `max_duration`
    ask: Resources = field(default_factory=Resources)  # per node; follows from the spec
    expect: float | None = None  # expected run time in seconds, from the jobs that had finished when it was submitted
    waited: float = 0.0  # seconds that it was queued, over all attempts so far
    claim: tuple[Seat, ...] = ()  # seats that are reserved for it until other gangs have left them
    code: str = ""  # digest of the snapshot of its `workdir`, if one was taken
    trusted: bool = False  # submitted or resumed by an administrator: it has the server's rights
    needs: tuple[tuple[str, str], ...] = ()  # ids of the jobs that it needs, and how each has to end; see `core.needs`
    # Those of them that are not over, and its array while that one's limit holds it back. It starts when none is left.
    awaits: tuple[str, ...] = ()
    index: int | None = None  # of a task among those of its array, or of a trial of a study
    outcomes: dict[str, int] = field(default_factory=dict)  # of an array: phase → tasks that ended in it
    repair: Repair = NOTHING  # what its attempts have shown
    since_attempt: int = 0  # checkpoints of earlier attempts are not used, except that of `resume_step`
    resume_step: int | None = None  # the checkpoint that it was resumed from, if one was named
    spent: int = 0  # what its ended attempts cost its project, in millionths of the currency
    relaunch: str = ""  # why the platform pays the launch of its next attempt: the code of a reason; "": it does not
    new_priority: int | None = None  # that replaces the one of its spec, if it was changed after the submission
    reserved: int = 0  # what it is projected to cost yet, in millionths; budgets count it as committed
    start: StartPoint | None = None  # the checkpoint of another run that it starts from
    new_pool: str | None = None  # that replaces the one of its spec: a trial may be continued on other hardware
    # Of a trial, when it was queued: how many trials its study had yet to run, with it, and how long others had run.
    study_left: int = 1
    study_ran: float = 0.0

    @property
    def priority(self) -> int:
        return self.spec.priority if self.new_priority is None else self.new_priority

    @property
    def pool(self) -> str | None:
        """The pool that it must run in; None: any."""
        return self.spec.pool if self.new_pool is None else self.new_pool

    @property
    def final(self) -> bool:
        return self.phase in FINAL

    @property
    def has_saved(self) -> bool:
        """Whether it has a checkpoint of its own."""
        return self.checkpoint is not None and self.checkpoint.attempt > 0

    @property
    def start_due(self) -> StartPoint | None:
        """What its next attempt takes from another run; None if it has that, or goes on from checkpoints of its own."""
        taken = self.start is None or self.start.taken is not None
        return None if taken or self.checkpoint is not None or self.since_attempt or self.seatless else self.start

    @property
    def nodes(self) -> int:
        """Nodes that it holds or, while it is queued, requests."""
        return len(self.attempt.workers) if self.active and self.attempt else self.spec.num_nodes

    @property
    def active(self) -> bool:
        """Whether one of its attempts holds resources."""
        return self.phase in ACTIVE and self.attempt is not None

    @property
    def seatless(self) -> bool:
        """Whether it needs no nodes: it is never queued and never launched, and runs until it is ended."""
        return not self.spec.num_nodes or self.is_array

    @property
    def is_array(self) -> bool:
        """Whether it stands for the tasks of an array."""
        return self.spec.array is not None and self.index is None

    @property
    def array(self) -> str | None:
        """The id of the array that it is a task of."""
        return self.spec.parent if self.index is not None and self.spec.array is not None else None

    def spec_again(self) -> JobSpec:
        """What to submit in order to run it once more: of a task, an array of that one index."""
        array = str(self.index) if self.spec.array is not None else None
        return self.spec if self.index is None else self.spec.model_copy(update={"array": array, "parent": None})

    @property
    def behind_others(self) -> bool:
        """Whether it waits, or waited, not only for its turn but until other jobs are over."""
        return bool(self.needs) or (self.index is not None and "%" in (self.spec.array or ""))

    @property
    def name(self) -> str:
        return self.spec.name if self.index is None else f"{self.spec.name}[{self.index}]"

    def enter(self, phase: Phase, time: float) -> None:
        self.phase, self.since = phase, time

    def to_doc(self) -> dict[str, Any]:
        """Everything except the spec, which never changes and is stored separately."""
        return {
            "id": self.id,
            "number": self.number,
            "project": self.project,
            "queue": self.queue,
            "user": self.user,
            "submitted_at": self.submitted_at,
            "phase": self.phase,
            "since": self.since,
            "reason": self.reason.to_dict() if self.reason else None,
            "key": self.key,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "attempt": self.attempt.to_doc() if self.attempt else None,
            "charges": self.charges,
            "not_before": self.not_before,
            "stop": asdict(self.stop) if self.stop else None,
            "checkpoint": asdict(self.checkpoint) if self.checkpoint else None,
            "ran": self.ran,
            "expect": self.expect,
            "waited": self.waited,
            "claim": [seat.to_doc() for seat in self.claim],
            "code": self.code,
            "trusted": self.trusted,
            "needs": self.needs,
            "awaits": self.awaits,
            "index": self.index,
            "outcomes": self.outcomes,
            "repair": self.repair.to_doc(),
            "since_attempt": self.since_attempt,
            "resume_step": self.resume_step,
            "spent": self.spent,
            "relaunch": self.relaunch,
            "new_priority": self.new_priority,
            "reserved": self.reserved,
            "start": asdict(self.start) if self.start else None,
            "new_pool": self.new_pool,
            "study_left": self.study_left,
            "study_ran": self.study_ran,
        }

    @classmethod
    def from_doc(cls, doc: dict[str, Any], spec: JobSpec) -> Job:
        # Positional arguments: a starting server creates 100,000 of these, and keyword arguments would double the time.
        stop, mark, needs, awaits = doc["stop"], doc["checkpoint"], doc.get("needs"), doc.get("awaits")
        return cls(
            doc["id"], doc["number"], doc["project"], doc["queue"], doc["user"], spec, doc["submitted_at"],
            doc["phase"], doc["since"], _reason(doc["reason"]), doc["key"], doc["started_at"], doc["finished_at"],
            Attempt.from_doc(doc["attempt"]) if doc["attempt"] else None, doc["charges"], doc["not_before"],
            StopOrder(**{**stop, "reason": Reason.of(stop["reason"])}) if stop else None,
            CheckpointMark(**mark) if mark else None, doc["ran"], ask(spec), doc.get("expect"), doc.get("waited", 0.0),
            tuple(seat_from(seat) for seat in doc.get("claim", ())), doc.get("code", ""),
            doc.get("trusted", False), tuple([(job, wanted) for job, wanted in needs]) if needs else (),
            tuple(awaits) if awaits else (), doc.get("index"), doc.get("outcomes") or {},
            Repair.from_doc(doc.get("repair")), doc.get("since_attempt", 0), doc.get("resume_step"),
            doc.get("spent", 0), doc.get("relaunch", ""), doc.get("new_priority"), doc.get("reserved", 0),
            StartPoint(**start) if (start := doc.get("start")) else None, doc.get("new_pool"), doc.get("study_left", 1),
            doc.get("study_ran", 0.0),
        )  # fmt: skip


def _reason(raw: dict[str, Any] | None) -> Reason | None:
    return Reason.of(raw) if raw else None
