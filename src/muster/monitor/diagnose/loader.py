"""Waiting for data: by the time that the program states, else by samples of its stacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.monitor.diagnose.evidence import Evidence, bounds, mean
from muster.monitor.diagnose.finding import Finding

LEAST: Final = 0.15  # of the loop's time
PLAIN: Final = 0.25  # from which on it is beyond doubt
FULL: Final = 0.9  # of the CPUs that a rank may use
_WORKERS: Final = ("num_workers", "workers", "dataloader_num_workers", "data.workers", "data.num_workers")
_PINNED: Final = ("pin_memory", "dataloader_pin_memory", "data.pin_memory")
_PREFETCH: Final = ("prefetch_factor", "dataloader_prefetch_factor", "data.prefetch_factor")


def judge(evidence: Evidence) -> Finding | None:
    stated = evidence.share("data")
    if stated is not None and stated >= LEAST:
        seconds = evidence.times["data"]
        line = f"{stated:.0%} of the loop's time is waiting for data ({seconds:,.1f} of {evidence.loop:,.1f} s)"
        return _finding(evidence, stated, 0.9 if stated >= PLAIN else 0.7, [line, *_places(evidence)])
    share, looks = evidence.samples.share("data"), evidence.samples.looks
    # A program that states `data` and waits little there knows better than a few looks.
    if (stated is not None and evidence.times.get("data", 0.0) > 0) or not evidence.sampled:
        return None
    least, _ = bounds(share, looks)
    if least < LEAST:
        return None
    line = f"in {share:.0%} of {looks} looks at its stacks it waits for a data loader (at least {least:.0%}, by chance)"
    return _finding(evidence, share, 0.9 if least >= PLAIN else 0.7, [line, *_places(evidence)])


def _finding(evidence: Evidence, share: float, confidence: float, lines: list[str]) -> Finding:
    if (use := evidence.device_use) is not None:
        lines.append(f"its devices are in use {use:.0%} of the time")
    if (figure := _cores(evidence)) is not None:
        used, most = figure
        lines.append(f"a rank and its loader's processes use {used:.1f} of {most:.1f} CPUs that it asked for")
    return Finding(
        "loader", confidence, share, f"The loader is too slow: the program waits for data {share:.0%} of the time.",
        tuple(lines), tuple(_changes(evidence)), (f"muster stacks {evidence.job} --all-threads",),
    )  # fmt: skip


def _changes(evidence: Evidence) -> Iterator[str]:
    workers = evidence.param(_WORKERS)
    cores = _cores(evidence)
    if cores is not None and cores[0] >= FULL * cores[1]:
        yield "Ask for more `cpus` in the job file: the loader uses all that it has."
    elif workers is not None:
        yield f"Raise the loader's processes above {workers[1]}; the CPUs that it asked for are not used up."
    else:
        yield "Load in processes of their own (`DataLoader(num_workers=...)`), about one for each CPU of the rank."
    pinned = evidence.param(_PINNED)
    if evidence.has_devices and (pinned is None or pinned[1].lower() in ("false", "0")):
        yield "Use `pin_memory=True` and `.to(device, non_blocking=True)`."
    if evidence.param(_PREFETCH) is None:
        yield "Keep batches ready ahead (`prefetch_factor=4`, `persistent_workers=True`)."
    yield "Move decoding and tokenising out of the loop, into the data set (`muster.data`)."


def _places(evidence: Evidence) -> list[str]:
    return [f"seen {count} times in {place}" for place, count in evidence.samples.places("data")]


def _cores(evidence: Evidence) -> tuple[float, float] | None:
    """Cores that a rank uses, and those that it asked for."""
    used = mean(one.cpu for one in evidence.ranks)
    if used is None or not evidence.cpus:
        return None
    return used, evidence.cpus / max(1, evidence.ranks_per_node)
