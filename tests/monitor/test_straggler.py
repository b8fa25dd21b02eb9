"""The judge of stragglers on simulated gangs: none for noise or a slow program, the right rank for a planted one."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.monitor.straggler import ENDED, LOST, NEEDED, WINDOW, WINDOWS, GangTimes, slow_ones

WORK = 1.0  # seconds of own work in a step
seeds = st.integers(0, 2**32 - 1)


class Simulated:
    """A gang that trains in lockstep: in each step a rank waits for the slowest one. `nproc`: ranks of a worker."""

    def __init__(self, ranks: int, nproc: int = 1, measures: bool = True) -> None:
        self.times, self.ranks, self.nproc, self.measures = GangTimes(), ranks, nproc, measures
        self.now, self.cpu = 1000.0, [0.0] * ranks
        self._report([0.0] * ranks, 0.0)

    def step(self, work: list[float]) -> None:
        longest = max(work)
        self.now += longest
        self._report(work, longest)
        self.times.stepped = True
        self.times.close(self.now, self.ranks)

    def _report(self, work: list[float], longest: float) -> None:
        for rank, own in enumerate(work):
            self.cpu[rank] += own
            one = self.times.rank(rank, rank // self.nproc)
            one.beat(self.now, self.cpu[rank])
            one.report(self.now, "training", {"waiting": longest - own} if self.measures else {})

    def run(self, work: list[float], windows: int = WINDOWS + 1) -> None:
        until = self.now + windows * (WINDOW + max(work))
        while self.now < until:
            self.step(work)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(2, 12), st.floats(0.0, 0.3), st.sampled_from([1, 2]))
def test_noise_is_no_straggler(seed: int, ranks: int, noise: float, nproc: int) -> None:
    chance, gang = random.Random(seed), Simulated(ranks, nproc)
    for _ in range(150):
        gang.step([WORK + noise * chance.expovariate(1.0) for _ in range(ranks)])
        assert gang.times.verdict() is None


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(3, 12), st.floats(0.4, 5.0), st.floats(0.0, 0.05))
def test_a_planted_straggler_is_found_and_no_other(seed: int, ranks: int, slower: float, noise: float) -> None:
    chance, gang = random.Random(seed), Simulated(ranks)
    bad = chance.randrange(ranks)
    for _ in range(100):
        gang.step([(WORK + noise * chance.random()) * (1 + slower * (rank == bad)) for rank in range(ranks)])
    found = gang.times.verdict()
    assert found is not None
    assert (found.ranks, found.workers, found.evidence) == ((bad,), (bad,), "waiting")
    assert found.seen >= NEEDED
    assert abs(found.slower - slower) < 0.1 * (1 + slower)
    assert abs(found.lost - slower / (1 + slower)) < 0.1


@given(st.integers(2, 12), st.floats(0.1, 100.0))
def test_a_program_that_is_slow_on_all_ranks_alike_has_none(ranks: int, work: float) -> None:
    gang = Simulated(ranks)
    gang.run([work] * ranks)
    assert gang.times.verdict() is None


def test_a_slow_node_is_found_among_two() -> None:
    gang = Simulated(8, nproc=4)
    gang.run([WORK] * 4 + [2 * WORK] * 4)
    found = gang.times.verdict()
    assert found is not None
    assert (found.ranks, found.workers) == ((4, 5, 6, 7), (1,))


def test_of_two_ranks_the_one_that_never_waits_is_named_only_if_the_other_waits_much() -> None:
    assert slow_ones({0: 0.55, 1: 0.99}) == {1}
    assert slow_ones({0: 0.85, 1: 0.99}) == set()
    assert slow_ones({0: 0.4, 1: 0.8}) == set(), "both wait, for something else than each other"
    assert slow_ones({0: 1.0}) == set()


def test_both_limits_must_be_passed() -> None:
    even = dict.fromkeys(range(6), 0.5)
    assert slow_ones({**even, 6: 0.5 + LOST + 0.01}) == {6}
    assert slow_ones({**even, 6: 0.5 + LOST - 0.01}) == set(), "a small part of the step"
    assert slow_ones({0: 0.3, 1: 0.4, 2: 0.5, 3: 0.6, 4: 0.7, 5: 0.85}) == set(), "not more than the others vary"


def test_it_is_over_when_it_goes_away() -> None:
    gang = Simulated(4)
    gang.run([WORK, WORK, WORK, 2 * WORK])
    assert gang.times.verdict() is not None
    gang.run([WORK] * 4, WINDOWS - ENDED - 2)
    assert not gang.times.over((3,))
    gang.run([WORK] * 4)
    assert gang.times.verdict() is None
    assert gang.times.over((3,))


def test_cpu_time_is_weak_evidence_and_used_only_if_no_rank_measures_its_waiting() -> None:
    gang = Simulated(4, measures=False)
    gang.run([0.2, 0.2, 0.2, 1.0])
    found = gang.times.verdict()
    assert found is not None
    assert (found.ranks, found.evidence) == ((3,), "cpu")
    busy = Simulated(4, measures=False)
    busy.run([0.9, 0.9, 0.9, 1.2])
    assert busy.times.verdict() is None, "ranks that wait busily"


def test_a_gang_of_which_a_rank_is_not_known_is_not_judged() -> None:
    gang = Simulated(3)
    gang.ranks = 4
    gang.run([WORK, WORK, 2 * WORK])
    assert not gang.times.windows


def test_nonsense_in_reports_is_harmless() -> None:
    one = GangTimes().rank(0, 0)
    for value in ("x", None, float("nan"), float("inf"), -5, [1], 10**400):
        one.report(1.0, "training", {"waiting": value})
    one.report(-1e9, "waiting", {})
    one.report(1e300, "training", {})
    assert 0 <= one.own < 1000
    assert 0 <= one.waited < 1000
