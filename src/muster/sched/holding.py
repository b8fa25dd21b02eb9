"""The running side of the board: gangs that hold resources, their value, their expected ends, and claims."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from math import inf

from muster.core.account import amount
from muster.core.job import Job, Seat
from muster.core.rules import QueueRules, Rules
from muster.sched.board_state import BoardState, Claimed, Running, weight_of
from muster.sched.by_value import NEVER, ByValue
from muster.sched.order import remaining

OFTEN = 8  # preemptions after which each further one doubles the time for which the job can't be preempted
LEAST = 10.0  # seconds: the minimum base of that time


class Holding(BoardState):
    """Running gangs, and seats that are reserved for jobs."""

    __slots__ = ()

    def leave(self, known: Running) -> None:
        """The gang is preempted: it stops counting against quotas and limits, and can't be chosen again."""
        self._uncount(known)
        self._stand(known, NEVER)
        self._ease(known.pool, [known])
        self._pending[known.job.id] = None

    def claims_on(self, node: str) -> Iterable[Claimed]:
        return self._node_claims[node].values() if node in self._node_claims else ()

    def _hold(self, job: Job, seats: tuple[Seat, ...], attempt: int, now: float, pool: str) -> Running:
        rung = self._by_value(pool, job).add(NEVER, (job.number, job.id))
        known = Running(job, attempt, now, pool, weight_of(seats), seats, rung)
        self.running[job.id] = known
        self._account(job, known.pool, seats, +1)
        if self._fair and not self._building:
            at = job.attempt.planned_at if job.active and job.attempt else now
            self.shares.change(job.project, job.queue, job.user, amount(job.ask, len(seats)), +1, at)
        if job.spec.group:
            self._groups[f"{job.project}/{job.spec.group}"].update(seat.node for seat in seats)
        if job.spec.min_nodes is not None and len(seats) < job.spec.num_nodes:
            self.elastic[job.id] = None
        return known

    def _refresh(self, known: Running, now: float) -> None:
        job = known.job
        assert job.attempt is not None
        known.since = job.attempt.running_at or job.attempt.planned_at
        rules, policy = self._queue(job.queue)
        standing = policy.standing(job, self._rules, rules, now)
        self._update_overdue(known, rules.overdue is not None and job.waited >= rules.overdue)
        if job.stop is not None:
            self._uncount(known)
        elif known.leaving:  # a round preempted it, but its plan was not carried out
            known.leaving, known.counted = False, True
            self.leaving[known.pool].discard(job.id)
            self._account(job, known.pool, known.seats, +1)
        self._stand(known, standing.band)
        if self._reserves:
            self._expect_end(known)
        self.pools_changed[known.pool] = None
        self._ease(known.pool, [known])
        # It can't be preempted before its minimum run time, or its time slice, is over: nothing changes until then.
        safe = safe_until(known, self._rules, rules)
        self._wake(job.id, safe if safe > now else standing.until, known.pool)

    def _expect_end(self, known: Running) -> None:
        end = known.since + remaining(known.job, self._rules)
        if end != known.ends:
            self._drop_end(known)
            known.ends = end
            insort(self.ending[known.pool], (end, known.job.number, known.job.id))

    def _drop_end(self, known: Running) -> None:
        if known.ends < inf:
            line = self.ending[known.pool]
            del line[bisect_left(line, (known.ends, known.job.number, known.job.id))]

    def _update_overdue(self, known: Running, overdue: bool) -> None:
        if overdue != known.overdue:
            assert known.job.attempt is not None
            known.overdue = overdue
            entry = (known.job.attempt.planned_at, known.job.number, known.job.id)
            line = self._late_running[known.pool]
            if overdue:
                insort(line, entry)
            else:
                line.remove(entry)

    def _by_value(self, pool: str, job: Job) -> ByValue:
        ladders = self._ladders[pool]
        found = ladders.get(job.queue)
        if found is None:
            found = ladders[job.queue] = ByValue()
        return found

    def _stand(self, known: Running, band: Hashable) -> None:
        """Puts the gang on the rung of its band; on the NEVER rung if it can't be preempted."""
        job = known.job
        rules, policy = self._queue(job.queue)
        if not policy.values or known.leaving or not rules.preemptible:
            band = NEVER
        if known.rung.band == band:
            return
        self._step_down(known)
        rung = known.rung = self._by_value(known.pool, job).add(band, (job.number, job.id))
        if band != NEVER and len(rung.members) == 1:
            self._unvalued[rung] = (known.pool, job.queue)
            if policy.learns:
                self._user_rungs[job.user][rung] = (known.pool, job.queue)
        self.pools_changed[known.pool] = None

    def _step_down(self, known: Running) -> None:
        job, rung = known.job, known.rung
        self._by_value(known.pool, job).remove(rung, (job.number, job.id))
        if not rung.members:
            self._user_rungs[job.user].pop(rung, None)
            self._unvalued.pop(rung, None)

    def _relearn(self, user: str) -> None:
        """The estimates for the user's gangs have changed: their values must be computed again."""
        rungs = self._user_rungs.get(user)
        if rungs:
            self._relearnt[user] = None
            self.pools_changed.update((pool, None) for pool, _ in rungs.values())

    def _drop_running(self, known: Running) -> None:
        job = known.job
        self._step_down(known)
        if self._fair:
            attempt = job.attempt
            ended = attempt.ended_at if attempt is not None and attempt.number == known.attempt else None
            at = self._now if ended is None else ended
            self.shares.change(job.project, job.queue, job.user, amount(job.ask, len(known.seats)), -1, at)
        if known.counted:
            self._account(job, known.pool, known.seats, -1)
        if known.overdue:
            self._late_running[known.pool] = [e for e in self._late_running[known.pool] if e[2] != job.id]
        self._drop_end(known)
        self.leaving[known.pool].discard(job.id)
        self.elastic.pop(job.id, None)
        self.pools_changed[known.pool] = None
        if job.spec.group:
            self._groups[f"{job.project}/{job.spec.group}"].subtract(seat.node for seat in known.seats)
        self._loosen()

    def _uncount(self, known: Running) -> None:
        known.leaving = True
        self.leaving[known.pool].add(known.job.id)
        if known.counted:
            known.counted = False
            self._account(known.job, known.pool, known.seats, -1)
            self._loosen()

    def _claim(self, job: Job, seats: tuple[Seat, ...]) -> None:
        claim = self.claims[job.id] = Claimed(job, seats, self.pool_of(seats))
        for seat in seats:
            self._node_claims[seat.node][job.id] = claim
            self._dirty.add(seat.node)
        self._account(job, claim.pool, seats, +1)

    def _unclaim(self, name: str) -> None:
        claim = self.claims.pop(name, None)
        if claim is not None:
            for seat in claim.seats:
                self._node_claims[seat.node].pop(name, None)
                self._dirty.add(seat.node)
            self._account(claim.job, claim.pool, claim.seats, -1)


def safe_until(known: Running, rules: Rules, queue: QueueRules) -> float:
    """Until when the gang can't be preempted, except to reclaim quota.

    This time grows for a job that was preempted often, so that every job finishes eventually, whatever the rules.
    """
    often = known.job.charges.get("preempted", 0) - OFTEN
    guard = rules.preemption.min_run if often <= 0 else max(rules.preemption.min_run, LEAST) * 2.0 ** min(often, 30)
    return known.since + max(guard, queue.slice or 0.0)
