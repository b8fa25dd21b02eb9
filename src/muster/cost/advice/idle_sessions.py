"""Sessions that hold devices and leave them idle."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

from muster.cost.advice.facts import Advice, AdviceFacts

IDLE: Final = 0.5  # of the time
LEAST: Final = 1.0  # hours


def idle_sessions(facts: AdviceFacts) -> Iterator[Advice]:
    for one in facts.runs:
        if one.kind != "session" or one.idle_share is None or one.idle_share < IDLE or one.hours < LEAST:
            continue
        saved, busy = one.amount * one.idle_share, one.hours * (1 - one.idle_share)
        if saved <= 0:
            continue
        runs = one.phase in ("running", "starting")
        yield Advice(
            "idle-session", one.run, one.project, facts.monthly(saved),
            f"it held {one.nodes * one.accelerators} {one.accelerator or 'devices'} for {one.hours:.1f} h, which were "
            f"idle for {one.idle_share:.0%} of it; {facts.money(one.amount)} × {one.idle_share:.2f} = "
            f"{facts.money(saved)} {facts.during}",
            f"muster stop {one.run}" if runs
            else f"muster runs reproduce {one.run} -o max_duration={max(1, ceil(busy))}h",
            (one.run,), "measured",
        )  # fmt: skip
