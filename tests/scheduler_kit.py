"""The scheduler without an engine: events for clusters, queues and jobs, and a driver that carries out every plan.

The driver is the controller without its engine: what a plan says becomes events in the same words, time is virtual, and
every step can be held against a plan that is made from nothing but the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from heapq import heappop, heappush
from typing import Any

from muster.control.decide import plan_events
from muster.control.recovery import after_end
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.event import Event
from muster.core.job import Job
from muster.core.job_events import JobEnd
from muster.core.needs import is_met
from muster.core.parse import parse_job
from muster.core.payload import decode
from muster.core.plan import Plan
from muster.core.reasons import Reason, reason
from muster.core.resources import Resources
from muster.core.rules import Rules
from muster.core.spec import JobSpec
from muster.core.state import State, apply
from muster.sched.board import Board
from muster.sched.schedule import schedule
from muster.sched.settle import settle

GB = 10**9
ROUNDS = 50  # plans that may follow each other at one instant before something is wrong


def fold(events: list[Event]) -> State:
    state = State()
    for seq, event in enumerate(events, 1):
        apply(state, event.stamped(seq))
    return state


def node_event(
    name: str, gpus: int, cpus: int, pool: str = "main", labels: dict[str, str] | None = None, time: float = 1.0
) -> Event:
    resources = Resources(cpus * 1000, cpus * 4 * GB, gpus, "H100" if gpus else "")
    data = {"name": name, "pool": pool, "resources": asdict(resources), "labels": labels or {}}
    return Event(decode("node.joined", data), time)


def job_event(number: int, **spec: object) -> Event:
    parsed = parse_job({"name": "job", "run": "true", **spec})
    data = {
        "number": number,
        "name": "job",
        "queue": parsed.queue,
        "user": "ada",
        "spec": parsed.model_dump(mode="json"),
        "key": None,
    }
    return Event(decode("job.submitted", data), 2.0 + number, "ada", parsed.project, f"job-{number}")


def entities(queues: int = 1) -> list[Event]:
    names = ["default", *(f"q{i}" for i in range(1, queues))]
    return [Event(ProjectSet(name="default"), 0.0)] + [Event(QueueSet(name=name), 0.0) for name in names]


Planned = Callable[["SchedulerLoop", Plan], None]


@dataclass
class SchedulerLoop:
    """`seconds` of work are done while a job runs; what it has done is saved when it is asked to leave, and lost back
    to the last checkpoint when it fails. `told` holds what happened, as (time, what, job, detail)."""

    rules: Rules = field(default_factory=Rules)
    queues: dict[str, str] = field(default_factory=lambda: {"default": "default"})  # name → project
    pools: dict[str, bool] = field(default_factory=lambda: {"main": False})  # name → whether spot
    leave: float | None = None  # seconds that a gang takes to leave; None is all of its grace
    startup: float = 0.0  # seconds from the plan to running
    checks: list[Planned] = field(default_factory=list)  # each is shown every plan before it is carried out
    now: float = 0.0
    state: State = field(default_factory=State)
    board: Board = field(default_factory=Board)
    told: list[tuple[float, str, str, str]] = field(default_factory=list)
    log: list[Event] = field(default_factory=list)
    specs: dict[str, JobSpec] = field(default_factory=dict)  # of all jobs, those that are done among them
    left: dict[str, float] = field(default_factory=dict)  # job → seconds of work from its last save
    saves: dict[str, float] = field(default_factory=dict)  # job → seconds between its checkpoints
    needs: dict[str, dict[str, str]] = field(default_factory=dict)  # job → the jobs that it needs, and how they end
    ended: dict[str, str] = field(default_factory=dict)  # job → the phase in which it ended
    preemptions: dict[str, int] = field(default_factory=dict)
    left_for: dict[str, str] = field(default_factory=dict)  # job → whom it was last asked to leave for
    plans: int = 0
    _wake: float | None = None
    _later: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _made: int = 0

    def __post_init__(self) -> None:
        for project in dict.fromkeys(self.queues.values()):
            self.event("project.set", name=project)
        for name, project in self.queues.items():
            self.event("queue.set", name=name, project=project)
        for name, spot in self.pools.items():
            self.event("pool.set", name=name, engine="sim", spot=spot)
        self.event("rules.set", rules=self.rules, text="")

    # --- what happens from outside ------------------------------------------------------------------------------------
    def event(self, kind: str, job: str = "", attempt: int = 0, **data: Any) -> None:
        known = self.state.jobs.get(job)
        project = known.project if known else data.pop("project_of", "")
        self.apply(Event(decode(kind, data), self.now, "test", project, job, attempt))

    def apply(self, event: Event) -> None:
        apply(self.state, event.stamped(self.state.version + 1))
        self.log.append(event)
        if isinstance(event.data, JobEnd):
            self.ended[event.job] = event.data.PHASE

    def node(self, name: str, gpus: int = 8, cpus: int = 64, pool: str = "main", **labels: str) -> None:
        self.apply(node_event(name, gpus, cpus, pool, labels, self.now))

    def nodes(self, count: int, gpus: int = 8, cpus: int = 64, pool: str = "main", prefix: str = "n") -> None:
        for i in range(count):
            self.node(f"{prefix}{i}", gpus, cpus, pool)

    def submit(
        self, job: str, seconds: float, user: str = "ada", expect: float | None = None, save: float | None = None,
        after: dict[str, str] | None = None, index: int | None = None, study_left: int = 1, study_ran: float = 0.0,
        **spec: Any,
    ) -> str:  # fmt: skip
        queue = spec.setdefault("queue", next(iter(self.queues)))
        spec = {"name": "job", "run": "true", "project": self.queues[queue], **spec}
        self._made += 1
        parsed = parse_job(spec)
        # Those that are over are left out if they ended as they should; with one that did not it would not be accepted.
        needs = {name: wanted for name, wanted in (after or {}).items() if name in self.specs}
        if any(name in self.ended and not is_met(wanted, self.ended[name]) for name, wanted in needs.items()):
            needs = {}
        self.needs[job] = needs
        self.specs[job], self.left[job], self.preemptions[job] = parsed, seconds, 0
        if save is not None:
            self.saves[job] = save
        self.event(
            "job.submitted", job, project_of=parsed.project, number=self._made, name=parsed.name, queue=queue,
            user=user, spec=parsed, key=None, expect=expect, needs=needs or None, index=index,
            study_left=study_left, study_ran=study_ran,
        )  # fmt: skip
        return job

    def set_rules(self, rules: Rules) -> None:
        self.rules = rules
        self.event("rules.set", rules=rules, text="")

    def health(self, node: str, health: str) -> None:
        if node in self.state.nodes:
            self.event("node.health", name=node, health=health, reason="")
            self.tell(health, "", node)

    def away(self, pool: str, why: str = "no answer") -> None:
        """The engine of the pool can't be reached any more, or again."""
        self.event("pool.set", name=pool, engine="sim", spot=self.pools[pool], away=why)

    def lose(self, node: str, noticed: float = 0.0) -> None:
        """The node leaves; the gangs on it are found dead after `noticed` seconds."""
        known = self.state.nodes.get(node)
        if known is None:
            return
        victims = sorted(known.jobs)
        self.event("node.left", name=node)
        self.tell("lost", "", node)
        for job_id in victims:
            self.after(noticed, lambda job_id=job_id: self.fail(job_id, "node_lost", node))

    def fail(self, job_id: str, code: str = "killed_by_signal", node: str | None = None) -> None:
        job = self.state.jobs.get(job_id)
        if job is None or not job.active or job.attempt is None:
            return
        began, saved = job.attempt.running_at, job.checkpoint
        done = max(saved.time - began, 0.0) if saved is not None and began is not None else 0.0
        self._end(job, "failed", reason(code, node=node or job.attempt.workers[0].seat.node), done)

    def stop(self, job_id: str, grace: float = 30.0) -> None:
        """On its user's request."""
        job = self.state.jobs.get(job_id)
        if job is None or job.phase == "stopping":
            return
        why = reason("user_stop").to_dict()
        if job.phase == "queued":
            self.event("job.stopped", job_id, reason=why)
            self.tell("stopped", job_id)
        else:
            assert job.attempt is not None
            self.event("job.stopping", job_id, job.attempt.number, reason=why, then="stopped", grace=grace)
            self.tell("stopping", job_id, "user_stop")
            self._leaves(job, grace)

    def set_priority(self, job_id: str, priority: int) -> None:
        if job_id in self.state.jobs:
            self.event("job.priority", job_id, priority=priority, reason="")

    def checkpoint(self, job_id: str) -> None:
        job = self.state.jobs.get(job_id)
        if job is not None and job.phase == "running" and job.attempt is not None:
            step = job.checkpoint.step + 1 if job.checkpoint else 1
            self.event("checkpoint.committed", job_id, job.attempt.number, step=step, path="", bytes=0, rank=0)

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self._made += 1
        heappush(self._later, (self.now + seconds, self._made, do))

    # --- time ---------------------------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Plans and carries out, until nothing more follows at this instant."""
        for _ in range(ROUNDS):
            while self.state.settled:
                for event in settle(self.state, self.now):
                    self.apply(event)
            plan = schedule(self.state, self.now, self.board)
            self.plans += 1
            for check in self.checks:
                check(self, plan)
            self._wake = plan.wake_at
            if not (plan.starts or plan.yields or plan.claims):
                return
            self._carry_out(plan)
        raise AssertionError(f"the plans at {self.now} never end: {plan}")

    def step(self, until: float | None = None) -> bool:
        """To the next time at which something happens; False when nothing does before `until`."""
        times = [self._later[0][0]] if self._later else []
        if self._wake is not None:
            assert self._wake > self.now, f"at {self.now} asks to be woken at {self._wake}"
            times.append(self._wake)
        if not times or (until is not None and min(times) > until):
            self.now = self.now if until is None else until
            return False
        self.now = min(times)
        while self._later and self._later[0][0] <= self.now:
            heappop(self._later)[2]()
        self.tick()
        return True

    def run(self, until: float | None = None, steps: int = 20_000) -> None:
        self.tick()
        for _ in range(steps):
            if not self.step(until):
                return
        raise AssertionError(f"still busy after {steps} steps at {self.now}: {self.phases()}")

    # --- what there is ------------------------------------------------------------------------------------------------
    def job(self, name: str) -> Job:
        return self.state.jobs[name]

    def phases(self) -> dict[str, str]:
        return {job.id: job.phase for job in self.state.jobs.values()}

    def running(self) -> set[str]:
        return {job.id for job in self.state.jobs.values() if job.phase in ("starting", "running")}

    def sits(self, name: str) -> tuple[str, ...]:
        attempt = self.job(name).attempt
        assert attempt is not None
        return tuple(worker.seat.node for worker in attempt.workers)

    def times(self, what: str, job: str | None = None) -> list[float]:
        return [time for time, kind, who, _ in self.told if kind == what and job in (None, who)]

    def order(self, what: str) -> list[str]:
        return [who for _, kind, who, _ in self.told if kind == what]

    def reasons(self, job: str) -> list[str]:
        return [detail for _, kind, who, detail in self.told if kind == "stopping" and who == job]

    def active(self) -> Iterator[Job]:
        return (job for job in self.state.jobs.values() if job.active)

    # --- carrying out -------------------------------------------------------------------------------------------------
    def _carry_out(self, plan: Plan) -> None:
        for event in plan_events(self.state, plan, self.now):
            self.apply(event)
        for start in plan.starts:
            job = self.job(start.job)
            assert job.attempt is not None
            self.tell("starts", job.id, " ".join(seat.node for seat in start.seats))
            begin = self._begins(job, job.attempt.number)
            if self.startup:
                self.after(self.startup, begin)
            else:
                begin()
        for leave in plan.yields:
            self.preemptions[leave.job] += 1
            self.left_for[leave.job] = leave.reason.data.get("for_job", "")
            self.tell("stopping", leave.job, leave.reason.code)
            self._leaves(self.job(leave.job), leave.grace)

    def _begins(self, job: Job, number: int) -> Callable[[], None]:
        def begin() -> None:
            if self._is(job, number) and job.phase == "starting":
                self.event("attempt.running", job.id, number)
                self.after(self.left[job.id], self._finishes(job, number))
                if job.id in self.saves:
                    self.after(self.saves[job.id], self._saves(job, number))

        return begin

    def _finishes(self, job: Job, number: int) -> Callable[[], None]:
        def finish() -> None:
            if self._is(job, number):
                self._end(job, "succeeded", reason("completed"), self.left[job.id])

        return finish

    def _saves(self, job: Job, number: int) -> Callable[[], None]:
        def save() -> None:
            if self._is(job, number) and job.phase == "running":
                self.checkpoint(job.id)
                self.after(self.saves[job.id], self._saves(job, number))

        return save

    def _leaves(self, job: Job, grace: float) -> None:
        assert job.attempt is not None
        number = job.attempt.number

        def gone() -> None:
            if self._is(job, number):
                assert job.stop is not None
                self._end(job, "stopped", job.stop.reason, self._done(job))

        self.after(grace if self.leave is None else min(self.leave, grace), gone)

    def _is(self, job: Job, number: int) -> bool:
        known = self.state.jobs.get(job.id)
        return known is not None and known.active and known.attempt is not None and known.attempt.number == number

    def _done(self, job: Job) -> float:
        """Seconds of work that the current attempt has saved: all of it up to when it was asked to leave."""
        assert job.attempt is not None
        if job.attempt.running_at is None:
            return 0.0
        end = job.stop.at if job.stop is not None else self.now
        return max(end - job.attempt.running_at, 0.0)

    def _end(self, job: Job, outcome: str, why: Reason, done: float) -> None:
        assert job.attempt is not None
        self.event("attempt.ended", job.id, job.attempt.number, outcome=outcome, reason=why.to_dict())
        if outcome != "succeeded":
            self.left[job.id] = max(self.left[job.id] - done, 0.0)
        following = after_end(job, outcome, why, self.now)
        self.apply(following)
        self.tell({"job.requeued": "queued"}.get(following.kind, following.kind.removeprefix("job.")), job.id, why.code)

    def tell(self, what: str, job: str, detail: str = "") -> None:
        self.told.append((self.now, what, job, detail))
