"""The past use of one user in one queue, decayed with a half-life; fair share is computed from it.

Use is counted in accelerator-seconds, CPU-seconds and byte-seconds. While gangs hold resources, use grows with time by
itself, so an account is only changed when a gang starts and when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING

from muster.core.entities.base import EntityType
from muster.core.payload import Doc
from muster.core.resources import Resources

if TYPE_CHECKING:
    from muster.core.job import Job
    from muster.core.state_data import Changes, State

Amount = tuple[float, float, float]  # accelerators, CPUs, bytes of memory
NOTHING: Amount = (0.0, 0.0, 0.0)


def amount(ask: Resources, workers: int) -> Amount:
    return (ask.weight * workers, ask.milli_cpus / 1000 * workers, float(ask.memory * workers))


@dataclass(slots=True)
class Account:
    used: Amount = NOTHING  # amount × seconds, as of `at`
    rate: Amount = NOTHING  # amount held since `at`
    at: float = 0.0

    def now(self, time: float, half_life: float) -> Amount:
        """Use up to `time`, decayed."""
        seconds = time - self.at
        if seconds <= 0:
            return self.used
        fading = log(2) / half_life
        kept = exp(-fading * seconds)
        grown = (1 - kept) / fading  # seconds of use that count after decay
        used, rate = self.used, self.rate
        return (used[0] * kept + rate[0] * grown, used[1] * kept + rate[1] * grown, used[2] * kept + rate[2] * grown)

    def change(self, by: Amount, sign: int, time: float, half_life: float) -> None:
        """A gang took (+1) or released (-1) the amount `by`."""
        self.used, self.at = self.now(time, half_life), max(time, self.at)
        rate = self.rate
        # Never below zero: a rounding error would count forever.
        self.rate = (
            max(rate[0] + sign * by[0], 0.0),
            max(rate[1] + sign * by[1], 0.0),
            max(rate[2] + sign * by[2], 0.0),
        )


def account_name(queue: str, user: str) -> str:
    return f"{queue}/{user}"


def charge(state: State, job: Job, sign: int, time: float, changes: Changes) -> None:
    """Starts (+1) or ends (-1) counting what the job's attempt holds."""
    assert job.attempt is not None
    name = account_name(job.queue, job.user)
    account = state.accounts.get(name)
    if account is None:
        account = state.accounts[name] = Account(at=time)
    account.change(amount(job.ask, len(job.attempt.workers)), sign, time, state.rules.half_life)
    changes.entities[(ACCOUNTS.kind, name)] = account


def _decode(doc: Doc) -> Account:
    return Account(tuple(doc["used"]), tuple(doc["rate"]), doc["at"])


ACCOUNTS = EntityType("account", _decode, place=lambda state: state.accounts)
