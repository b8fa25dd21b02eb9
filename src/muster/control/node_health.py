"""Which nodes are checked before a gang starts there, which are taken out, and which come back. Pure functions.

A node that failed lately is checked by the launcher before it starts ranks there. A check that fails takes the node
out. After a while it may be used again, and is checked again; each time it is out for twice as long, and in the end it
stays out until a person puts it back. A breaker limits what the checks may take out, because a check that is wrong must
not empty a pool. Coming back is never limited.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from muster.core.entities.node import CHECKS, SPOT, Node, NodeHealth
from muster.core.entities.node_record import NODE_RECORDS, NodeFault, NodeFinding, NodeRecord
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobStopping
from muster.core.reasons import reason
from muster.core.state import State
from muster.wire import DEVICES_MAX, LEAVE_SPARE

LATELY: Final = 24 * 3600.0  # seconds after a failure in which a node is checked before each start
NAMED_MAX: Final = 256  # nodes that a launch names, those that failed last
BREAKER: Final = 0.1  # the part of a pool that the checks may take out
OUT_FIRST: Final = 900.0  # seconds that a node is out after its first failed check, doubled with each
OUT_TIMES: Final = 6  # failed checks after which it stays out
GONE: Final = 900.0  # seconds after a spot notice; the longest that clouds give is ten minutes
FAILED: Final = "node_check_failed"
LINK_SLOW: Final = 0.25  # the part of the other links' median below which a link is slow
LINKS_COMPARED: Final = 3  # other links, at least
CLOCK_OFF: Final = 1.0  # seconds by which clocks may differ
CLOCK_EVERY: Final = 3600.0  # seconds between two findings on one clock
FAULTS_MINUTE: Final = 30  # faults of one node that are recorded in a minute
CLOCK_RIGHT: Final = "its clock agrees with the server's again"
_FAULT_CODE: Final = re.compile(r"[0-9]{1,4}|ecc")
_BOOT: Final = re.compile(r"[0-9a-f-]{0,36}")


def is_spot(state: State, pool: str) -> bool:
    """Whether the machines of a pool can be taken away: as the rules say, else as its engine does."""
    rule = state.rules.pool(pool).spot
    return rule if rule is not None else pool in state.pools and state.pools[pool].spot


def leaves(state: State, job: Job, worker: int, left: float, now: float) -> list[Event]:
    """Events for a worker whose machine is taken away in `left` seconds: the gang saves, and nothing new starts there.

    Only machines of spot pools: a launcher's word takes no other one out.
    """
    assert job.attempt is not None
    if job.stop is not None or not is_spot(state, job.attempt.pool):
        return []
    told = reason("spot_notice", f"{job.attempt.workers[worker].node} is taken away in {max(0.0, left):.0f} s")
    stopping = JobStopping(told, "queued", max(0.0, left - LEAVE_SPARE))
    about = Event(stopping, now, SYSTEM, job.project, job.id, job.attempt.number)
    return [about, *taken_away(state, job, worker, now)]


def taken_away(state: State, job: Job, worker: int, now: float) -> list[Event]:
    """The event that drains the machine of a worker in a spot pool, which is taken away."""
    assert job.attempt is not None
    node = state.find_node(job.attempt.workers[worker].node)
    if node is None or node.role == "slot" or node.health != "healthy" or not is_spot(state, job.attempt.pool):
        return []
    return [Event(NodeHealth(node.name, "draining", "it is taken away (spot notice)", SPOT), now, SYSTEM)]


def evicted(state: State, job: Job, worker: int, left: float, why: tuple[str, str], now: float) -> list[Event]:
    """Events for a worker whose place the cluster takes away in `left` seconds: the whole gang saves together. `why`: a
    reason's code and the cluster's words. A node of a spot pool that goes is one that is taken away."""
    assert job.attempt is not None
    code, words = why
    if job.stop is not None or code not in ("preempted", "node_lost"):
        return []
    if code == "node_lost" and is_spot(state, job.attempt.pool):
        return leaves(state, job, worker, left, now)
    stopping = JobStopping(reason(code, words), "queued", max(0.0, left - LEAVE_SPARE))
    return [Event(stopping, now, SYSTEM, job.project, job.id, job.attempt.number)]


def nodes_to_check(state: State, pool: str, now: float) -> tuple[str, ...]:
    """The nodes of a pool that failed lately, those that failed last first."""
    records = NODE_RECORDS.all(state)
    if not records:
        return ()
    recent = [
        record
        for record in records.values()
        if now - record.last < LATELY and (node := state.find_node(record.name)) is not None and node.pool == pool
    ]
    recent.sort(key=lambda record: (-record.last, record.name))
    return tuple(record.name for record in recent[:NAMED_MAX])


def clock_events(state: State, node: str, ahead: float, error: float, now: float) -> list[Event]:
    """The finding on a node's clock, if it is another than the last one. The clock never changes a node's health."""
    known = NODE_RECORDS.all(state).get(node)
    before = next((one for one in reversed(known.history) if one["kind"] == "clock"), None) if known else None
    wrong = abs(ahead) - error > CLOCK_OFF
    sure = abs(ahead) + error <= CLOCK_OFF
    if wrong == (before is not None and before["text"] != CLOCK_RIGHT) or not (wrong or sure):
        return []
    if before is not None and now - before["time"] < CLOCK_EVERY:
        return []
    way = "ahead of" if ahead > 0 else "behind"
    text = f"its clock is {abs(ahead):.1f} s {way} the server's, by at most {error:.1f} s more or less"
    return [Event(NodeFinding(node, "clock", text if wrong else CLOCK_RIGHT), now, SYSTEM)]


def fault_events(state: State, node: str, docs: Sequence[tuple[int, Mapping[str, Any]]], now: float) -> list[Event]:
    """Events for the faults among a launcher's documents that are new. Several launchers may tell of the same one."""
    told = [doc for _, doc in docs if doc["type"] == "fault"]
    if not told:
        return []
    known = NODE_RECORDS.all(state).get(node)
    marks = known.fault_marks if known is not None else []
    seen, room = {mark for mark, _ in marks}, FAULTS_MINUTE - sum(now - at < 60.0 for _, at in marks)
    events: list[Event] = []
    for doc in told:
        gpu, code, number, boot = (doc.get(name) for name in ("gpu", "code", "number", "boot"))
        if not isinstance(gpu, int) or not -1 <= gpu < DEVICES_MAX:
            continue
        if not isinstance(number, int) or not 0 <= number < 2**63:
            continue
        if not _FAULT_CODE.fullmatch(str(code)) or not _BOOT.fullmatch(str(boot)):
            continue
        fault = NodeFault(node, gpu, str(code), number, str(boot))
        if fault.mark not in seen and len(events) < room:
            seen.add(fault.mark)
            events.append(Event(fault, now, SYSTEM))
    return events


def link_events(state: State, job: Job, links: Sequence[tuple[int, float, float]], now: float) -> list[Event]:
    """Findings on nodes of a gang whose link to its first node is far slower than those of the others, each once.

    `links`: worker, MB/s and round trip in ms. It is never compared with a fixed number, and changes nobody's health.
    """
    assert job.attempt is not None
    workers = job.attempt.workers
    speeds = {worker: (speed, trip) for worker, speed, trip in links if 0 < worker < len(workers)}
    events = []
    for worker, (speed, trip) in speeds.items():
        others = [other for number, (other, _) in speeds.items() if number != worker]
        if not workers[worker].placed or len(others) < LINKS_COMPARED:
            continue
        usual, node = median(others), workers[worker].node
        known = NODE_RECORDS.all(state).get(node)
        history = known.history if known is not None else []
        told = any(one["kind"] == "link" and one["time"] >= job.attempt.planned_at for one in history)
        if speed < usual * LINK_SLOW and not told:
            text = f"its link to {workers[0].node} carries {speed:.0f} MB/s (round trip {trip:.2f} ms), and those of "
            text += f"{len(others)} other nodes {usual:.0f} MB/s in the median"
            found = NodeFinding(node, "link", text)
            events.append(Event(found, now, SYSTEM, job.project, job.id, job.attempt.number))
    return events


def quarantines(state: State, jobs: Iterable[Job], now: float) -> list[Event]:
    """Events for the nodes of these ended attempts on which a check failed, as far as the breaker allows."""
    taken: dict[str, Event] = {}
    for job in jobs:
        for worker in job.attempt.workers if job.attempt is not None else ():
            if worker.exit is None or worker.exit["reason"] != FAILED:
                continue
            node = state.find_node(worker.node)
            if node is not None and node.name not in taken and may_take_out(state, node, taken):
                why = f"{str(worker.exit['detail'])[:300]} (checked before {job.id} started)"
                taken[node.name] = Event(NodeHealth(node.name, "quarantined", why, CHECKS), now, SYSTEM)
    return list(taken.values())


def returns(state: State, now: float) -> list[Event]:
    """Events for the nodes that the checks took out and that have been out for long enough, and for spot machines that
    are there long after they should have gone: those are others of the same name."""
    records = NODE_RECORDS.all(state)
    events = []
    for node in (*state.nodes.values(), *state.machines.values()):
        record = records.get(node.name) if _out(node) else None
        if record is not None and (back := _back_at(record.failures.get(FAILED, 1), record.last)) and now >= back:
            healthy = NodeHealth(node.name, "healthy", "it is checked before the next start there", CHECKS)
            events.append(Event(healthy, now, SYSTEM))
        elif node.by == SPOT and node.health == "draining" and now - _noted(records.get(node.name), "draining") >= GONE:
            events.append(
                Event(NodeHealth(node.name, "healthy", "it was not taken away, or is back", SPOT), now, SYSTEM)
            )
    return events


def may_take_out(state: State, node: Node, taken: Container[str]) -> bool:
    """Whether a healthy node may be taken out by the platform itself: of a few nodes one may go, and never the only
    one."""
    group = state.machines if node.role == "machine" else state.nodes
    pool = [other for other in group.values() if other.pool == node.pool and other.role == node.role]
    gone = sum(_out(other) or other.name in taken for other in pool)
    return node.health == "healthy" and len(pool) > 1 and gone < max(1, int(len(pool) * BREAKER))


def _noted(record: NodeRecord | None, kind: str) -> float:
    """When the newest entry of this kind was made; 0 for never."""
    history = record.history if record is not None else []
    return next((float(one["time"]) for one in reversed(history) if one["kind"] == kind), 0.0)


def _back_at(failed: int, last: float) -> float | None:
    """When a node that failed so many checks may be used again; None for never."""
    return last + OUT_FIRST * 2 ** (failed - 1) if failed < OUT_TIMES else None


def _out(node: Node) -> bool:
    return node.by == CHECKS and node.health != "healthy"
