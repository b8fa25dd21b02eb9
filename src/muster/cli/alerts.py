"""`muster alerts`: what fires and what to do about it, silences, and the rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown
from rich.text import Text

from muster.api.alerts import AlertView
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.group import bare_lists, group
from muster.cli.node_history import seconds
from muster.cli.output import emit, note, out, show_table, table
from muster.cli.terminal import stdout
from muster.core.errors import Invalid, NotFound
from muster.monitor.alerts.export import grafana_dashboard, prometheus_rules
from muster.monitor.alerts.rule_file import default_text, parse_alert_rules

app = group("Alerts that fire, what to do about each, silences, and the rules.")
_COLOURS = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
_ORDER = {"critical": 0, "warning": 1, "info": 2}


@app.command()
def ls(json: Json = False) -> None:
    """List the alerts that fire or are pending, and the silences."""
    with client() as to:
        found = to.alerts()
    if json:
        emit(found)
        return
    alerts = sorted(found["alerts"], key=lambda one: (one["state"] != "firing", _ORDER[one["severity"]], one["since"]))
    made = table("alert", "state", "severity", "rule", "about", "what", "for", right=("alert", "for"))
    for one in alerts:
        made.add_row(*_cells(one, found["now"]))
    if alerts:
        show_table(made)
        note("`muster alerts show ALERT` says what to do.")
    else:
        note("Nothing fires.")
    if found["silences"]:
        quiet = table("silence", "what", "until", "by", "why")
        for each in found["silences"]:
            parts = [f"{key} {each[key]}" for key in ("rule", "project", "run", "node") if each[key]]
            quiet.add_row(
                each["id"], ", ".join(parts) or "everything", format.clock(each["until"]), each["by"], each["why"]
            )
        show_table(quiet)


bare_lists(app, ls)


@app.command()
def show(
    number: Annotated[int, typer.Argument(metavar="ALERT", help="Its number.", min=1)], json: Json = False
) -> None:
    """Show an alert with its runbook: what it means, where to look, what to type."""
    with client() as to:
        found = to.alert(number)
    if json:
        emit(found)
        return
    alert = found["alert"]
    console = out()
    ends = f", ended {format.clock(alert['resolved_at'])}" if alert["resolved_at"] is not None else ""
    fired = f"since {format.clock(alert['since'])}{ends}"
    console.print(Text.assemble(
        (f"{alert['severity']} ", _COLOURS[alert["severity"]]), (alert["rule"], "bold"),
        f"  {alert['subject']['kind']} {alert['subject']['name']}  {alert['state']}, {fired}",
    ))  # fmt: skip
    console.print(Text(f"{alert['subject']['title']}: {alert['text']}"))
    if alert["acked_at"] is not None:
        said = f": {alert['ack_note']}" if alert["ack_note"] else ""
        console.print(Text(f"{alert['acked_by']} looks after it since {format.clock(alert['acked_at'])}{said}"))
    if alert["muted"]:
        note(f"Nobody is told: {alert['muted']}.")
    for action in found["actions"]:
        console.print(Text(f"action: {action}"))
    console.print(Text(f"owner: {found['owner']}\n"))
    if found["runbook_text"]:
        console.print(Markdown(found["runbook_text"]))
    else:
        console.print(Text(f"runbook: {found['runbook']}"))


@app.command()
def ack(
    number: Annotated[int, typer.Argument(metavar="ALERT", help="Its number.", min=1)],
    text: Annotated[str, typer.Option("--note", help="What you do about it.")] = "",
    json: Json = False,
) -> None:
    """Say that you look after an alert: nobody is reminded of it any more, and its end is still told."""
    with client() as to:
        found = to.acknowledge_alert(number, text)
    if json:
        emit(found)
    else:
        note(f"Alert {number} is acknowledged. `muster alerts silence` keeps its rule quiet altogether.")


@app.command()
def silence(
    rule: Annotated[str, typer.Argument(metavar="[RULE]", help="Only alerts of this rule.")] = "",
    run: Annotated[str, typer.Option(help="Only those of this run.")] = "",
    project: Annotated[str, typer.Option(help="Only those of this project.", autocompletion=complete.projects)] = "",
    node: Annotated[str, typer.Option(help="Only those on this node.", autocompletion=complete.nodes)] = "",
    lasts: Annotated[str, typer.Option("--for", help="For how long.")] = "2h",
    why: Annotated[str, typer.Option(help="Why, for those who wonder.")] = "",
    json: Json = False,
) -> None:
    """Tell nobody of some alerts for a time, and do nothing about them."""
    if not why:
        raise Usage("--why is missing.", "Say in a few words why, as in --why 'planned maintenance'.")
    with client() as to:
        found = to.silence(why, seconds("--for", lasts), rule, project, run, node)
    if json:
        emit(found)
    else:
        note(
            f"Silence {found['id']} lasts until {format.clock(found['until'])}. "
            f"`muster alerts unsilence {found['id']}` ends it."
        )


@app.command()
def unsilence(ident: Annotated[str, typer.Argument(metavar="SILENCE", help="Its id.")], json: Json = False) -> None:
    """End a silence."""
    with client() as to:
        found = to.end_silence(ident)
    if json:
        emit(found)
    else:
        note(f"Silence {ident} has ended.")


@app.command()
def rules(
    yaml: Annotated[bool, typer.Option("--yaml", help="Print the file that was applied.")] = False,
    defaults: Annotated[bool, typer.Option("--defaults", help="Print the default rules, as a file.")] = False,
    json: Json = False,
) -> None:
    """List the rules in force."""
    if defaults:
        stdout().write(default_text())
        return
    with client() as to:
        found = to.alert_rules()
    if json:
        emit(found)
        return
    if yaml:
        stdout().write(found["text"] or "rules: {}\n")
        return
    made = table("rule", "severity", "signal", "fires", "action", "owner")
    for one in found["rules"]:
        severity = Text(one["severity"], style=_COLOURS[one["severity"]])
        made.add_row(
            Text(one["name"], style="bold"),
            severity,
            one["signal"],
            one["condition"],
            one["action"] or "-",
            one["owner"],
        )
    show_table(made)
    told = ", ".join(found["receivers"])
    note(f"Receivers: {told}." if told else "Nobody is told: name receivers in config.toml, see docs/alerts.md.")


@app.command()
def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Alert rules; - reads them from standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Only say what it would change.")] = False,
    json: Json = False,
) -> None:
    """Put a file of alert rules in force over the default ones, all of it or nothing."""
    text = read_rules(file)
    with client() as to:
        found = to.set_alert_rules(text, dry_run=check, source=file)
    if json:
        emit({key: found[key] for key in ("applied", "added", "removed", "changed", "rules")})
        return
    for sign, style, names in (
        ("+", "green", found["added"]), ("-", "red", found["removed"]), ("~", "yellow", found["changed"])
    ):  # fmt: skip
        for name in names:
            out().print(Text(f"{sign} {name}", style=style))
    if not (found["added"] or found["removed"] or found["changed"]):
        note("The rules in force say the same.")
    elif check:
        note(f"{file} is right. Nothing was changed: leave --check out to put it in force.")
    else:
        note("These rules are in force.")


@app.command()
def export(
    what: Annotated[str, typer.Argument(metavar="prometheus|grafana", help="A rules file, or a dashboard.")],
    pages: Annotated[str, typer.Option(help="Where the runbooks are published, for links to them.")] = "",
    json: Json = False,
) -> None:
    """Print the rules in force for Prometheus, or a dashboard for Grafana."""
    if what not in ("prometheus", "grafana"):
        raise Usage(f"{what!r} was given.", "Give `prometheus` or `grafana`.")
    with client() as to:
        text = to.alert_rules()["text"]
    rules = parse_alert_rules(text or {})
    made = prometheus_rules(rules, pages) if what == "prometheus" else grafana_dashboard(rules) + "\n"
    if json:
        emit({"what": what, "text": made})
    else:
        stdout().write(made)


@app.command("test")
def try_rules(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Alert rules; the default ones unless given.")] = "",
    since: Annotated[str, typer.Option(help="How far back.")] = "30d",
    json: Json = False,
) -> None:
    """Say what rules would have raised on what really happened: how often, for whom, and what it would have saved."""
    text = read_rules(file) if file else ""
    with client() as to:
        found = to.try_alert_rules(text, seconds("--since", since), source=file or "The rules")
    if json:
        emit(found)
        return
    numbers = ("fired", "of", "for", "accelerator-hours")
    made = table("rule", "severity", *numbers, "projects", right=numbers)
    fired = sorted((one for one in found["rules"] if one["fired"]), key=lambda one: -one["fired"])
    for one in fired:
        most = sorted(one["projects"].items(), key=lambda pair: -pair[1])
        projects = ", ".join(f"{name} {count}" for name, count in most[:3])
        severity = Text(one["severity"], style=_COLOURS[one["severity"]])
        hours = f"{one['accelerator_hours']:,.1f}"
        cells = (str(one["fired"]), str(one["subjects"]), format.span(one["seconds"]), hours)
        made.add_row(Text(one["rule"], style="bold"), severity, *cells, projects)
    if fired:
        show_table(made)
        for one in fired:
            for line in one["first"][:2]:
                out().print(Text.assemble((f"{one['rule']}: ", "bold"), line))
    quiet = [one["rule"] for one in found["rules"] if not one["fired"]]
    if quiet:
        note(f"Would not have fired: {', '.join(quiet)}.")
    note(f"Can't be told from what is kept: {', '.join(found['unknown'])}.")
    note(f"{found['events']:,} events and the metrics of {found['runs']} runs were replayed.")
    if not found["whole"]:
        until = format.clock(found["until"])
        note(f"It took too long: only the time until {until} was replayed. Give a shorter --since.")


def _cells(one: AlertView, now: float) -> list[Text]:
    subject = one["subject"]
    about = subject["name"] if subject["title"] == subject["name"] else f"{subject['name']} {subject['title']}"
    dim = "dim" if one["muted"] or one["state"] != "firing" else ""
    seen = f"; {one['acked_by']} looks after it" if one["acked_at"] is not None else ""
    what = f"{one['text']}{seen}{'; ' + one['muted'] if one['muted'] else ''}"
    return [
        Text(str(one["number"] or "-"), style=dim),
        Text("muted" if one["muted"] else one["state"], style=dim),
        Text(one["severity"], style=dim or _COLOURS[one["severity"]]),
        Text(one["rule"], style=dim or "bold"),
        Text(about, style=dim),
        Text(what, style=dim),
        Text(format.span(max(0.0, now - one["since"])), style=dim),
    ]


def read_rules(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).expanduser().read_text()
    except FileNotFoundError:
        raise NotFound(f"There is no file {file}.", "`muster alerts rules --defaults` prints an example.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} can't be read: {error}.", "Name a file of alert rules.") from None
