"""Parses a file of alert rules into a `RuleSet`, or into one error with every mistake in it.

    groups: {wait: 30s, interval: 5m, repeat: 4h}
    rules:
      device-idle: {below: 40%}              # changes one of the default rules
      job-waits: {enabled: false}            # switches one off
      my-own:                                # a new one has all of these
        signal: data_wait
        above: 30%
        for: 10m
        owner: vision team
        runbook: data-stall
        examples: {fires: 50% x12, quiet: 10% x12}

A rule whose examples do not do what they say is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast
from urllib.parse import urlsplit

from muster.core import units
from muster.core.document import Sort, read_document
from muster.core.field_reader import FieldReader, parse_file
from muster.core.fields import as_text
from muster.core.report import At, Report, is_null, shown
from muster.core.suggest import did_you_mean
from muster.monitor.alerts.rule import ACTIONS, KEEP, SEVERITIES, Action, Example, Groups, Rule, RuleSet, Scope
from muster.monitor.alerts.runbooks import runbooks
from muster.monitor.alerts.signals import SIGNALS
from muster.monitor.alerts.track import fires

FILE: Final = Sort("alert rules", "a mapping such as `{rules: {device-idle: {below: 40%}}}`", "rules: {}")
HINT: Final = "Correct each and apply the file again; the rules in force stay as they are."
RULES_MAX: Final = 500
VALUES_MAX: Final = 10_000  # of an example
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TIMES: Final = re.compile(r"(.+?)\s*[x×*]\s*([0-9]{1,5})")
_DURATION: Final = "a duration such as `10m`"
_KEYS: Final = (
    "signal", "above", "below", "for", "keep", "severity", "owner", "runbook", "scope", "notify", "action", "inhibits",
    "examples", "enabled",
)  # fmt: skip
_EXAMPLES: Final = "`{fires: 20% x11, quiet: 90% x11, every: 1m}`"


def parse_alert_rules(
    text: str | bytes | Mapping[str, Any], *, source: str = "The rules", receivers: Collection[str] | None = None
) -> RuleSet:
    """The default rules with the changes of this file. Raises SpecError with all problems at once.

    `receivers`: the names that `notify` may use; None: any.
    """

    def read(raw: Mapping[str, Any], report: Report) -> RuleSet:
        reader = _Reader(report, receivers=receivers)
        base = _default_texts()
        found = RuleSet(reader.rules(reader.mapping(raw.get("rules"), ("rules",)), base), reader.groups(raw))
        reader.refuse(raw, ("groups", "rules"), ())
        return found

    return parse_file(text, FILE, source, HINT, read)


@cache
def default_rules() -> RuleSet:
    return parse_alert_rules({})


def default_text() -> str:
    return (files("muster.monitor.alerts") / "defaults.yaml").read_text()


@cache
def _default_texts() -> Mapping[str, Mapping[str, Any]]:
    report = Report()
    raw = read_document(default_text(), report, FILE)
    assert not report.found
    return cast("Mapping[str, Mapping[str, Any]]", raw["rules"])


@dataclass(slots=True)
class _Reader(FieldReader):
    """Reads as much as it can, and reports what it can't."""

    receivers: Collection[str] | None = None

    def rules(self, raw: Mapping[str, Any], base: Mapping[str, Mapping[str, Any]]) -> dict[str, Rule]:
        names = [*base, *(name for name in raw if name not in base)]
        if len(names) > RULES_MAX:
            self.report.stop("rules", f"{len(names)} rules", f"at most {RULES_MAX}", "Write fewer rules.")
        made: dict[str, Rule] = {}
        for name in names:
            at = ("rules", name)
            given = self.mapping(raw.get(name), at)
            if not _NAME.fullmatch(name):
                self.add(at, shown(name), "a name of lower-case letters, digits and hyphens", "Rename the rule.")
            elif self.value({**base.get(name, {}), **given}, "enabled", at, units.parse_flag, "yes or no", True):
                rule = self.rule(name, {**base.get(name, {}), **given}, at)
                made |= {name: rule} if rule is not None else {}
        for name, rule in made.items():
            if other := next((one for one in rule.inhibits if one in made and name in made[one].inhibits), None):
                hint = "Keep one of the two, so that one of them is told."
                self.add(("rules", name, "inhibits"), f"{other}, which inhibits {name}", "another rule", hint)
            self.known(rule.inhibits, names, ("rules", name, "inhibits"), "the name of a rule")
        return made

    def rule(self, name: str, raw: Mapping[str, Any], at: At) -> Rule | None:
        before = len(self.report.found)
        self.refuse(raw, _KEYS, at)
        signal = self.choice(raw, "signal", at, SIGNALS)
        unit = SIGNALS[signal].unit if signal in SIGNALS else None
        number = _PARSE.get(unit, units.parse_number) if unit is not None else _any_number
        above = self.value(raw, "above", at, number, _EXPECTED.get(unit or "", "a number"), None)
        below = self.value(raw, "below", at, number, _EXPECTED.get(unit or "", "a number"), None)
        if (above is None) == (below is None) and not {(*at, "above"), (*at, "below")} & self.wrong:
            given = "both `above` and `below`" if above is not None else "neither `above` nor `below`"
            self.add(at, given, "one of the two", "Write the threshold, such as `above: 20%`.")
        hold = self.value(raw, "for", at, units.parse_duration, _DURATION, 0.0)
        keep = self.value(raw, "keep", at, units.parse_duration, _DURATION, KEEP)
        severity = self.choice(raw, "severity", at, SEVERITIES, "warning")
        owner = self.text(raw, "owner", at, "who answers for the rule", "owner: platform team")
        runbook = self.runbook(raw, at)
        scope, action = self.scope(raw, at), self.action(raw, at)
        notify, inhibits = self.names(raw, "notify", at), self.names(raw, "inhibits", at)
        if self.receivers is not None:
            self.known(notify, self.receivers, (*at, "notify"), "a receiver of the settings")
        examples = self.examples(raw, at, number, _EXPECTED.get(unit or "", "a number"))
        if len(self.report.found) > before or examples is None:
            return None
        made = Rule(
            name, signal, owner, runbook, *examples, above, below, hold, keep, cast("Any", severity), scope, notify,
            action, inhibits,
        )  # fmt: skip
        self.try_examples(made, at)
        return made

    def groups(self, raw: Mapping[Any, Any]) -> Groups:
        at, usual = ("groups",), Groups()
        given = self.mapping(raw.get("groups"), at)
        self.refuse(given, ("wait", "interval", "repeat"), at)
        read = (
            self.value(given, key, at, units.parse_duration, _DURATION, getattr(usual, key))
            for key in ("wait", "interval", "repeat")
        )
        return Groups(*read)

    # --- parts of a rule ----------------------------------------------------------------------------------------------
    def runbook(self, raw: Mapping[str, Any], at: At) -> str:
        name = self.text(raw, "runbook", at, "the name of a runbook, or its address", "runbook: device-idle")
        parts = urlsplit(name)
        if name and name not in runbooks() and not (parts.scheme in ("http", "https") and parts.hostname):
            hint = did_you_mean(name, runbooks(), "Write a name of docs/runbooks, or an address such as https://…")
            self.add((*at, "runbook"), shown(name), "a runbook that exists", hint)
        return name

    def scope(self, raw: Mapping[str, Any], at: At) -> Scope:
        at = (*at, "scope")
        given = self.mapping(raw.get("scope"), at)
        self.refuse(given, ("projects", "queues", "pools", "tags"), at)
        tags = self.mapping(given.get("tags"), (*at, "tags"))
        projects, queues, pools = (self.names(given, key, at) for key in ("projects", "queues", "pools"))
        return Scope(projects, queues, pools, {as_text(key): as_text(value) for key, value in tags.items()})

    def action(self, raw: Mapping[str, Any], at: At) -> Action | None:
        at, given = (*at, "action"), raw.get("action")
        if is_null(given):
            return None
        if not isinstance(given, Mapping):
            given = {"do": given}
        self.refuse(given, ("do", "dry_run", "limit", "per"), at)
        about = SIGNALS[signal].about if (signal := as_text(raw.get("signal"))) in SIGNALS else "run"
        possible = [one for one in ACTIONS if about == "run" or (one == "quarantine" and about == "node")]
        if not possible:
            hint = "Leave `action` out: it can only be told."
            self.add(at, "an action", f"none, as the rule is about a {about}", hint)
            return None
        do = self.choice(given, "do", at, possible)
        dry = self.value(given, "dry_run", at, units.parse_flag, "yes or no", True)
        limit = self.value(given, "limit", at, units.parse_integer, "a whole number, at least 1", 3)
        per = self.value(given, "per", at, units.parse_duration, _DURATION, 3600.0)
        if limit < 1:
            self.add((*at, "limit"), str(limit), "a whole number, at least 1", "Leave `action` out for none.")
        return Action(cast("Any", do), dry, limit, per)

    def examples(
        self, raw: Mapping[str, Any], at: At, number: Callable[[str], float], expected: str
    ) -> tuple[Example, Example] | None:
        at = (*at, "examples")
        given = raw.get("examples")
        if not isinstance(given, Mapping):
            hint = f"Write `examples:` such as {_EXAMPLES}."
            self.add(at, shown(given), "an example that fires and one that does not", hint)
            return None
        self.refuse(given, ("fires", "quiet", "every"), at)
        every = self.value(given, "every", at, units.parse_duration, _DURATION, 60.0)
        if not every > 0:
            self.add((*at, "every"), shown(given.get("every")), "more than 0", "Write, for example, `every: 1m`.")
            return None
        made = []
        for key in ("fires", "quiet"):
            values = self.series(given.get(key), (*at, key), number, expected)
            if values is None:
                return None
            made.append(Example(values, every))
        return made[0], made[1]

    def series(
        self, raw: Any, at: At, number: Callable[[str], float], expected: str
    ) -> tuple[float | None, ...] | None:
        """`90% x5, - x2, 10% x11`: values, each with how often it comes; `-` for none."""
        values: list[float | None] = []
        items = raw if isinstance(raw, list | tuple) else as_text(raw).split(",") if not is_null(raw) else ()
        for item in items:
            text = as_text(item).strip()
            match = _TIMES.fullmatch(text)
            value, times = (match[1].strip(), int(match[2])) if match else (text, 1)
            try:
                read = None if value == "-" else number(value)
            except units.InvalidValue:
                self.add(at, shown(text), f"values, each {expected} or `-`", f"Write, for example, {_EXAMPLES}.")
                return None
            values += [read] * min(times, VALUES_MAX)
            if len(values) > VALUES_MAX:
                self.add(at, "too many values", f"at most {VALUES_MAX:,}", "Write fewer, with a longer `every`.")
                return None
        if not values:
            self.add(at, shown(raw), "at least one value", f"Write, for example, {_EXAMPLES}.")
            return None
        return tuple(values)

    def try_examples(self, rule: Rule, at: At) -> None:
        if not fires(rule, rule.fires):
            hint = f"`for` is {units.format_duration(rule.hold)}: write values past the threshold for so long."
            self.add((*at, "examples", "fires"), "values with which the rule does not fire", "values that fire", hint)
        if fires(rule, rule.quiet):
            hint = "Write values on the other side of the threshold, or for less than `for`."
            self.add((*at, "examples", "quiet"), "values with which the rule fires", "values that don't", hint)


def _any_number(text: str) -> float:
    """For a signal that is not known, so that only its name is reported."""
    try:
        return _ratio(text)
    except units.InvalidValue:
        return units.parse_duration(text)


def _ratio(text: str) -> float:
    words = text.strip()
    return units.parse_number(words[:-1]) / 100 if words.endswith("%") else units.parse_number(words)


_PARSE: Final[dict[str, Callable[[str], float]]] = {"ratio": _ratio, "seconds": units.parse_duration}
_EXPECTED: Final = {"ratio": "a share such as `50%`", "seconds": _DURATION}
