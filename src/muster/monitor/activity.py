"""The activity of a gang's ranks, from their reports and their launchers' pulses: since when each signal is quiet.

Durations add up from pulse to pulse, by the shorter of what the launcher's and the server's clock say and at most
`CREDIT` each. So a clock that jumps, a server that restarts and a machine that sleeps never make a gang look hung.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from muster.wire import Pulse

CREDIT: Final = 10.0  # seconds that one pulse may add
TICK_CREDIT: Final = 5.0  # seconds that one look may add to a launcher's silence
IDLE_CPU: Final = 0.03  # of a core: background threads of a program that waits use less
IDLE_IO: Final = 64 << 10  # bytes a second
SPINNING: Final = 0.9  # use of a device that a kernel occupies
USUAL: Final = 0.98  # what is kept of a device's highest power from pulse to pulse
LOW_POWER: Final = 0.5  # of what the device draws while steps advance
WINDOW: Final = 512  # step times that are remembered
ROWS: Final = 64  # reports of one batch that are looked at
PHASES: Final = 32  # names of phases whose durations are remembered
STEPPING: Final = frozenset({"", "training", "data"})  # phases in which steps are expected


@dataclass(slots=True)
class RankActivity:
    """One rank. The seconds count how long a signal has been quiet, without a break."""

    rank: int
    worker: int
    step: int | None = None  # the last one that it reported
    stride: int = 1  # between its last two
    steps: int = 0  # that it reported in this attempt
    phase: str = ""
    still: float = 0.0  # without a new step and without a new phase
    idle: float = 0.0  # without CPU time
    silent: float = 0.0  # without output and reports
    no_io: float = 0.0
    device_idle: float | None = None  # None: no device, or its driver does not answer
    no_collective: float | None = None  # None: it has no process groups, or their counts are not known now
    spinning: float = 0.0  # its device is occupied and draws little power
    stopped: float = 0.0  # its process is stopped by a signal
    blocked: float = 0.0  # its process is in uninterruptible sleep
    cpu: float = 0.0  # of a core, between the last two pulses
    usual_power: float = 0.0  # W, while steps advance
    collectives: Mapping[str, int] = field(default_factory=dict)  # by process group, how many it had begun
    pulse: Pulse | None = None
    _at: float | None = None  # time of its last step, by its own clock
    _moved: bool = False
    _told: float = 0.0  # when it last reported a step or a phase, by the server's clock
    _counted: float = 0.0  # seconds since the counts of its collectives changed

    @property
    def inactive(self) -> float:
        """Seconds without any sign of work."""
        device = self.device_idle if self.device_idle is not None else self.idle
        collective = self.no_collective if self.no_collective is not None else self.idle
        return min(self.idle, self.silent, self.no_io, device, collective)

    def report(
        self, steps: Sequence[tuple[float, int]], phases: Sequence[tuple[float, str]], now: float
    ) -> list[float]:
        """Takes new steps and phases, each with its time. Returns the durations of steps, for learning."""
        found: list[float] = []
        self._told = now
        news: list[tuple[float, int | str]] = [*steps[-ROWS:], *phases[-ROWS:]]
        for at, said in sorted(news, key=lambda one: one[0]):
            if isinstance(said, str):
                if said != self.phase:
                    self.phase, self._at, self._moved = said, None, True  # a step across phases is no ordinary one
            elif said != self.step:
                if self.step is not None and said > self.step:
                    self.stride = said - self.step
                    found += [at - self._at] if self._at is not None and at >= self._at else []
                self.step, self._at, self._moved = said, at, True
                self.steps += 1
        return found

    def beat(self, pulse: Pulse, elapsed: float, credit: float, caught_up: bool, now: float, stepping: bool) -> None:
        """Takes a pulse. `elapsed`: seconds since the last one, by its launcher; `credit`: what they count for.
        `caught_up`: all reports that the rank had made are known here. `stepping`: the gang makes steps."""
        last, self.pulse = self.pulse, pulse
        if last is None or elapsed <= 0:
            return
        moved, self._moved = self._moved, False
        spent, traffic = pulse.cpu - last.cpu, pulse.io - last.io
        self.cpu = max(0.0, spent) / elapsed
        # A process that ends takes its figures with it, and that is activity. Waiting for a core is no rest either.
        busy = self.cpu >= IDLE_CPU or spent < 0 or pulse.state == last.state == "R"
        self.still = min(credit, now - self._told) if moved else self.still + credit if caught_up else 0.0
        self.idle = 0.0 if busy else self.idle + credit
        said = moved or (pulse.spool, pulse.log) != (last.spool, last.log)
        self.silent = 0.0 if said else self.silent + credit
        self.no_io = self.no_io + credit if 0 <= traffic <= IDLE_IO * elapsed else 0.0
        self.stopped = self.stopped + credit if pulse.state == "T" else 0.0
        self.blocked = self.blocked + credit if pulse.state == last.state == "D" else 0.0
        self._beat_device(pulse, credit, stepping)
        self._beat_collectives(pulse, credit)

    def _beat_device(self, pulse: Pulse, credit: float, stepping: bool) -> None:
        if pulse.power is None or pulse.use is None:
            self.device_idle, self.spinning = None, 0.0
            return
        if stepping:
            self.usual_power = max(pulse.power, USUAL * self.usual_power)
        low = pulse.power < LOW_POWER * self.usual_power if self.usual_power else pulse.use == 0.0
        self.device_idle = (self.device_idle or 0.0) + credit if low or pulse.use == 0.0 else 0.0
        spins = self.usual_power > 0 and low and pulse.use >= SPINNING
        self.spinning = self.spinning + credit if spins else 0.0

    def _beat_collectives(self, pulse: Pulse, credit: float) -> None:
        """Counts only grow, so one that is the same after a while in which it was not known has not changed."""
        self._counted += credit
        if pulse.collectives is not None and pulse.collectives != self.collectives:
            self.collectives, self._counted = pulse.collectives, 0.0
        self.no_collective = self._counted if pulse.collectives is not None else None


@dataclass(slots=True)
class WorkerLink:
    """When a launcher was last heard."""

    at: float  # the server's clock, at its last pulses
    clock: float | None = None  # its own; None before its first pulses
    silent: float = 0.0  # seconds without a batch


@dataclass(slots=True)
class StepTimes:
    """What is learnt of a run: how long its steps and its phases take. Kept from one attempt to the next."""

    steps: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    phases: dict[str, float] = field(default_factory=dict)  # the longest so far, of a few names

    def p99(self) -> float:
        ordered = sorted(self.steps)
        return ordered[ceil(0.99 * len(ordered)) - 1] if ordered else 0.0


@dataclass(slots=True)
class GangActivity:
    """All ranks of one attempt."""

    times: StepTimes = field(default_factory=StepTimes)
    ranks: dict[int, RankActivity] = field(default_factory=dict)
    links: dict[int, WorkerLink] = field(default_factory=dict)
    _stepped: float | None = None  # when a rank last reported a step, by the server's clock
    _looked: float | None = None

    def expect(self, workers: Collection[int], now: float) -> None:
        """These workers of the gang run, heard or not; others have ended."""
        for worker in workers:
            self.links.setdefault(worker, WorkerLink(now))
        for worker in self.links.keys() - set(workers):
            del self.links[worker]
        for rank in [one.rank for one in self.ranks.values() if one.worker not in workers]:
            del self.ranks[rank]

    def report(
        self,
        worker: int,
        rank: int,
        steps: Sequence[tuple[float, int]],
        phases: Sequence[tuple[float, str]],
        now: float,
    ) -> None:
        """Takes what a rank reported, as it arrives: steps and phases, each with the rank's own time."""
        one, known = self._rank(worker, rank), self.times.phases
        before, lasted = one.phase, one.still
        self.times.steps.extend(one.report(steps, phases, now))
        if steps:
            self._stepped = now
        if one.phase != before and before not in STEPPING and (before in known or len(known) < PHASES):
            known[before] = max(lasted, known.get(before, 0.0))

    def hear(self, worker: int, clock: float, pulses: Iterable[Pulse], known: Mapping[int, int], now: float) -> None:
        """Takes the pulses of a batch. `known`: by rank, how many bytes of its reports the server has."""
        link, taken = self.links.get(worker), tuple(pulses)
        if link is not None:
            link.silent = 0.0
        if not taken:
            return
        elapsed = clock - link.clock if link is not None and link.clock is not None else 0.0
        credit = max(0.0, min(elapsed, now - link.at, CREDIT)) if link is not None else 0.0
        self.links[worker] = WorkerLink(now, clock)
        stepping = self._stepped is not None and now - self._stepped <= CREDIT
        for pulse in taken:
            caught_up = known.get(pulse.rank, 0) >= pulse.spool
            one = self._rank(worker, pulse.rank)
            one.worker = worker
            one.beat(pulse, elapsed, credit, caught_up, now, stepping)
        living = {pulse.rank for pulse in taken}
        for rank in [one.rank for one in self.ranks.values() if one.worker == worker and one.rank not in living]:
            del self.ranks[rank]  # it has ended

    def look(self, now: float) -> None:
        """Adds to the silence of launchers; called every few seconds."""
        passed = min(max(0.0, now - self._looked), TICK_CREDIT) if self._looked is not None else 0.0
        self._looked = now
        for link in self.links.values():
            link.silent += passed

    def _rank(self, worker: int, rank: int) -> RankActivity:
        found = self.ranks.get(rank)
        if found is None:
            found = self.ranks[rank] = RankActivity(rank, worker)
        return found
