"""`muster nodes --history`: the use of pools over time, as bars and in a sentence, for capacity planning."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from muster.api.history import Figures, HistoryView, PoolHistory
from muster.cli import format
from muster.cli.call import Usage
from muster.cli.connect import client
from muster.cli.output import emit, note, out, show_table, table
from muster.cli.terminal import stdout
from muster.core.units import InvalidValue, parse_duration

Doc = Mapping[str, Any]

History = Annotated[bool, typer.Option("--history", help="Show use, queue depth and waits over time instead.")]
Pool = Annotated[str | None, typer.Option(help="Only this pool.")]
Since = Annotated[str | None, typer.Option(help="With --history: how far back. 90d unless given.")]
Every = Annotated[str | None, typer.Option(help="With --history: one bar, or row, for each 15m, 1d, ...; or auto.")]
Csv = Annotated[bool, typer.Option("--csv", help="With --history: print CSV, for a spreadsheet.")]

_WIDTH: Final = 60  # characters for bars
_ALL: Final = "all pools"


def show(pool: str | None, since: str | None, every: str | None, as_csv: bool, as_json: bool) -> None:
    if as_csv and as_json:
        raise Usage("--csv and --json were given.", "Give one of them.")
    with client() as to:
        found = to.node_history(pool, seconds("--since", since or "90d"), _step(every))
    if as_json:
        emit(found)
    elif as_csv:
        _write_csv(found["pools"])
    elif not found["pools"]:
        note("Nothing is recorded of that time: the server writes it down once a minute while it runs.")
    else:
        _draw(found)
    if not as_json and found["kept"] is not None and found["now"] - found["since"] > found["kept"]:
        note(f"Buckets as short as this are kept for {found['kept'] // 86400} days; `--every 1d` goes back further.")


def seconds(option: str, text: str) -> float:
    """The seconds of a duration option: at least a minute, at most a century."""
    try:
        found = parse_duration(text)
    except InvalidValue:
        found = 0.0
    if not 60 <= found <= 3_153_600_000:
        raise Usage(f"{option} is {text!r}.", "Expected a duration of a minute or more, such as 6h, 7d or 90d.")
    return found


def sentence(pool: str, figures: Figures) -> str:
    """The figures as a sentence."""
    devices, queued, waits = figures["accelerators"], figures["queued"], figures["waits"]
    parts = []
    if devices["share"] is not None:
        parts.append(f"{devices['share']:.0%} of the accelerators in use on average")
    elif figures["cpus"]["share"] is not None:
        parts.append(f"{figures['cpus']['share']:.0%} of the CPUs in use on average")
    if queued["most_accelerators"]:
        asked, free = queued["most_accelerators"], queued["free_then"]
        ratio = (
            f"{asked / free:.1f} accelerators asked for per free one"
            if free
            else f"{asked:g} accelerators asked for and none free"
        )
        parts.append(f"{ratio} at peak")
    if waits["count"]:
        parts.append(f"p90 wait {format.span(waits['p90'])} over {waits['count']} starts")
    if figures["usable_share"] is not None:
        parts.append(f"{figures['usable_share']:.0%} of what was free could take a typical gang")
    return f"{pool or _ALL}: {', '.join(parts) or 'nothing is known'}"


def _step(every: str | None) -> int | None:
    if every is None or every == "auto":
        return None
    step = seconds("--every", every)
    if step % 60:
        raise Usage(f"--every is {every!r}.", "Expected whole minutes, such as 15m, 1h or 1d, or auto.")
    return int(step)


def _draw(found: HistoryView) -> None:
    shown = _worth_showing(found["pools"])
    first = min(bucket["start"] for pool in shown for bucket in pool["buckets"])
    made = table(
        "pool", "", f"from {_moment(first)} to {_moment(found['now'])}", "mean", "most", right=("mean", "most")
    )
    for pool in shown:
        places = {bucket["start"]: bucket for bucket in pool["buckets"]}
        line = [places.get(start) for start in range(first, int(found["now"]) + 1, found["every"])]
        for index, row in enumerate(_rows(pool["summary"], line)):
            made.add_row(Text("" if index else pool["pool"] or _ALL, style="bold"), *row)
    show_table(made)
    for pool in shown:
        out().print(Text(sentence(pool["pool"], pool["summary"])))


def _worth_showing(pools: Sequence[PoolHistory]) -> list[PoolHistory]:
    """The entry of all pools comes last. It is left out if there is only one pool and all figures are the same."""
    named = [pool for pool in pools if pool["pool"]]
    if len(named) == 1 and all(pool["summary"] == named[0]["summary"] for pool in pools):
        return named
    return named + [pool for pool in pools if not pool["pool"]]


def _rows(summary: Doc, line: Sequence[Doc | None]) -> Iterator[tuple[str, Text, str, str]]:
    """Name, bars, mean and maximum of each figure that the pool has."""
    for kind, words in (("accelerators", "accelerators in use"), ("cpus", "CPUs in use")):
        if summary[kind]["share"] is not None:
            most = f"{summary[kind]['most_used']:.4g}"
            yield words, _line([_at(b, kind, "share") for b in line], 1.0), f"{summary[kind]['share']:.0%}", most
    for kind, words in (("jobs", "jobs queued"), ("accelerators", "accelerators asked for")):
        if kind == "jobs" or summary["queued"][f"most_{kind}"]:
            mean, most = (f"{summary['queued'][name] or 0:.3g}" for name in (kind, f"most_{kind}"))
            yield words, _line([_at(b, "queued", kind) for b in line]), mean, most
    waits = summary["waits"]
    if waits["count"]:
        yield (
            "wait, mean",
            _line([_at(b, "waits", "mean") for b in line]),
            format.span(waits["mean"]),
            format.span(waits["longest"]),
        )
        for name in ("p50", "p90"):
            yield f"wait, {name}", _line([_at(b, "waits", name) for b in line]), format.span(waits[name]), ""
    if summary["usable_share"] is not None:
        shares = [bucket["usable_share"] if bucket is not None else None for bucket in line]
        yield "free for a typical gang", _line(shares, 1.0), f"{summary['usable_share']:.0%}", ""


def _at(bucket: Doc | None, kind: str, name: str) -> float | None:
    return bucket[kind][name] if bucket is not None else None


def _line(values: Sequence[float | None], top: float | None = None) -> Text:
    """The values as bars; means of several values if there are more than fit."""
    several = -(-len(values) // _WIDTH)
    parts = [[v for v in values[at : at + several] if v is not None] for at in range(0, len(values), several)]
    means = [sum(part) / len(part) if part else None for part in parts]
    highest = max((mean for mean in means if mean is not None), default=0.0)
    return Text(format.bars(means, highest if top is None else top), style="cyan")


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}Z"


def _write_csv(pools: Sequence[PoolHistory]) -> None:
    rows = [_flat({"pool": pool["pool"], **bucket}) for pool in pools for bucket in pool["buckets"]]
    names = list(rows[0]) if rows else []
    writer = csv.writer(stdout(), lineterminator="\n")
    writer.writerows(chain([names], ([row[name] for name in names] for row in rows)))


def _flat(bucket: Doc) -> dict[str, Any]:
    """One level: `waits_p90` for what is under `waits`; times as ISO 8601; empty if not known."""
    flat: dict[str, Any] = {}
    for name, value in bucket.items():
        flat |= (
            {f"{name}_{inner}": found for inner, found in value.items()} if isinstance(value, dict) else {name: value}
        )
    flat["start"] = f"{datetime.fromtimestamp(flat['start'], UTC):%Y-%m-%dT%H:%M:%SZ}"
    return flat
