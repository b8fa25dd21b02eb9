"""Fair share: the least usage for its weight goes first; among projects, then among queues, then among users.

Usage is past use, which decays with the half-life, plus one hour of what is held now. The hour prevents one round from
giving everything to a user without past use. Of accelerators, CPUs and memory only the dominant resource counts: the
one with the largest share of the cluster's total.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from muster.core.entities.account import Account, Amount, account_name
from muster.core.state import State
from muster.sched.order import Key

AHEAD = 3600.0  # seconds of future use that are charged in advance for what is held now


@dataclass(slots=True)
class Shares:
    """The usage accounts, summed up along the queue tree. Kept between rounds; updated by starts and ends."""

    state: State
    _accounts: dict[str, Account] = field(default_factory=dict)  # of projects, queues, and users in queues
    _totals: Amount = (1.0, 1.0, 1.0)
    _lineages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _now: float = -1.0
    _scores: dict[str, float] = field(default_factory=dict)  # at `_now`
    _user_scores: dict[tuple[str, str], float] = field(default_factory=dict)  # (queue, user) → at `_now`
    _queue_scores: dict[str, Key] = field(default_factory=dict)  # the scores of each queue's lineage
    _below: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # queue → it, and those below

    def load(self, now: float) -> None:
        """Adds up the accounts of the state."""
        half_life = self.state.rules.half_life
        for name, account in self.state.accounts.items():
            queue = name.partition("/")[0]
            record = self.state.queues.get(queue)
            if record is not None:
                used = account.now(now, half_life)
                for above in (_project(record.project), *map(_queue, self.lineage(queue)), name):
                    known = self._accounts.setdefault(above, Account(at=now))
                    known.used, known.rate = _sum(known.used, used), _sum(known.rate, account.rate)

    def change(self, project: str, queue: str, user: str, by: Amount, sign: int, time: float) -> None:
        """A gang took (`sign` +1) or gave back (-1) the amount `by`."""
        half_life = self.state.rules.half_life
        for above in self.lineage(queue):
            for below in self._below[above]:
                self._queue_scores.pop(below, None)
        for name in (_project(project), *map(_queue, self.lineage(queue)), account_name(queue, user)):
            account = self._accounts.get(name)
            if account is None:
                account = self._accounts[name] = Account(at=time)
            account.change(by, sign, time, half_life)
            self._scores.pop(name, None)
        self._user_scores.pop((queue, user), None)

    def look(self, now: float) -> None:
        """Sets the time for which scores are computed, and reads the cluster's totals."""
        if now != self._now:
            self._now = now
            self._forget_scores()
        totals = [0.0, 0.0, 0.0]
        for (_, node), count in self.state.kinds.items():
            totals[0] += node.accelerators * count
            totals[1] += node.milli_cpus / 1000 * count
            totals[2] += node.memory * count
        found = (totals[0] or 1.0, totals[1] or 1.0, totals[2] or 1.0)
        if found != self._totals:
            self._totals = found
            self._forget_scores()

    def project(self, name: str) -> float:
        """The project's score: usage divided by weight; the smallest goes first. Queues and users work the same way."""
        return self._score(_project(name), self.state.rules.project(name).weight)

    def queue(self, name: str) -> Key:
        found = self._queue_scores.get(name)
        if found is None:
            rules = self.state.rules
            found = tuple([self._score(_queue(one), rules.queue(one).weight) for one in self.lineage(name)])
            self._queue_scores[name] = found
        return found

    def user(self, queue: str, name: str) -> float:
        found = self._user_scores.get((queue, name))
        if found is None:
            weight = self.state.rules.queue(queue).users.get(name, 1.0)
            found = self._user_scores[queue, name] = self._score(account_name(queue, name), weight)
        return found

    def lineage(self, queue: str) -> tuple[str, ...]:
        """The queue and its ancestors, from the top of the tree down."""
        found = self._lineages.get(queue)
        if found is None:
            found = self._lineages[queue] = tuple(self.state.rules.lineage(queue))[::-1]
            for above in found:
                self._below[above].add(queue)
        return found

    def _forget_scores(self) -> None:
        self._scores.clear()
        self._user_scores.clear()
        self._queue_scores.clear()

    def _score(self, name: str, weight: float) -> float:
        found = self._scores.get(name)
        if found is None:
            account = self._accounts.get(name)
            if account is None:
                return 0.0
            used, rate, totals = account.now(self._now, self.state.rules.half_life), account.rate, self._totals
            dominant = max([(u + r * AHEAD) / t for u, r, t in zip(used, rate, totals, strict=True)])
            # Rounded, so that the same numbers summed in another order give the same score.
            found = self._scores[name] = float(f"{dominant / weight:.9g}")
        return found


def _sum(one: Amount, other: Amount) -> Amount:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def _project(name: str) -> str:
    return f"@{name}"


def _queue(name: str) -> str:
    return f"{name}/"
