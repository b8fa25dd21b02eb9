"""`muster nodes check` and `muster nodes history`: the checks of a node now, and what happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.text import Text

from muster.api.cluster import NodeCheckView
from muster.cli.connect import client
from muster.cli.output import emit, note, out, show_table, table

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Show at most so many entries.")]
Before = Annotated[int | None, typer.Option(help="Show those before this number, for the page before.")]
_STYLES: Final = {"ok": "green", "failed": "red", "unknown": "dim"}


def check(names: Sequence[str], as_json: bool) -> None:
    with client() as to:
        found = [to.check_node(name) for name in names]
    if as_json:
        emit({"nodes": found})
    else:
        _show_checks(found)
    if any(one["status"] == "failed" for node in found for one in node["findings"]):
        raise typer.Exit(1)


def history(name: str, limit: int, before: int | None, as_json: bool) -> None:
    with client() as to:
        found = to.node_record(name, limit, before)
    if as_json:
        emit(found)
        return
    if not found["entries"]:
        note(f"Nothing is recorded of {name}.")
        return
    made = table("when", "what", "job", "by", "")
    for entry in found["entries"]:
        when = f"{datetime.fromtimestamp(entry['time'], UTC):%Y-%m-%d %H:%M:%S}Z"
        made.add_row(when, entry["kind"], entry["job"], entry["actor"], entry["text"])
    show_table(made)
    if found["next"] is not None:
        note(f"There are older ones: `muster nodes history {name} --before {found['next']}`.")


def _show_checks(found: Sequence[NodeCheckView]) -> None:
    made = table("node", "check", "result", "", "seconds", right=("seconds",))
    for node in found:
        for one in node["findings"]:
            status = Text(one["status"], style=_STYLES[one["status"]])
            made.add_row(Text(node["name"], style="bold"), one["check"], status, one["detail"], f"{one['seconds']:.1f}")
    if made.rows:
        show_table(made)
    for node in found:
        if node["later"]:
            text = f"{node['name']} is checked before the next start there: its engine starts nothing without a job."
            out().print(Text(text))
