"""`muster runs show`: everything that was captured of a run, and one of its curves."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from muster.api.goodput import HeldTime
from muster.api.jobs import JobSummary
from muster.api.numbers import number
from muster.api.runs import RunAttempt, RunDetail, RunPage
from muster.api.words import is_measurement
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.live_screen import EVERY, watch_screen
from muster.cli.output import emit, out, phase_text, show_table, table
from muster.cli.overlay import curves, draw_curves
from muster.cli.runs_goodput import share_line, start_line
from muster.client import Client, Run
from muster.core.money import MICRO, format_amount

_SHOWN = 12  # maximum parameters, attempts and so on; the rest is only counted
_NOTES = 5
_PAGE_NOTES = 1000  # a page has the newest

Row = tuple[str, Text]


def show(
    ref: Annotated[str, typer.Argument(metavar="RUN", help="Id, number or name.", autocompletion=complete.jobs)],
    curve: Annotated[str | None, typer.Option("--curve", help="Draw this metric.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="With --curve: draw it again as it grows, until the run has ended.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Every parameter, package, attempt and note.")
    ] = False,
    json: Json = False,
) -> None:
    """Show everything that was captured of a run: what it was given, where it ran, and what came out."""
    if follow and (curve is None or json):
        raise Usage("--follow goes with --curve, and not with --json.", "Name the metric: --curve loss --follow.")
    with client() as to:
        if follow and curve is not None:
            _follow(to, ref, curve)
            return
        page = to.run_page(ref)
        run = Run.from_view(page["run"], to)
        if (json or everything) and len(page["notes"]) >= _PAGE_NOTES:
            page["notes"] = list(to.notes(run.id))
        if json:
            more = {name: value for name, value in page.items() if name not in ("run", "attempts")}
            emit({**page["run"], "attempts_of": page["attempts"], **more})
            return
        _print(run, page, page.get("goodput"), everything)
        if curve is not None:
            draw_curves([run], curve)


def _follow(to: Client, ref: str, curve: str) -> None:
    """The curve and a line of the run's progress above it, drawn again until the run has ended."""
    first = to.run(ref)

    def look() -> tuple[Group, bool]:
        run = to.run(first.id)
        head = Text.assemble((run.id, "bold"), " ", phase_text(run.phase), "  ")
        if run.source == "job":
            head.append(format.progress_line(to.job(run.id).progress))
        plot, notes = curves([run], curve, min(out().width, 120))
        below = plot if plot is not None else Text("\n".join([*notes, "No values yet."]), style="dim")
        return Group(head, below), run.final

    watch_screen(look, EVERY, keep=True)


def _print(run: Run, page: RunPage, ledger: HeldTime | None, everything: bool) -> None:
    screen = out()
    screen.print(Text.assemble((run.id, "bold"), " ", phase_text(run.phase), _lasted(run, page["attempts"])))
    card = Table.grid(padding=(0, 2))
    card.add_column(style="dim")
    card.add_column(overflow="fold")
    most = 10_000 if everything else _SHOWN
    raw = page["run"]
    facts, code, environment = _facts(run, raw), _code(raw), _environment(raw, everything)
    took = _took(page["summary"], ledger)
    for part in (facts, code, environment, _values(run, most), took, _happened(page, most)):
        for name, value in part:
            card.add_row(f"  {name}", value)
    screen.print(card, soft_wrap=False)
    _print_metrics(raw, everything)
    for entry in page["notes"] if everything else page["notes"][-_NOTES:]:
        head = f"  {format.clock(entry['time'])}  {entry['author']}  "
        screen.print(Text.assemble((head, "dim"), entry["text"]))


def _lasted(run: Run, attempts: list[RunAttempt]) -> str:
    if run.started_at is None:
        return ""
    if not run.final or run.ended_at is None:
        return f" for {format.span(time.time() - run.started_at)}"
    # A script's own run waits for nothing.
    begun = run.created_at if attempts else run.started_at
    return f" {format.lasted(attempts, begun, run.started_at, run.ended_at)}"


def _facts(run: Run, raw: RunDetail) -> Iterable[Row]:
    doc = raw["doc"]
    if run.problems:
        yield "invalid", Text(f"it lacks {', '.join(run.problems)}", style="red")
    if reason := doc.get("reason"):
        yield "why", Text(reason["message"] if isinstance(reason, dict) else str(reason))
    if run.purpose:
        yield "purpose", Text(run.purpose)
    kind = "" if run.source == "job" else f", from {run.source}"
    yield "of", Text(f"{run.user}, project {run.project}, kind {run.kind}{kind}")
    moments = [("created", run.created_at), ("started", run.started_at), ("ended", run.ended_at)]
    yield "when", Text(", ".join(f"{name} {format.clock(at)}" for name, at in moments if at is not None))
    if command := doc.get("command"):
        yield "command", Text(str(command))
    if folder := doc.get("workdir"):
        yield "folder", Text(str(folder))
    if missing := format.output_kept(raw["output"]):
        yield "output", Text(missing, style="yellow")
    if run.parent:
        yield "part of", Text(run.parent)
    for name in ("template", "origin"):
        if found := doc.get(name):
            yield name, Text(str(found))


def _took(summary: JobSummary | None, ledger: HeldTime | None) -> Iterable[Row]:
    """What the run used of the cluster, and how much of that made progress."""
    if summary is None or not summary["attempts"]:
        return
    cost = summary["cost"]
    goodput = f", goodput {summary['goodput']:.0%}" if summary["goodput"] is not None else ""
    yield "took", Text(f"{format.span(summary['seconds_total'])}, {format.span(cost['startup'])} to start{goodput}")
    used = f"{cost['accelerator_hours']:.3g} accelerator-hours, " if cost["accelerator_hours"] else ""
    amount = f", {format_amount(round(cost['amount'] * MICRO), cost['currency'])}" if cost["amount"] else ""
    yield "used", Text(f"{used}{cost['node_hours']:.3g} node-hours{amount}")
    if ledger is not None:
        yield "goodput", Text(share_line(ledger))
        if start := start_line(ledger):
            yield "start", Text(start)


def _code(raw: RunDetail) -> Iterable[Row]:
    code = raw["doc"].get("code") or {}
    origin = raw["code"]
    if origin["commit"]:
        dirty = ", with changes that were not committed" if origin["dirty"] else ""
        yield "code", Text(f"{origin['commit'][:12]} on {origin['branch'] or 'no branch'}{dirty}")
    if tree := origin["tree"]:
        size = f", {code['files']:,} files, {format.size(code['bytes'])}" if code.get("files") else ""
        yield "snapshot", Text(f"{tree[:12]}{size}")
    for text in code.get("notes", ()):
        yield "", Text(text, style="yellow")
    for one in raw["inputs"]:
        digest = f"  {one['digest'][:16]}" if one.get("digest") else ""
        yield "data", Text(f"{one['ref'].removeprefix('data:')}{digest}")


def _environment(raw: RunDetail, everything: bool) -> Iterable[Row]:
    found = raw["doc"].get("environment") or {}
    python, host, packages = found.get("python") or {}, found.get("host") or {}, found.get("packages") or {}
    if python:
        yield "python", Text(f"{python.get('version', '')}  {python.get('executable', '')}")
    if packages:
        shown = packages.items() if everything else ()
        listed = ": " + ", ".join(f"{name} {version}" for name, version in sorted(shown)) if everything else ""
        yield "packages", Text(f"{len(packages)}{listed}")
    if vulnerable := raw.get("vulnerable"):
        named = [f"{one['package']} {one['version']} ({one['advisory']})" for one in vulnerable]
        more = f" and {len(named) - 5} more" if len(named) > 5 and not everything else ""
        listed = ", ".join(named if everything else named[:5])
        yield "vulnerable", Text(f"{listed}{more}; see `muster environment check {raw['id']}`", style="red")
    for name in ("image", "driver"):
        if found.get(name):
            yield name, Text(str(found[name]))
    if devices := found.get("devices"):
        yield "devices", Text(", ".join(str(one.get("name", one) if isinstance(one, dict) else one) for one in devices))
    if host:
        memory = f", {format.size(host['memory'])}" if isinstance(host.get("memory"), int | float) else ""
        yield "machine", Text(f"{host.get('name', '')}  {host.get('cpus', '')} x {host.get('cpu', 'cpu')}{memory}")
    if seeds := found.get("seeds"):
        yield "seeds", Text(", ".join(f"{name} {value}" for name, value in seeds.items()))


def _values(run: Run, most: int) -> Iterable[Row]:
    for title, values in (("params", run.params), ("tags", run.tags)):
        for i, (name, value) in enumerate(sorted(values.items())[:most]):
            yield title if not i else "", Text.assemble((name, "bold"), f" = {value}")
        if len(values) > most:
            yield "", Text(f"and {len(values) - most} more; --all shows them", style="dim")


def _happened(page: RunPage, most: int) -> Iterable[Row]:
    for i, attempt in enumerate(page["attempts"][-most:]):
        yield "attempts" if not i else "", Text(_attempt(attempt))
    for one in page["checkpoints"]:
        if taken := one.get("taken_from"):
            yield "starts from", Text(taken)
    if kept := [one for one in page["checkpoints"] if not one.get("gone_at")]:
        last = kept[-1]
        text = f"{len(kept)}, the last at step {last['step']}, {format.size(last['bytes'])}: {last['path']}"
        yield "checkpoints", Text(text)
    for i, change in enumerate(page["changes"][-most:]):
        text = f"{change['space']}.{change['key']}: {change['old']} → {change['new']} by {change['actor']}"
        yield "changed" if not i else "", Text(text, style="yellow")
    if files := page["artifacts"]:
        number = "1 file" if len(files) == 1 else f"{len(files):,} files"
        yield "artifacts", Text(f"{number}, {format.size(sum(one['bytes'] for one in files))}")


def _attempt(attempt: RunAttempt) -> str:
    parts = [str(attempt["attempt"])]
    if nodes := attempt.get("nodes"):
        parts.append(f"on {', '.join(map(str, nodes))}")
    begun = attempt.get("running_at") or attempt.get("planned_at") or attempt.get("started_at")
    if begun and attempt.get("ended_at"):
        parts.append(f"for {format.span(attempt['ended_at'] - begun)}")
    if attempt.get("first_step") is not None:
        parts.append(f"from step {attempt['first_step']}")
    if outcome := attempt.get("outcome"):
        parts.append(str(outcome))
    if isinstance(reason := attempt.get("reason"), dict) and reason.get("code") != "completed":
        parts.append(f"({reason['message']})")
    return " ".join(parts)


def _print_metrics(raw: RunDetail, everything: bool) -> None:
    found = raw["summaries"]
    names = [name for name in found if everything or is_measurement(name)]
    if not names:
        return
    made = table(
        "metric",
        "last",
        "at step",
        "lowest",
        "highest",
        "points",
        right=("last", "at step", "lowest", "highest", "points"),
    )
    for name in names:
        one = found[name]
        last, low, high = (_number(one[key]) for key in ("last", "low", "high"))
        made.add_row(Text(name, style="bold"), last, str(one["last_step"]), low, high, f"{one['points']:,}")
    show_table(made)


def _number(value: Any) -> str:
    return "-" if value is None else f"{number(value):.5g}"
