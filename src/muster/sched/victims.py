"""Choice of preemption victims: the gangs whose preemption loses least, and only if the waiting job can then start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import nsmallest
from math import inf

from muster.core.job import Seat
from muster.core.resources import WHOLE
from muster.core.rules import Rules
from muster.sched.board import Board
from muster.sched.capacity.slot import Slot, mask_of
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS
from muster.sched.preemption_rules import LOOKED_AT, PreemptionRules
from muster.sched.queued_jobs import Queued
from muster.sched.quota import EPSILON
from muster.sched.running_gangs import Running

Sitting = dict[str, list[tuple[Running, Seat]]]  # by node: the gangs that may be preempted, and their seats there


@dataclass(frozen=True, slots=True)
class Freed:
    """A preemption: the victims, and the seats that the waiting job gets."""

    victims: tuple[Running, ...]
    seats: tuple[Seat, ...]
    why: str  # "reclaim", "rank" or "turn"
    whole: bool = False  # victims must give up all nodes: an elastic victim can't keep a part


def find_victims(
    board: Board, rules: Rules, queued: Queued, gang: GangRequest, now: float, remember: bool = False
) -> Freed | None:
    """The cheapest preemption that lets the job start in the gang's one pool; None when there is none.

    `remember`: the gang is the job's own, so a failure is recorded for later rounds.
    """
    (pool,) = gang.pools
    preemption = PreemptionRules(board, rules, queued, pool, gang.ask.weight * gang.nodes, now, remember)
    if remember and not preemption.may_help(gang):
        return None
    able = preemption.victims(LOOKED_AT)
    with board.free.fixed_spares():
        found = _clear(board, gang, able, preemption)
        if found is None and preemption.entitled and len(able) == LOOKED_AT:
            found = _clear(board, gang, preemption.victims(None), preemption)  # own quota: any number of victims
    return found


def _clear(board: Board, gang: GangRequest, able: list[Running], preemption: PreemptionRules) -> Freed | None:
    """Picks the nodes that are cheapest to clear, and the victims on them."""
    on = _by_node(able)
    missing, at_least = _lacking(board, gang, on, preemption)
    if missing > 0 or not preemption.outweighs(at_least):
        preemption.note_failed_preemption(max(missing, 1))
        return None
    if not able:
        return None
    prices: list[tuple[float, float, str, list[Running]]] = []
    for name, sitting in on.items():
        slot = board.free.slots.get(name)
        suits = slot is not None and (not gang.ask.accelerators or slot.total.suits(gang.ask))
        if slot is not None and suits and slot.healthy and slot.closes >= gang.ends:
            if slot.parts or gang.ask.share < WHOLE:
                leaving = _leaving_parts(board, slot, gang, [known for known, _ in sitting], preemption)
            else:
                leaving = _leaving(slot, gang, sitting, preemption)
            if leaving is not None:
                share = sum([preemption.loss(k) / len(k.seats) for k in leaving])
                value = sum([k.value for k in leaving])
                prices.append((share, value, name, leaving))
    # Clear the cheapest nodes one by one, until the gang fits on them and on what is free.
    prices.sort(key=lambda price: price[:3])
    chosen: dict[str, Running] = {}
    spent: dict[str, float] = {}
    free, mark = board.free, board.free.mark()
    seats = None
    place = PLACEMENTS.get(gang.placement).place
    try:
        for leaving in (preemption.first(able), *[leaving for _, _, _, leaving in prices]):
            more = [known for known in leaving if known.job.id not in chosen]
            if not preemption.affords(more, spent):
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
    if not preemption.outweighs(_lacking(board, gang, _by_node(chosen.values()), preemption)[1]):
        return None
    victims = _needed(board, gang, list(chosen.values()), preemption)
    return _agreed(board, gang, victims, seats if len(victims) == len(chosen) else None, preemption)


def _by_node(gangs: Iterable[Running]) -> Sitting:
    on: Sitting = {}
    for known in gangs:
        for seat in known.seats:
            on.setdefault(seat.node, []).append((known, seat))
    return on


def _lacking(board: Board, gang: GangRequest, on: Sitting, preemption: PreemptionRules) -> tuple[int, float]:
    """Nodes that are missing even if all possible victims leave, and a lower bound of the victims' total value.

    Only accelerators are considered. The value of a gang on several nodes is divided between its nodes. The bound is 0
    where no value stands against it.
    """
    need, slots = gang.ask.accelerators, board.free.slots
    missing = gang.nodes - board.free.fitting(gang.ask, gang.pools[0])
    if not need or gang.ask.share < WHOLE or missing <= 0:
        return 0, 0.0
    bounds, counts = list[float](), preemption.by_rank_alone and preemption.value < inf
    for name, sitting in on.items():
        slot = slots.get(name)
        if slot is None or slot.bucket >= need:
            continue
        mask, lacking, value = slot.mask, need - slot.mask.bit_count(), 0.0
        for _, seat in sitting:
            mask |= mask_of(seat.devices)
        if mask.bit_count() < need:
            continue
        each = [(known.value / len(known.seats), len(seat.devices)) for known, seat in sitting] if counts else ()
        for part, held in sorted(each, key=_part_of_one):
            value += part * min(1.0, lacking / max(held, 1))
            lacking -= held
            if lacking <= 0:
                break
        bounds.append(value)
    return missing - len(bounds), sum(nsmallest(missing, bounds))


def _part_of_one(part: tuple[float, int]) -> float:
    return part[0] / max(part[1], 1)


def _leaving_parts(
    board: Board, slot: Slot, gang: GangRequest, sitting: list[Running], preemption: PreemptionRules
) -> list[Running] | None:
    """As `_leaving`, for shared accelerators: one is whole again only when all gangs that share it have left."""

    def fits(gone: list[Running]) -> bool:
        mark = board.free.mark()
        for known in gone:
            board.free.give([seat for seat in known.seats if seat.node == slot.name], known.job.ask)
        found = PLACEMENTS.get("pack").place(replace(gang, nodes=1, require=None, pools=(slot.pool,)), board.free)
        there = slot.mask.bit_count() >= gang.ask.accelerators or slot.part(gang.ask.share) is not None
        board.free.undo(mark)
        return found is not None and there

    found, spent = list[Running](), dict[str, float]()
    for known in sorted(sitting, key=lambda k: (preemption.loss(k), k.job.number)):
        if fits(found):
            break
        if preemption.affords([known], spent):
            found.append(known)
    if not fits(found):
        return None
    for known in found[-2::-1]:
        rest = [one for one in found if one is not known]
        if fits(rest):
            found = rest
    return found


def _leaving(
    slot: Slot, gang: GangRequest, sitting: list[tuple[Running, Seat]], preemption: PreemptionRules
) -> list[Running] | None:
    """Victims on the node so that one worker fits: lowest loss per accelerator first, without unneeded victims."""
    ask = gang.ask
    whole, cpus, memory = slot.mask.bit_count(), slot.cpu, slot.memory
    if whole + sum([len(seat.devices) for _, seat in sitting]) < ask.accelerators:
        return None
    found, spent = list[tuple[int, Running]](), dict[str, float]()
    by_price = [
        (preemption.loss(known) / max(len(seat.devices), 1), known.job.number, len(seat.devices), known)
        for known, seat in sitting
    ]
    for _, _, devices, known in sorted(by_price):
        if whole >= ask.accelerators and cpus >= ask.milli_cpus and memory >= ask.memory:
            break
        if not preemption.affords([known], spent):
            continue
        held = known.job.ask
        whole, cpus, memory = whole + devices, cpus + held.milli_cpus, memory + held.memory
        found.append((devices, known))
    if whole < ask.accelerators or cpus < ask.milli_cpus or memory < ask.memory:
        return None
    for one in found[-2::-1]:  # drop unneeded victims, the highest price first
        devices, held = one[0], one[1].job.ask
        if (
            whole - devices >= ask.accelerators and cpus - held.milli_cpus >= ask.milli_cpus
            and memory - held.memory >= ask.memory
        ):  # fmt: skip
            whole, cpus, memory = whole - devices, cpus - held.milli_cpus, memory - held.memory
            found.remove(one)
    return [known for _, known in found]


def _needed(board: Board, gang: GangRequest, victims: list[Running], preemption: PreemptionRules) -> list[Running]:
    """The victims without those that the gang does not need; the highest loss is dropped first."""
    kept = sorted(victims, key=lambda known: (-preemption.loss(known), known.job.number))
    for known in list(kept):
        rest = [one for one in kept if one is not known]
        enough = sum(one.weight for one in rest) >= preemption.wanting - EPSILON
        if rest and enough and _fits(board, gang, rest) is not None:
            kept = rest
    return kept


def _agreed(
    board: Board,
    gang: GangRequest,
    victims: list[Running],
    seats: tuple[Seat, ...] | None,
    preemption: PreemptionRules,
) -> Freed | None:
    """`seats`: where the gang fits once the victims have left, if that is known already."""
    if not preemption.enough(victims):
        return None
    if seats is None:
        seats = _fits(board, gang, victims)
    assert seats is not None
    grounds = {preemption.why(known) for known in victims}
    why = next((why for why in ("reclaim", "turn") if why in grounds), "rank")
    return Freed(tuple(victims), seats, why, whole=preemption.wanting > EPSILON)


def _fits(board: Board, gang: GangRequest, victims: list[Running]) -> tuple[Seat, ...] | None:
    mark = board.free.mark()
    for known in victims:
        board.free.give(known.seats, known.job.ask)
    seats = PLACEMENTS.get(gang.placement).place(gang, board.free) if board.free.could(gang) else None
    board.free.undo(mark)
    return seats
