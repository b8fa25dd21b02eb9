"""The output of `muster sim`: the comparison as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from muster.cli.output import note, out, show_table, table
from muster.sim.compare import Compared
from muster.sim.model import Cluster
from muster.sim.report import ReportContent
from muster.sim.summary import Summary
from muster.sim.table import ratio_text, rows
from muster.sim.traces import Trace
from muster.sim.verdicts import document as verdicts


def show(story: ReportContent, trace: Trace, report_path: str | None) -> None:
    for words in story.notes:
        note((words, "yellow"))
    out().print(Text(story.title, style="bold"))
    show_table(comparison(story))
    if any(result.setup.alerts is not None for result in story.results):
        show_table(_alerts(story))
    if "license" in story.origin:
        note((f"Trace: {story.origin.get('trace', trace.ledger.source)}. {story.origin['license']}", "dim"))
    if report_path:
        note(f"Report: {report_path}")


def comparison(story: ReportContent) -> Table:
    """One column per policy; ratios are to the first."""
    names = story.names
    made = table("", *names, right=tuple(names))
    for row in rows(story.summaries):
        cells = []
        for number, (cell, ratio) in enumerate(zip(row.cells, row.ratios, strict=True)):
            times = f" {ratio_text(ratio):>6}" if number and ratio is not None else ""
            cells.append(Text.assemble(cell, (times, "dim")))
        made.add_row(Text(row.label), *cells)
    return made


def _alerts(story: ReportContent) -> Table:
    """How often each rule fired, under each policy."""
    names = story.names
    made = table("alerts", *names, right=tuple(names))
    for rule in sorted({name for result in story.results for name, times in result.alerts.items() if times}):
        made.add_row(Text(rule), *(Text(f"{result.alerts.get(rule, 0):,}") for result in story.results))
    return made


def document(story: ReportContent, trace: Trace, compared: Compared) -> dict[str, Any]:
    """The comparison for programs; times are in seconds."""
    ledger = trace.ledger
    return {
        "trace": {
            "source": ledger.source,
            "format": trace.format,
            "rows": ledger.rows,
            "bad": {reason: asdict(tally) for reason, tally in ledger.bad.items()},
            "left_out": ledger.left_out,
            **({"origin": story.origin} if story.origin else {}),
        },
        "settings": dict(story.settings),
        "notes": story.notes,
        "comparison": verdicts(compared, story.names),
        "policies": [
            {
                "name": result.setup.name,
                "oracle": result.setup.exact,
                "cluster": _cluster(result.setup.cluster),
                "rules": result.setup.rules.model_dump(mode="json", exclude_defaults=True),
                "figures": asdict(summary),
                "ratios": _ratios(summary, story.summaries[0]),
                **({"alerts": result.alerts} if result.setup.alerts is not None else {}),
            }
            for result, summary in zip(story.results, story.summaries, strict=True)
        ],
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return {"pools": [asdict(pool) for pool in cluster.pools], "bound": cluster.bound}


def _ratios(one: Summary, base: Summary) -> dict[str, float | None]:
    """Ratios to the first policy."""
    pairs = {
        "completion_mean": (one.completion.mean, base.completion.mean),
        "completion_median": (one.completion.median, base.completion.median),
        "completion_p99": (one.completion.p99, base.completion.p99),
        "queueing_mean": (one.queueing.mean, base.queueing.mean),
        "queueing_p99": (one.queueing.p99, base.queueing.p99),
        "queueing_p999": (one.queueing.p999, base.queueing.p999),
    }
    return {name: mine / its if mine is not None and its else None for name, (mine, its) in pairs.items()}
