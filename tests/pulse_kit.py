"""A simulated gang: virtual time, pulses as launchers send them, and a look of the judge after every one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from muster.monitor.activity import GangActivity
from muster.monitor.hang import Verdict, judge
from muster.wire import Pulse

BEAT = 2.0  # seconds


@dataclass
class SimulatedGang:
    """`ranks` on `workers` nodes. Everything takes virtual seconds; `found` is the first verdict."""

    ranks: int = 4
    workers: int = 2
    reporting: bool = True  # whether ranks report steps
    devices: bool = False
    counted: bool = False  # whether their collectives are counted
    gang: GangActivity = field(default_factory=GangActivity)
    now: float = 1000.0  # the server's clock
    jump: float = 0.0  # what the ranks' clocks are ahead by
    count: int = 0  # steps
    found: Verdict | None = None
    found_at: float = 0.0
    stopped: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)  # workers whose launcher says nothing
    frozen: set[int] = field(default_factory=set)
    _next: float = 1000.0
    _cpu: dict[int, float] = field(default_factory=dict)
    _output: int = 0
    _begun: dict[int, int] = field(default_factory=dict)

    def step(self, seconds: float) -> None:
        self.work(seconds)
        self.count += 1
        self.collect(range(self.ranks), 3)
        if self.reporting:
            self._tell([(self.now + self.jump, self.count)], [])

    def phase(self, name: str, seconds: float, busy: bool = False) -> None:
        """A phase that the program announces."""
        self._tell([], [(self.now + self.jump, name)])
        self.work(seconds) if busy else self.rest(seconds)
        self._tell([], [(self.now + self.jump, "training")])

    def work(self, seconds: float) -> None:
        self._pass(seconds, range(self.ranks), power=500.0)

    def rest(
        self, seconds: float, busy: Collection[int] = (), power: float = 70.0, place: dict[int, str] | None = None
    ) -> None:
        """Nothing moves, except that some ranks use their CPU."""
        self._pass(seconds, busy, power, place)

    def collect(self, ranks: Collection[int], count: int = 1) -> None:
        """These ranks begin so many collectives."""
        for rank in ranks:
            self._begun[rank] = self._begun.get(rank, 0) + count

    def say(self) -> None:
        self._output += 10

    def _pass(self, seconds: float, busy: Collection[int], power: float, place: dict[int, str] | None = None) -> None:
        end = self.now + seconds
        while self._next <= end:
            self.now, self._next = self._next, self._next + BEAT
            for rank in busy:
                self._cpu[rank] = self._cpu.get(rank, 0.0) + BEAT
            self._beat(busy, power, place or {})
        self.now = end

    def _beat(self, busy: Collection[int], power: float, place: dict[int, str]) -> None:
        self.gang.look(self.now)
        for worker in set(range(self.workers)) - self.silent:
            pulses = [self._pulse(rank, busy, power, place) for rank in range(worker, self.ranks, self.workers)]
            self.gang.hear(worker, self.now - 500, pulses, {}, self.now)
        found = judge(self.gang, frozen=self.frozen)
        if found is not None and self.found is None:
            self.found, self.found_at = found, self.now

    def _pulse(self, rank: int, busy: Collection[int], power: float, place: dict[int, str]) -> Pulse:
        state = "T" if rank in self.stopped else "R" if rank in busy else "S"
        figures = (1.0 if rank in busy else 0.0, power) if self.devices else (None, None)
        where = place.get(rank, "futex_wait")
        begun = {"0": self._begun.get(rank, 0)} if self.counted else None
        return Pulse(rank, 0, self._output, self._cpu.get(rank, 0.0), 0, state, where, *figures, begun)

    def _tell(self, steps: list[tuple[float, int]], phases: list[tuple[float, str]]) -> None:
        for rank in range(self.ranks):
            self.gang.report(rank % self.workers, rank, steps, phases, self.now)
