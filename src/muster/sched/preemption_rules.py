"""The preemption rules: which running gangs a waiting job may preempt, and what their preemption would cost.

A gang may be preempted when
- it runs on quota that its queue has borrowed, and the waiting job is within its own quota (reclaim), or
- it is in the same queue, or both borrow, and the waiting job's value is higher by the policy's margin (rank), or
- its turn in a queue with time slices is over, and another job of that queue waits (turn).
Reclaim is always allowed. For the other reasons, no gang is preempted within its minimum run time, nor for a job of a
lower priority. A gang whose job was overdue when it started is not preempted at all, up to the `overdue_share`.

The loss is the work since the last committed checkpoint plus the restart, for every accelerator. Unsaved work counts
at most for the policy's `save_every` seconds. A gang that has not reported a checkpoint counts as one that has just
saved. So a job gains nothing by saving rarely or by not reporting it.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice, takewhile
from math import inf

from muster.core.rules import Rules
from muster.sched.board import Board
from muster.sched.by_value import Step
from muster.sched.capacity.slot import mask_of
from muster.sched.failed_preemptions import EVERYWHERE, FailedPreemptions
from muster.sched.gate import free_for
from muster.sched.order import priority_now, width
from muster.sched.overdue import goes_first, privileged
from muster.sched.place import GangRequest
from muster.sched.queued_jobs import Queued
from muster.sched.quota import EPSILON
from muster.sched.running_gangs import Running, exposed_from

LOOKED_AT = 400  # running gangs, lowest value first, with which a waiting job is compared


def loss(known: Running, rules: Rules, now: float) -> float:
    """Accelerator-seconds that would be lost if the gang were preempted now."""
    job, preemption = known.job, rules.preemption
    mark = job.checkpoint
    unsaved = max(now - mark.time, 0.0) if mark is not None and mark.attempt == known.attempt else 0.0
    return (min(unsaved, preemption.save_every) + preemption.restart_cost) * width(job)


class PreemptionRules:
    """The running gangs of a pool that one waiting job may preempt."""

    def __init__(
        self, board: Board, rules: Rules, queued: Queued, pool: str, weight: float, now: float, remember: bool
    ) -> None:
        self.board, self.rules, self.queued, self.pool, self.now = board, rules, queued, pool, now
        stream, quotas = queued.stream, board.limits.quotas
        self.entitled = bool(weight) and quotas.entitled(stream.queue, pool, weight)
        self.value = inf if goes_first(board, stream, pool) else stream.value
        self.protected = privileged(board, pool)
        self.by_rank_alone = not self.entitled and stream.rules.slice is None
        self._remembers = remember and self.by_rank_alone  # also False after a search that stopped at LOOKED_AT
        self.priority = priority_now(queued.job, stream.rules, now)[0]
        self.margin = rules.preemption.margin
        self._in_force = rules is board.rules.rules  # others are tried for an explanation
        self.borrowed = quotas.borrowers(pool)  # does not change while this job is handled
        # Accelerators that must be freed even where some are free: their owner may not lend what is free.
        kept = quotas.kept_back(stream.queue, pool) if quotas.any and not self.entitled else 0.0
        self._losses: dict[str, float] = {}  # by job
        self.wanting = weight + kept - free_for(board, queued.job, pool) if kept else 0.0

    def may_help(self, gang: GangRequest) -> bool:
        """Whether preemption should be tried: not if it failed before and nothing that could help has changed since."""
        failed = self.queued.stream.failed_preemptions.get(self.pool)
        log = self.board.gangs.easier_nodes[self.pool]
        if failed is None:
            return True
        names = log.since(failed.seen)
        if (
            names is not None
            and not self.entitled
            and self.value <= failed.value
            and self.priority <= failed.priority
            and self.borrowed.keys() <= failed.borrowers
            and self.protected >= failed.protected
        ):
            failed.seen = log.end
            for name in names:
                if name == EVERYWHERE or (name not in failed.counted and self._clears(name, gang)):
                    failed.counted.add(name)
                    failed.missing -= gang.nodes if name == EVERYWHERE else 1
            if failed.missing > 0:
                return False
        del self.queued.stream.failed_preemptions[self.pool]
        return True

    def note_failed_preemption(self, missing: int) -> None:
        """Records that `missing` nodes are missing even if all possible victims leave."""
        if self._remembers:
            self.queued.stream.failed_preemptions[self.pool] = FailedPreemptions(
                self.queued.job.id,
                self.value,
                self.priority,
                frozenset(self.borrowed),
                self.protected,
                missing,
                self.board.gangs.easier_nodes[self.pool].end,
            )

    def _clears(self, name: str, gang: GangRequest) -> bool:
        """Whether a node would have enough free accelerators if all possible victims on it left."""
        board = self.board
        slot = board.free.slots.get(name)
        if slot is None:
            return False
        if self.by_rank_alone and self._in_force:
            least = board.prices.least(slot, gang.ask.accelerators, self.now)
            if least * self.margin >= self.value:
                return False
        mask = slot.mask
        for known in board.gangs.on_node(name):
            if self.why(known):
                mask |= mask_on(known, name)
        return mask.bit_count() >= gang.ask.accelerators

    def victims(self, most: int | None) -> list[Running]:
        """Gangs that may be preempted, lowest value first, at most `most`."""
        stream, margin = self.queued.stream, self.rules.preemption.margin
        by_queue = self.board.gangs.by_queue(self.pool)
        line: Iterator[Step] = merge(
            *[by_queue[name] for name in {stream.queue: 0, **self.borrowed} if name in by_queue]
        )
        if self.by_rank_alone:
            line = takewhile(lambda step: step[0] * margin < self.value, islice(line, LOOKED_AT))
        running, looked = self.board.gangs.running, 0
        found = list[Running]()
        for _, _, name in line:
            looked += 1
            if self.why(known := running[name]):
                found.append(known)
                if len(found) == most:
                    break
        if looked >= LOOKED_AT:
            self._remembers = False
        return found

    def why(self, known: Running) -> str:
        """The reason for which the gang may be preempted: "reclaim", "rank" or "turn"; "" when it may not."""
        job, stream, rules = known.job, self.queued.stream, self.rules
        if self.by_rank_alone and (self.now < self._exposed(known) or known.tier.value * self.margin >= self.value):
            return ""  # most gangs end here
        if known.leaving or job.phase not in ("starting", "running"):
            return ""
        queue = rules.queue(job.queue)
        same = job.queue == stream.queue
        if not queue.preemptible or not (same or job.queue in self.borrowed):
            return ""
        if self.entitled and not same:
            return "reclaim"
        if self.now < self._exposed(known):
            return ""
        if same and stream.rules.slice is not None:
            return "turn" if len(known.seats) == 1 else ""
        value = known.tier.value
        if value == inf or value * rules.preemption.margin >= self.value or job.id in self.protected:
            return ""
        if self.value < inf and priority_now(job, queue, self.now)[0] > self.priority:
            return ""
        # Values of different policies can't be compared.
        return "rank" if same or queue.order == stream.rules.order else ""

    def _exposed(self, known: Running) -> float:
        return known.exposed if self._in_force else exposed_from(known, self.rules, self.rules.queue(known.job.queue))

    def affords(self, leaving: list[Running], spent: dict[str, float]) -> bool:
        """Whether all of these gangs may be preempted in addition to those in `spent` (queue → accelerators).

        Another queue loses no more than it has borrowed, but its last victim may exceed that. If so, updates `spent`.
        """
        after = dict(spent)
        for known in leaving:
            queue = known.job.queue
            if queue == self.queued.stream.queue:
                continue
            gone = after.get(queue, 0.0)
            if gone >= self.borrowed.get(queue, 0.0) - EPSILON:
                return False
            after[queue] = gone + known.weight
        spent.update(after)
        return True

    def first(self, able: list[Running]) -> list[Running]:
        """Victims that are needed in any case, wherever they run, to free `wanting` accelerators; lowest loss first."""
        found, wanting, spent = list[Running](), self.wanting, dict[str, float]()
        if wanting <= EPSILON:
            return found
        for known in sorted(able, key=lambda k: (self.loss(k), k.job.number)):
            if wanting <= EPSILON:
                break
            if self.affords([known], spent):
                found.append(known)
                wanting -= known.weight
        return found

    def enough(self, victims: list[Running]) -> bool:
        """Whether the job's value exceeds the victims' total value. Victims of reclaim and of turns do not count."""
        return self.outweighs(sum(known.value for known in victims if self.why(known) == "rank"))

    def loss(self, known: Running) -> float:
        """See `loss`; of a gang, it is found once."""
        found = self._losses.get(known.job.id)
        if found is None:
            found = self._losses[known.job.id] = loss(known, self.rules, self.now)
        return found

    def outweighs(self, at_stake: float) -> bool:
        return at_stake == 0 or at_stake * self.rules.preemption.margin < self.value


def mask_on(known: Running, node: str) -> int:
    """The accelerators that a gang holds on a node."""
    return next((mask_of(seat.devices) for seat in known.seats if seat.node == node), 0)
