"""The goodput ledger: the time that attempts held, by class, and the shares of it that made progress."""

from typing import Literal

from muster.api.typed import TypedDict


class HeldTime(TypedDict):
    """The held time of attempts with one kind of unit, in unit-seconds. `parts` has every class and adds up to `held`.

    `training`: the share of `held` that trained, each step once. `effective`: the same over the time from the first
    seats on, with the waits between attempts. `iterations`: steps that count × the mean time of a step, over that time.
    """

    unit: Literal["accelerator", "cpu"]
    held: float
    waited: float
    parts: dict[str, float]
    training: float | None
    effective: float | None
    iterations: float | None
    largest_loss: str | None


class GoodputView(TypedDict):
    """From the UTC day of `since` to `now`; of accelerators, then of CPUs of attempts that held no accelerator."""

    since: float
    now: float
    attempts: int
    ledgers: list[HeldTime]
