"""`muster cost explain`: the events, prices and arithmetic that an amount is made of, and who pays it."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer
from rich.text import Text

from muster.api.cost_reports import CostEntry
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.cost_report import Project, notes
from muster.cli.output import emit, note, out
from muster.core.errors import NotAllowed
from muster.core.money import format_amount


def explain(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run's id, number or name.", autocompletion=complete.jobs)
    ] = None,
    project: Project = None,
    day: Annotated[str | None, typer.Option(help="Only of this day, such as 2026-11-18.")] = None,
    pool: Annotated[str | None, typer.Option(help="Only of this pool.")] = None,
    account: Annotated[str | None, typer.Option(help="Only this account: project, platform, idle, storage.")] = None,
    limit: Annotated[int, typer.Option(help="Entries.", min=1, max=1000)] = 100,
    json: Json = False,
) -> None:
    """Show the entries that an amount is made of: event, time, price, arithmetic, and who pays and why."""
    if run is None and project is None and day is None and pool is None:
        raise Usage("Nothing says which entries.", "Give a run, --project, --pool or --day.")
    with client(timeout=120) as to:
        found = to.explain_cost(run, project=project, pool=pool, account=account, day=day, limit=limit)
        if run is not None and not found["entries"]:  # perhaps a number or a name; a token of finance can't ask
            with suppress(NotAllowed):
                known = to.run(run).id
                found = to.explain_cost(known, project=project, pool=pool, account=account, day=day, limit=limit)
    if json:
        emit(found)
        return
    before = ""
    for one in found["entries"]:
        about = f"{one['run']} attempt {one['attempt']}" if one["run"] else one["pool"] or one["project"]
        if about != before:
            out().print(Text(about, style="bold"))
        before = about
        out().print(_line(one))
    for total in found["totals"]:
        count = "1 entry" if total["entries"] == 1 else f"{total['entries']:,} entries"
        out().print(Text(f"{format_amount(total['amount'], total['currency'])} in {count}", style="bold"))
    if not found["entries"]:
        note("There are no entries. What still runs is charged when it ends: `muster cost` shows it as pending.")
    if found["next"] is not None:
        note("There are more entries; --limit shows them, or --json with `next`.")
    notes(found["notes"])


def _line(one: CostEntry) -> Text:
    book = f"price book {one['book']}" if one["book"] else "prices of the policy"
    return Text.assemble(
        f"  {one['day']}  ", one["words"], (f"  {one['paid_by']}; {book}, event {one['seq']}", "dim")
    )  # fmt: skip
