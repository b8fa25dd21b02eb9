"""The comparison as rows of text: one row per statistic, one cell per policy, with its ratio to the first policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from muster.core.money import MICRO
from muster.sim.model import Money
from muster.sim.summary import Summary

Read = Callable[[Summary], float | None]


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    cells: tuple[str, ...]
    ratios: tuple[float | None, ...]  # to the first policy; None where a ratio has no meaning
    about: str = ""  # how the statistic is defined


def rows(summaries: Sequence[Summary]) -> Iterator[Row]:
    """The rows for statistics that are not empty for all policies."""
    for label, read, written, compared, about in _figures(summaries):
        values = [read(one) for one in summaries]
        if any(values) or label in _ALWAYS:
            ratios = tuple(_ratio(value, values[0]) if compared else None for value in values)
            yield Row(label, tuple(map(written, values)), ratios, about)


def span(seconds: float | None) -> str:
    """A duration as `4.2s`, `3m20s`, `2h05m` or `3d04h`: at most two units."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if ratio < 0.1:
        return f"×{ratio:.2g}"
    return f"×{ratio:.2f}" if ratio < 100 else f"×{ratio:,.0f}"


def _index(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _figures(summaries: Sequence[Summary]) -> Iterator[tuple[str, Read, Callable[[float | None], str], bool, str]]:
    """Label, getter, formatter, whether ratios make sense, and definition."""
    yield "jobs finished", lambda s: s.jobs, count, False, ""
    yield "refused", lambda s: s.refused, count, False, "jobs that the cluster or the policy can never run"
    yield "unfinished", lambda s: s.unfinished, count, False, "jobs that had not ended when nothing more could happen"
    yield "completion, mean", lambda s: s.completion.mean, span, True, "from submission to end"
    yield "completion, median", lambda s: s.completion.median, span, True, ""
    yield "completion, p99", lambda s: s.completion.p99, span, True, _PERCENTILE
    yield "queueing, mean", lambda s: s.queueing.mean, span, True, "time in the system without any node"
    yield "queueing, p99", lambda s: s.queueing.p99, span, True, ""
    yield "queueing, p99.9", lambda s: s.queueing.p999, span, True, ""
    sizes = dict.fromkeys(size for one in summaries for size in one.by_size)
    for number, size in enumerate(sizes):
        about = "" if number else "mean queueing, by the accelerators of the job"
        yield f"  {_size_words(size)}", _mean_of(size), span, True, about
    yield "accelerators in use", lambda s: s.utilisation, share, False, "from the first to the last submission"
    yield "fragmentation", lambda s: s.fragmentation, share, False, "free accelerators that a typical gang can't use"
    over = next((one.fairness_over for one in summaries if one.fairness_over), "users")
    yield f"fairness of {over}", lambda s: s.fairness, _index, False, "Jain's index (Σx)²/(nΣx²) of mean slowdowns x"
    yield "preemptions", lambda s: s.preemptions, count, True, ""
    yield "node failures met", lambda s: s.failures, count, False, "attempts that a failing node ended"
    yield "GPU-hours lost", lambda s: s.lost, count, True, "work done twice, and restarts"
    yield from _money(summaries)
    yield "rounds", lambda s: s.rounds, count, False, "times that the scheduler decided"
    yield "simulated in", lambda s: s.wall, span, False, "seconds of this machine"


def _money(summaries: Sequence[Summary]) -> Iterator[tuple[str, Read, Callable[[float | None], str], bool, str]]:
    currency = next((one.money.currency for one in summaries if one.money is not None), "")
    if not currency:
        return

    def read(of: Callable[[Money], float]) -> Read:
        return lambda one: of(one.money) / MICRO if one.money is not None else None

    yield f"charged to projects, {currency}", read(lambda m: m.charged), _amount, True, "what they would have paid"
    yield "paid by the platform", read(lambda m: m.platform), _amount, True, "lost to failures, preemption and starts"
    yield "idle capacity", read(lambda m: m.idle), _amount, True, "reserved or owned, until the last job ended"
    yield "cost of a finished job", _each, _amount, True, "all of these, over the jobs that finished"
    unpriced = "accelerator-hours that are in none of these amounts"
    yield "hours without a price", lambda s: s.money.unpriced if s.money else None, count, False, unpriced


def _each(one: Summary) -> float | None:
    return one.money.total / MICRO / one.jobs if one.money is not None and one.jobs else None


def _amount(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _size_words(size: str) -> str:
    return "CPU only" if size == "0" else f"{size} GPU{'' if size == '1' else 's'}"


def _mean_of(size: str) -> Read:
    def read(summary: Summary) -> float | None:
        found = summary.by_size.get(size)
        return found.mean if found else None

    return read


_PERCENTILE: Final = "interpolated between the nearest ranks"
_ALWAYS: Final = frozenset({"jobs finished", "completion, mean", "queueing, mean", "preemptions"})
