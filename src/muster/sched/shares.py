"""Fair share: who has had least for his weight goes first; projects against each other, then queues, then users.

What counts is what was used, fading with the half-life, and what is held now for an hour to come, so that one round
does not give everything to whoever has used nothing yet. Of accelerators, CPUs and memory the dominant one counts: the
one of which it is the largest part of what the cluster has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.core.account import Account, Amount
from muster.core.state import State
from muster.core.state_data import account_name
from muster.sched.order import Key

AHEAD = 3600.0  # seconds for which what is held now counts beforehand


@dataclass(slots=True)
class Shares:
    """The accounts, added up along the tree, kept from round to round by what starts and ends."""

    state: State
    _accounts: dict[str, Account] = field(default_factory=dict)  # of projects, queues, and users in queues
    _totals: Amount = (1.0, 1.0, 1.0)
    _lineages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _now: float = -1.0
    _scores: dict[str, float] = field(default_factory=dict)  # at `_now`

    def load(self, now: float) -> None:
        """Adds up what the state has on record."""
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
        """A gang took what it holds, or gave it back."""
        half_life = self.state.rules.half_life
        for name in (_project(project), *map(_queue, self.lineage(queue)), account_name(queue, user)):
            account = self._accounts.get(name)
            if account is None:
                account = self._accounts[name] = Account(at=time)
            account.change(by, sign, time, half_life)
            self._scores.pop(name, None)

    def look(self, now: float) -> None:
        """Sets the time at which scores are asked for."""
        if now != self._now:
            self._now = now
            self._scores.clear()
        totals = [0.0, 0.0, 0.0]
        for (_, node), count in self.state.kinds.items():
            totals[0] += node.accelerators * count
            totals[1] += node.milli_cpus / 1000 * count
            totals[2] += node.memory * count
        found = (totals[0] or 1.0, totals[1] or 1.0, totals[2] or 1.0)
        if found != self._totals:
            self._totals = found
            self._scores.clear()

    def project(self, name: str) -> float:
        """The smaller goes first; so with queues and users."""
        return self._score(_project(name), self.state.rules.project(name).weight)

    def queue(self, name: str) -> Key:
        rules = self.state.rules
        return tuple([self._score(_queue(one), rules.queue(one).weight) for one in self.lineage(name)])

    def user(self, queue: str, name: str) -> float:
        return self._score(account_name(queue, name), self.state.rules.queue(queue).users.get(name, 1.0))

    def lineage(self, queue: str) -> tuple[str, ...]:
        """From the top of the tree down."""
        found = self._lineages.get(queue)
        if found is None:
            found = self._lineages[queue] = tuple(self.state.rules.lineage(queue))[::-1]
        return found

    def _score(self, name: str, weight: float) -> float:
        found = self._scores.get(name)
        if found is None:
            account = self._accounts.get(name)
            if account is None:
                return 0.0
            used, rate, totals = account.now(self._now, self.state.rules.half_life), account.rate, self._totals
            dominant = max([(u + r * AHEAD) / t for u, r, t in zip(used, rate, totals, strict=True)])
            # Rounded: sums of the same in another order must not tell anyone apart.
            found = self._scores[name] = float(f"{dominant / weight:.9g}")
        return found


def _sum(one: Amount, other: Amount) -> Amount:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def _project(name: str) -> str:
    return f"@{name}"


def _queue(name: str) -> str:
    return f"{name}/"
