"""Who gives way: the gangs whose stopping loses least, and only if the one who asks can start for it.

A gang may be asked to leave when
- it runs on what its queue has borrowed, and the one who waits is within its own quota (reclaim), or
- it is of the same queue, or both borrow, and the one who waits is worth more by the policy's margin, or
- its turn in a queue with time slices is over, and another of that queue waits.
To reclaim is a right. For the other reasons nobody leaves within the least run time, nor for one of a lower priority,
and nobody who was overdue when it started leaves at all, as far as the rules protect those.

What is lost is the work since the last committed checkpoint and the restart, for every accelerator. Work older than the
policy's `save_every` is not counted, and a gang that has not said that it saved counts as one that just did: nobody
gains by saving rarely or by hiding it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice, takewhile
from math import inf

from muster.core.job import Seat
from muster.core.resources import WHOLE
from muster.core.rules import Rules
from muster.sched.board import Board, Running, safe_until
from muster.sched.ladder import Step
from muster.sched.lines import Queued
from muster.sched.order import priority_now, width
from muster.sched.place import Gang
from muster.sched.placements import PLACEMENTS
from muster.sched.quota import EPSILON
from muster.sched.room.slot import Slot, mask_of

LOOKED_AT = 400  # running gangs, the least worth first, that one who waits compares himself with


@dataclass(frozen=True, slots=True)
class Room:
    """Gangs that leave, and the seats that the one who asked gets for it."""

    victims: tuple[Running, ...]
    seats: tuple[Seat, ...]
    why: str  # "reclaim", "rank" or "turn"
    whole: bool = False  # all that they hold must come free, wherever it is: an elastic gang can't keep a part


def make_room(board: Board, rules: Rules, queued: Queued, gang: Gang, now: float) -> Room | None:
    """The cheapest way to let the job start in the gang's one pool; None when there is none."""
    (pool,) = gang.pools
    right = _Right(board, rules, queued, pool, gang.ask.weight * gang.nodes, now)
    able = right.victims(LOOKED_AT)
    found = _clear(board, gang, able, right)
    if found is None and right.entitled and len(able) == LOOKED_AT:
        found = _clear(board, gang, right.victims(None), right)  # what is his own he gets, however many it takes
    return found


def loss(known: Running, rules: Rules, now: float) -> float:
    """Accelerator-seconds that stopping the gang now would cost."""
    job, preemption = known.job, rules.preemption
    mark = job.checkpoint
    unsaved = max(now - mark.time, 0.0) if mark is not None and mark.attempt == known.attempt else 0.0
    return (min(unsaved, preemption.save_every) + preemption.restart_cost) * width(job)


class _Right:
    """What the job that waits may ask of those who run in the pool."""

    def __init__(self, board: Board, rules: Rules, queued: Queued, pool: str, weight: float, now: float) -> None:
        self.board, self.rules, self.queued, self.pool, self.now = board, rules, queued, pool, now
        stream = queued.stream
        self.entitled = bool(weight) and board.quotas.entitled(stream.queue, pool, weight)
        self.worth = inf if board.goes_first(stream, pool) else stream.worth
        self.protected = board.privileged(pool)
        self.priority = priority_now(queued.job, stream.rules, now)[0]
        self.borrowed = board.quotas.borrowers(pool)  # nothing changes while one who asks is answered
        # Accelerators that must come free even where there is room: what is free may be kept by its owner.
        kept = board.quotas.kept_back(stream.queue, pool) if board.quotas.any and not self.entitled else 0.0
        self.wanting = weight + kept - board.free.accelerators(pool)[0] if kept else 0.0

    def victims(self, most: int | None) -> list[Running]:
        """Those who may be asked, the least worth first, up to so many."""
        stream, margin = self.queued.stream, self.rules.preemption.margin
        ladders = self.board.ladders(self.pool)
        line: Iterator[Step] = merge(*[ladders[name] for name in {stream.queue: 0, **self.borrowed} if name in ladders])
        if not self.entitled and stream.rules.slice is None:
            line = takewhile(lambda step: step[0] * margin < self.worth, islice(line, LOOKED_AT))
        running = self.board.running
        return list(islice((known for _, _, name in line if self.why(known := running[name])), most))

    def why(self, known: Running) -> str:
        """On what ground the gang may be asked; "" when it may not."""
        job, stream, rules = known.job, self.queued.stream, self.rules
        if known.leaving or job.phase not in ("starting", "running"):
            return ""
        queue = rules.queue(job.queue)
        same = job.queue == stream.queue
        if not queue.preemptible or not (same or job.queue in self.borrowed):
            return ""
        if self.entitled and not same:
            return "reclaim"
        if job.attempt is None or job.attempt.running_at is None or self.now < safe_until(known, rules, queue):
            return ""
        if same and stream.rules.slice is not None:
            return "turn" if len(known.seats) == 1 else ""
        worth = known.rung.worth
        if worth == inf or worth * rules.preemption.margin >= self.worth or job.id in self.protected:
            return ""
        if self.worth < inf and priority_now(job, queue, self.now)[0] > self.priority:
            return ""
        # Between queues of different orders, what their jobs are worth can't be compared.
        return "rank" if same or queue.order == stream.rules.order else ""

    def affords(self, leaving: list[Running], spent: dict[str, float]) -> bool:
        """Whether they may all be asked after those for whom so much was `spent`: of other queues no more than was
        borrowed, up to the gang with which it is all back. If so, it is spent."""
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
        """Those who must leave in any case, wherever they sit."""
        found, wanting, spent = list[Running](), self.wanting, dict[str, float]()
        for known in sorted(able, key=lambda k: (loss(k, self.rules, self.now), k.job.number)):
            if wanting <= EPSILON:
                break
            if self.affords([known], spent):
                found.append(known)
                wanting -= known.weight
        return found

    def enough(self, victims: list[Running]) -> bool:
        """Whether what the job is worth outweighs them all together; to reclaim what is one's own it need not."""
        at_stake = sum(known.worth for known in victims if self.why(known) == "rank")
        return at_stake == 0 or at_stake * self.rules.preemption.margin < self.worth


def _clear(board: Board, gang: Gang, able: list[Running], right: _Right) -> Room | None:
    """Picks the nodes that are cheapest to clear, and those who must leave them."""
    if not able:
        return None
    on: dict[str, list[Running]] = {}
    for known in able:
        for seat in known.seats:
            on.setdefault(seat.node, []).append(known)
    if not _could(board, gang, on):
        return None
    prices: list[tuple[float, float, str, list[Running]]] = []
    for name, sitting in on.items():
        slot = board.free.slots.get(name)
        suits = slot is not None and (not gang.ask.accelerators or slot.total.suits(gang.ask))
        if slot is not None and suits and slot.healthy and slot.closes >= gang.ends:
            shared = slot.parts or gang.ask.share < WHOLE
            leaving = (_leaving_parts if shared else _leaving)(board, slot, gang, sitting, right)
            if leaving is not None:
                share = sum(loss(k, right.rules, right.now) / len(k.seats) for k in leaving)
                worth = sum(k.worth for k in leaving)
                prices.append((share, worth, name, leaving))
    # The cheapest nodes one by one, until the gang fits on them and on what is free.
    prices.sort(key=lambda price: price[:3])
    chosen: dict[str, Running] = {}
    spent: dict[str, float] = {}
    free, mark = board.free, board.free.mark()
    seats = None
    place = PLACEMENTS.get(gang.placement).place
    try:
        for leaving in (right.first(able), *[leaving for _, _, _, leaving in prices]):
            more = [known for known in leaving if known.job.id not in chosen]
            if not right.affords(more, spent):
                continue
            for known in more:
                chosen[known.job.id] = known
                free.give(known.seats, known.job.ask)
            if free.could(gang) and (seats := place(gang, free)) is not None:
                break
    finally:
        free.undo(mark)
    if seats is None:
        return None
    return _agreed(board, gang, _needed(board, gang, list(chosen.values()), right), right)


def _could(board: Board, gang: Gang, on: dict[str, list[Running]]) -> bool:
    """Whether it is worth looking: enough nodes would have the accelerators if all on them left who may be asked."""
    need, slots = gang.ask.accelerators, board.free.slots
    if not need or gang.ask.share < WHOLE:
        return True
    missing = gang.nodes - board.free.fitting(gang.ask, gang.pools[0])
    for name, sitting in on.items():
        if missing <= 0:
            break
        slot = slots.get(name)
        if slot is not None and slot.bucket < need:
            mask = slot.mask
            for known in sitting:
                for seat in known.seats:
                    if seat.node == name:
                        mask |= mask_of(seat.devices)
            missing -= mask.bit_count() >= need
    return missing <= 0


def _leaving_parts(board: Board, slot: Slot, gang: Gang, sitting: list[Running], right: _Right) -> list[Running] | None:
    """The same where accelerators are shared: they are whole again only when all who share one have left."""

    def fits(gone: list[Running]) -> bool:
        mark = board.free.mark()
        for known in gone:
            board.free.give([seat for seat in known.seats if seat.node == slot.name], known.job.ask)
        found = PLACEMENTS.get("pack").place(replace(gang, nodes=1, require=None, pools=(slot.pool,)), board.free)
        there = slot.mask.bit_count() >= gang.ask.accelerators or slot.part(gang.ask.share) is not None
        board.free.undo(mark)
        return found is not None and there

    found, spent = list[Running](), dict[str, float]()
    for known in sorted(sitting, key=lambda k: (loss(k, right.rules, right.now), k.job.number)):
        if fits(found):
            break
        if right.affords([known], spent):
            found.append(known)
    if not fits(found):
        return None
    for known in found[-2::-1]:
        rest = [one for one in found if one is not known]
        if fits(rest):
            found = rest
    return found


def _leaving(board: Board, slot: Slot, gang: Gang, sitting: list[Running], right: _Right) -> list[Running] | None:
    """Who must leave the node so that one worker fits: those with most room for the least loss first, none too many."""
    ask = gang.ask
    whole, cpus, memory = slot.mask.bit_count(), slot.cpu, slot.memory

    def gain(known: Running) -> tuple[int, int, int]:
        seat = next(seat for seat in known.seats if seat.node == slot.name)
        return len(seat.devices), known.job.ask.milli_cpus, known.job.ask.memory

    def price(known: Running) -> tuple[float, int]:
        return loss(known, right.rules, right.now) / max(gain(known)[0], 1), known.job.number

    found, spent = list[Running](), dict[str, float]()
    for known in sorted(sitting, key=price):
        if whole >= ask.accelerators and cpus >= ask.milli_cpus and memory >= ask.memory:
            break
        if not right.affords([known], spent):
            continue
        more = gain(known)
        whole, cpus, memory = whole + more[0], cpus + more[1], memory + more[2]
        found.append(known)
    if whole < ask.accelerators or cpus < ask.milli_cpus or memory < ask.memory:
        return None
    for known in found[-2::-1]:  # the dearest of those that turned out not to be needed
        less = gain(known)
        if (
            whole - less[0] >= ask.accelerators and cpus - less[1] >= ask.milli_cpus
            and memory - less[2] >= ask.memory
        ):  # fmt: skip
            whole, cpus, memory = whole - less[0], cpus - less[1], memory - less[2]
            found.remove(known)
    return found


def _needed(board: Board, gang: Gang, victims: list[Running], right: _Right) -> list[Running]:
    """The victims without those that the gang does not need, the dearest left out first."""
    kept = sorted(victims, key=lambda known: (-loss(known, right.rules, right.now), known.job.number))
    for known in list(kept):
        rest = [one for one in kept if one is not known]
        enough = sum(one.weight for one in rest) >= right.wanting - EPSILON
        if rest and enough and _fits(board, gang, rest) is not None:
            kept = rest
    return kept


def _agreed(board: Board, gang: Gang, victims: list[Running], right: _Right) -> Room | None:
    if not right.enough(victims):
        return None
    seats = _fits(board, gang, victims)
    assert seats is not None
    grounds = {right.why(known) for known in victims}
    why = next((why for why in ("reclaim", "turn") if why in grounds), "rank")
    return Room(tuple(victims), seats, why, whole=right.wanting > EPSILON)


def _fits(board: Board, gang: Gang, victims: list[Running]) -> tuple[Seat, ...] | None:
    mark = board.free.mark()
    for known in victims:
        board.free.give(known.seats, known.job.ask)
    seats = PLACEMENTS.get(gang.placement).place(gang, board.free) if board.free.could(gang) else None
    board.free.undo(mark)
    return seats
