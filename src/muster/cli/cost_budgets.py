"""`muster cost budget` and `muster cost grant`: how much money may be spent, and by whose jobs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.text import Text

from muster.api.cost import BudgetView
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.group import bare_lists, group
from muster.cli.output import emit, note, out, show_table, table
from muster.core.money import format_amount

budget = group("How much the jobs of a project, a family, an environment or a user may cost.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the budget.")]
_NUMBERS = ("limit", "used", "committed", "left", "forecast")


@budget.command()
def ls(json: Json = False) -> None:
    """List the budgets that you can see, each in its present period."""
    with client() as to:
        found = to.budgets()
    if json:
        emit({"budgets": found})
    elif not found:
        note("There are no budgets that you can see. `muster cost budget set` makes one.")
    else:
        made = table("name", "for", "period", "mode", *_NUMBERS, right=_NUMBERS)
        for one in found:
            made.add_row(Text(one["name"], style="bold"), _scope(one), one["period"] or "-", one["mode"], *_cells(one))
        show_table(made)
        told = "used: spent, with what running jobs have cost so far; committed: what unfinished jobs may cost in all"
        note((told, "dim"))


bare_lists(budget, ls)


@budget.command("set")
def set_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the budget, new or known.")],
    amount: Annotated[str, typer.Option(help="How much, such as `5000 USD`.")],
    project: Annotated[str, typer.Option("--project", "-p", autocompletion=complete.projects)] = "",
    family: Annotated[str, typer.Option(help="Model family: tag `family` of jobs, or by the price book.")] = "",
    environment: Annotated[str, typer.Option(help="Tag `environment` of jobs, or by the price book.")] = "",
    user: Annotated[str, typer.Option(help="Who submits the jobs.")] = "",
    per: Annotated[str, typer.Option(help="`month` or `week`, by the price book's time zone.")] = "",
    since: Annotated[str, typer.Option("--from", help="First day of a fixed budget, such as 2026-11-01.")] = "",
    until: Annotated[str, typer.Option("--until", help="Its last day.")] = "",
    mode: Annotated[
        Literal["soft", "hard", "stop"],
        typer.Option(help="soft warns; hard refuses jobs that are not covered; stop also stops running ones."),
    ] = "hard",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would follow.")] = False,
    json: Json = False,
) -> None:
    """Set a budget. With several of --project, --family, --environment and --user, all of them must match."""
    if per and (since or until):
        raise Usage("--per and --from or --until are given.", "A budget is for each month or week, or for fixed days.")
    if per not in ("", "month", "week"):
        raise Usage(f"--per: got {per!r}.", "Expected month or week.")
    per = "fixed" if since or until else per or "month"
    scope = {"project": project, "family": family, "environment": environment, "user": user}
    with client() as to:
        made = to.set_budget(name, amount, **scope, per=per, first=since, last=until, mode=mode, dry_run=dry_run)
    if json:
        emit(made)
        return
    word = "would be" if dry_run else "is"
    limit = format_amount(made["amount"], made["currency"])
    when = f"from {since} to {until}" if per == "fixed" else f"each {per}"
    out().print(Text(f"budget {name} {word} {limit} {when}, {mode}, for {_scope(made)}"))
    for warning in made["warnings"]:
        note((warning, "yellow"))


@budget.command()
def rm(name: Name, json: Json = False) -> None:
    """Remove a budget."""
    with client() as to:
        gone = to.remove_budget(name)
    if json:
        emit(gone)
    else:
        out().print(Text(f"budget {name} is removed"))


def grant(
    name: Name,
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="How much more, such as `500 USD`.")],
    reason: Annotated[str, typer.Option(help="Why; it is in the event log.")],
    json: Json = False,
) -> None:
    """Grant a budget more money, for its present period."""
    with client() as to:
        made = to.grant(name, amount, reason)
    if json:
        emit(made)
        return
    limit, left = (format_amount(made[key], made["currency"]) for key in ("limit", "left"))
    out().print(Text(f"budget {name} has {limit} in {made['period']}, of which {left} is left"))


def _scope(one: BudgetView) -> str:
    return ", ".join(f"{part} {value}" for part, value in one["scope"].items()) or "all jobs"


def _cells(one: BudgetView) -> list[Text]:
    def money(amount: int | None) -> str:
        return "-" if amount is None else format_amount(amount)

    spent = "red" if one["used"] >= one["limit"] else ""
    over = "yellow" if (one["forecast"] or 0) > one["limit"] else ""
    return [
        Text(format_amount(one["limit"], one["currency"])),
        Text(money(one["used"]), style=spent),
        Text(money(one["committed"])),
        Text(money(one["left"])),
        Text(money(one["forecast"]), style=over),
    ]
