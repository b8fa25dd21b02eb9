"""The HTML report of a comparison: one self-contained file, for light and dark mode, for desktop and phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from muster import __version__
from muster.pages.axes import count_axis, share_axis, time_axis, waits_axis
from muster.pages.charts import Curve, Layer, line_chart, stack_chart
from muster.pages.document import document, notes_section, scroll_table
from muster.sim.model import Result
from muster.sim.summary import Summary, percentile, window
from muster.sim.table import Row, count, ratio_text, rows, span
from muster.sim.timeline import Bucket, buckets, largest_queues

POINTS: Final = 300  # points of a curve: about the pixels of a phone's width
_TAIL: Final = 0.15  # charts extend past the last submission by this fraction of the submission period
QUEUES: Final = 7  # queues drawn separately; the rest is drawn as one


@dataclass(frozen=True, slots=True)
class ReportContent:
    """The contents of a report. `results` and `summaries` are in the order of the policies."""

    title: str
    origin: dict[str, str]  # description and licence of the trace
    settings: list[tuple[str, str]]
    notes: list[str]
    results: list[Result]
    summaries: list[Summary]

    @property
    def names(self) -> list[str]:
        return [result.setup.name for result in self.results]


def report(content: ReportContent) -> str:
    """The whole HTML file."""
    sections = (_head(content), _cards(content), _charts(content), _table(content), _settings(content), _notes(content))
    footer = f"Simulated by the scheduler itself, on a clock of its own. Muster {__version__}."
    return document(content.title, "".join(sections), footer)


def _head(content: ReportContent) -> str:
    about = f"<p>{escape(content.origin['trace'])}</p>" if "trace" in content.origin else ""
    return f"<header><h1>{escape(content.title)}</h1>{about}</header>"


def _cards(content: ReportContent) -> str:
    base = content.summaries[0]
    cards = []
    for name, one in zip(content.names, content.summaries, strict=True):
        ratio = ""
        if one is not base and one.completion.mean and base.completion.mean:
            ratio = (
                f"<small>{ratio_text(one.completion.mean / base.completion.mean)} of {escape(content.names[0])}</small>"
            )
        cards.append(
            f'<div class="card"><h3>{escape(name)}</h3><b>{span(one.completion.mean)}</b> mean completion {ratio}'
            f"<br><b>{span(one.queueing.mean)}</b> mean queueing<br><b>{span(one.queueing.p99)}</b> p99 queueing</div>"
        )
    return f'<section class="cards" aria-label="In short">{"".join(cards)}</section>'


# --- charts -----------------------------------------------------------------------------------------------------------
def _charts(content: ReportContent) -> str:
    start, last = window([job.job for job in content.results[0].jobs])
    end = max((job.finished or start for result in content.results for job in result.jobs), default=start)
    end = min(end, last + _TAIL * (last - start)) if last > start else end
    lines = [buckets(result.samples, start, end, POINTS) for result in content.results]
    parts = [_waits(content)]
    if any(lines):
        parts += [_use(content, lines, start, end), _queued(content, lines, start, end)]
        parts += _shares(content, lines, start, end)
    return f'<section class="charts">{"".join(parts)}</section>'


def _waits(content: ReportContent) -> str:
    waits = [sorted(job.queueing for job in result.jobs if job.finished is not None) for result in content.results]
    curves = [
        Curve(name, [(percentile(one, 100 * n / POINTS), n / POINTS) for n in range(POINTS + 1)] if one else [], tone)
        for tone, (name, one) in enumerate(zip(content.names, waits, strict=True))
    ]
    x = waits_axis(max((one[-1] for one in waits if one), default=1.0))
    about = "Share of the jobs that queued for at most this long, on a scale of powers; up to a second is at the left"
    return line_chart("Queueing time", about, curves, x, share_axis("jobs"))


def _use(content: ReportContent, lines: Sequence[Sequence[Bucket]], start: float, end: float) -> str:
    curves = [
        Curve(name, [(one.time, one.used / one.total) for one in line if one.total], tone)
        for tone, (name, line) in enumerate(zip(content.names, lines, strict=True))
    ]
    about = "Share of the accelerators that jobs held"
    return line_chart("Accelerators in use", about, curves, time_axis(start, end), share_axis("accelerators"))


def _queued(content: ReportContent, lines: Sequence[Sequence[Bucket]], start: float, end: float) -> str:
    curves = [
        Curve(name, [(one.time, one.queued) for one in line], tone)
        for tone, (name, line) in enumerate(zip(content.names, lines, strict=True))
    ]
    most = max((one.queued for line in lines for one in line), default=1.0)
    return line_chart("Jobs waiting", "Jobs in the queues", curves, time_axis(start, end), count_axis(most, "jobs"))


def _shares(content: ReportContent, lines: Sequence[Sequence[Bucket]], start: float, end: float) -> Iterator[str]:
    """One chart per policy; a queue has the same colour in all of them."""
    queues = largest_queues([bucket for line in lines for bucket in line], QUEUES)
    if len(queues) < 2:
        return
    most = max((one.total for line in lines for one in line), default=1.0)
    for name, line in zip(content.names, lines, strict=True):
        layers = [
            Layer(queue or "(none)", [one.by_queue.get(queue, 0.0) for one in line], tone)
            for tone, queue in enumerate(queues)
        ]
        others = [max(0.0, sum(one.by_queue.values()) - sum(one.by_queue.get(q, 0.0) for q in queues)) for one in line]
        if any(others):
            layers.append(Layer("others", others, len(queues)))
        about = "Accelerators that the jobs of each queue held"
        times = [one.time for one in line]
        axes = time_axis(start, end), count_axis(most, "accelerators")
        yield stack_chart(f"Use by queue: {name}", about, times, layers, *axes)


# --- tables and notes -------------------------------------------------------------------------------------------------
def _table(content: ReportContent) -> str:
    made = scroll_table("All figures", ["figure", *content.names], map(_row, rows(content.summaries)))
    return f"<section><h2>In numbers</h2>{made}</section>"


def _row(row: Row) -> str:
    cells = [
        f"<td>{escape(cell)}{f' <small>{ratio_text(ratio)}</small>' if number and ratio is not None else ''}</td>"
        for number, (cell, ratio) in enumerate(zip(row.cells, row.ratios, strict=True))
    ]
    inner = ' class="inner"' if row.label.startswith(" ") else ""
    about = f"<small>{escape(row.about)}</small>" if row.about else ""
    return f'<tr{inner}><th scope="row">{escape(row.label.strip())}{about}</th>{"".join(cells)}</tr>'


def _settings(content: ReportContent) -> str:
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in content.settings)
    return f"<section><h2>What was simulated</h2><dl>{items}</dl></section>"


def _notes(content: ReportContent) -> str:
    notes = list(content.notes)
    if "license" in content.origin:
        notes.append(f"Licence of the trace: {content.origin['license']}")
    if not notes:
        notes = [f"All {count(len(content.results[0].jobs))} rows were in order."]
    return notes_section(notes)
