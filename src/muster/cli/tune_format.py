"""Studies in words, for the terminal and for pages: values, parameters, states, limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from muster.api.numbers import JsonFloat, number
from muster.api.studies import ObjectiveView, ParameterView, ParamValue, StudyHead, StudyStatus, TrialRow
from muster.cli import format
from muster.core.money import MICRO, format_amount

# Of a state, what it means.
STATE_WORDS: Final[Mapping[str, str]] = {
    "queued": "wait in the queue, or start",
    "running": "run",
    "leaving": "save and leave",
    "paused": "have left their place and may go on",
    "complete": "ran to their end",
    "stopped": "were ended early",
    "failed": "ended with an error of their program",
    "infeasible": "need more than there is, or break a constraint that ends them",
    "diverged": "have an objective that is no number",
    "lost": "were ended by the platform, and say nothing of their parameters",
    "replaced": "gave their place to another trial",
}


def value_text(value: JsonFloat | None) -> str:
    """Five digits."""
    return "-" if value is None else f"{number(value):.5g}"


def param_text(value: ParamValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"


def params_text(params: Mapping[str, ParamValue]) -> str:
    return ", ".join(f"{name}={param_text(value)}" for name, value in params.items()) or "no parameters"


def money_text(micros: float, currency: str) -> str:
    """Rounded to cents, unless it is less than one of them."""
    cent = MICRO // 100
    whole = round(micros / cent) * cent
    return format_amount(whole if whole else round(micros), currency)


def goal_text(goal: ObjectiveView) -> str:
    return f"{goal['direction']} {goal['metric']}"


def result_text(row: TrialRow) -> str:
    """The values of a trial, and since which step if it has not ended with them."""
    if row["values"] is None:
        return "-"
    values = ", ".join(map(value_text, row["values"]))
    return values if row["final"] else f"{values} at step {row['step']}"


def state_text(row: TrialRow) -> str:
    broken = f", breaks {' and '.join(row['violated'])}" if row["violated"] else ""
    return f"{row['state']}{broken}"


def origin_text(row: TrialRow) -> str:
    """What suggested a trial, and the trial that it follows from."""
    after = f", of trial {row['of']}" if row["of"] is not None else ""
    after += f", in place of trial {row['replaces']}" if row["replaces"] is not None else ""
    how = f" ({row['origin']}{after})" if row["origin"] != "search" or after else ""
    return f"{row['by'] or '-'}{how}"


def space_text(one: ParameterView) -> str:
    """`0.0001 to 0.1, logarithmic, when model == 'deep'`."""
    if one["kind"] == "choice":
        text = ", ".join(map(param_text, one["choices"]))
    else:
        text = f"{one['low']:g} to {one['high']:g}" + (f" by {one['step']:g}" if one["step"] is not None else "")
    log = ", logarithmic" if one["log"] else ""
    return text + log + (f", when {one['when']}" if one["when"] else "")


def limit_text(used: str, limit: str | None) -> str:
    return used if limit is None else f"{used} of {limit}"


def trials_text(found: StudyStatus) -> str:
    """`60 of 200`, and how many there are besides those that the limit counts: repetitions, and what others replace."""
    one = found["study"]["limits"]["trials"]
    more = found["trials"] - round(one["used"])
    text = limit_text(f"{one['used']:,.0f}", None if one["limit"] is None else f"{one['limit']:,.0f}")
    return f"{text}, and {more:,} more" if more else text


def spent_text(found: StudyStatus) -> str:
    """Of the limit, if there is one. What has no price is no money, and is not called 0."""
    one, currency = found["study"]["limits"]["cost"], found["study"]["currency"]
    if not one["used"] and any(state["seconds"] for state in found["states"]):
        return "nothing that ran has a price"
    if one["limit"] is None:
        return money_text(one["used"], currency)
    return f"{money_text(one['used'], '')} of {money_text(one['limit'], currency)}"


def time_text(head: StudyHead) -> str:
    one = head["limits"]["seconds"]
    return limit_text(format.span(one["used"]), None if one["limit"] is None else format.span(one["limit"]))


def left_text(head: StudyHead) -> str:
    """When the study ends at the pace so far; empty if nothing tells."""
    limits = head["limits"]
    if not limits["ends_in"] or limits["ends_by"] is None:
        return ""
    what = {"trials": "its trials are used up", "cost": "its money is spent", "seconds": "its time is over"}
    return f"about {format.span(limits['ends_in'])} until {what[limits['ends_by']]}, at the pace so far"


def moment_text(moment: float) -> str:
    """In UTC, for files that people in several places read."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def names_text(names: Iterable[str], most: int = 3) -> str:
    """`a, b and 4 more`."""
    listed = list(names)
    more = len(listed) - most
    return ", ".join(listed) if more <= 0 else f"{', '.join(listed[:most])} and {more} more"
