"""A run that hangs, and a program that sleeps at one place of its own code."""

from __future__ import annotations

from typing import Final

from muster.monitor.diagnose.evidence import Evidence, bounds, mean
from muster.monitor.diagnose.finding import Finding

LEAST: Final = 0.3  # of the looks
CORE: Final = 0.5  # of a core: a rank that uses more works
IDLE: Final = 0.3  # use of a device below which a sleeping host is the cause


def hang(evidence: Evidence) -> Finding | None:
    if not evidence.hung:
        return None
    lines = [
        evidence.hung,
        *(f"seen {count} times in {place}" for place, count in evidence.samples.places("communication")),
    ]
    changes = ("See which rank is behind and where: it is the one that is not in the collective of the others.",)
    text = "It hangs: its processes live and its work does not go on."
    return Finding(
        "hang", 0.95, 1.0, text, tuple(lines), changes, (f"muster stacks {evidence.job}", f"muster why {evidence.job}")
    )


def waiting(evidence: Evidence) -> Finding | None:
    """The cause is not known beyond the place; `loader` and the others are told where frames are known."""
    samples, use, cpu = evidence.samples, evidence.device_use, mean(one.cpu for one in evidence.ranks)
    share = samples.share("asleep")
    places = samples.places("asleep")
    if not evidence.sampled or not places or bounds(share, samples.looks)[0] < LEAST:
        return None
    if cpu is None or cpu >= CORE or (use is None and evidence.has_devices) or (use is not None and use >= IDLE):
        return None
    if (evidence.share("data") or 0.0) > 0.0:  # a sleep there is told by its own name
        return None
    place = places[0][0]
    lines = [
        f"in {share:.0%} of {samples.looks} looks its main thread sleeps outside of any framework",
        *(f"seen {count} times in {one}" for one, count in places),
        f"a rank uses {cpu:.2f} cores",
    ]
    changes = (f"Look at what {place} waits for: data, a file, a network, a lock, another process.",)
    text = f"It does not compute: it waits in {place}."
    commands = (f"muster stacks {evidence.job} --full",)
    return Finding("waiting", 0.8, share, text, tuple(lines), changes, commands)
